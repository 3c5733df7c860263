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

/// Norms compute in fp32 in a model of bf16, so their gradients are not widened into other memory.
#[test]
fn batch_norms_in_mixed_precision_are_replayed() {
    let machine = Machine::new("h200");
    let words = "graphs --network convnet --precision bf16 --batch 2 --accumulate 2 --steps 12 --runs replayed";
    let (output, lines) = run(hardware(&machine, words));
    assert!(output.status.success(), "{lines:?}");
    assert_eq!(lines[0]["graphs"], json!({ "status": "replaying" }), "{lines:?}");
}
