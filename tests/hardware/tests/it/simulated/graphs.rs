//! CUDA graphs beside the driver that runs no kernels: what is recorded, replayed and dropped, not its values.

use fake_cuda::Machine;
use serde_json::json;

use super::{hardware, run};

#[test]
fn micro_steps_are_replayed_once_they_are_warm() {
    let machine = Machine::new("h200");
    let (output, lines) = run(hardware(&machine, "graphs --network perceptron --batch 8 --accumulate 2 --steps 16"));
    assert!(output.status.success(), "{lines:?}");
    let statuses: Vec<_> = lines.iter().map(|line| &line["graphs"]["status"]).collect();
    assert_eq!(json!(statuses), json!(["off", "replaying", "off"]), "{lines:?}");
}

#[test]
fn running_statistics_are_written_in_the_memory_of_the_recording() {
    let machine = Machine::new("h200");
    let words = "graphs --network convnet --batch 2 --accumulate 2 --steps 12 --runs replayed";
    let (output, lines) = run(hardware(&machine, words));
    assert!(output.status.success(), "{lines:?}");
    assert_eq!(lines[0]["graphs"], json!({ "status": "replaying" }), "{lines:?}");
}
