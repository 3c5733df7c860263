//! The page of a small fixture.

use std::path::Path;

use super::{FILE, Run, lines, section};
use crate::results::{self, Results};

/// An LSTM that only gains graphs, a convnet with all settings, and a run that failed before it succeeded.
const LINES: &str = r#"
{"run":"baseline","model":"lstm","way":"plain","batch":64,"micro_batch":64,"precision":"f32","graphs":{"status":"off"},"samples_per_second":250.0,"lowest":200.0,"highest":300.0,"first_step_seconds":61.25,"loss":2.0,"reserved_bytes":1048576}
{"run":"baseline","model":"lstm","way":"planned","batch":64,"micro_batch":64,"precision":"f32","message":"lost","out_of_memory":false}
{"run":"baseline","model":"lstm","way":"planned","batch":64,"micro_batch":64,"precision":"f32","graphs":{"status":"replaying"},"samples_per_second":1000.0,"lowest":990.0,"highest":1010.0,"first_step_seconds":1.5,"loss":2.02,"reserved_bytes":2097152}
{"run":"baseline","model":"convnet","way":"plain","batch":64,"micro_batch":64,"precision":"f32","graphs":{"status":"off"},"samples_per_second":700.0,"loss":1.5,"reserved_bytes":1048576}
{"run":"baseline","model":"convnet","way":"planned","batch":64,"micro_batch":32,"precision":"mixed_bf16","library":true,"graphs":{"status":"refused","because":"batch norms"},"samples_per_second":1400.0,"loss":1.5,"reserved_bytes":1048576}
{"run":"baseline","model":"convnet","way":"precision","batch":64,"micro_batch":64,"precision":"mixed_bf16","graphs":{"status":"off"},"samples_per_second":1050.0,"loss":1.5}
{"run":"baseline","model":"convnet","way":"library","batch":64,"micro_batch":64,"precision":"f32","library":true,"graphs":{"status":"off"},"samples_per_second":875.0,"loss":1.5}
{"run":"peer","model":"convnet","way":"tf32","batch":64,"torch":"2.11.0","device":"NVIDIA H100","samples_per_second":2800.0,"lowest":2799.0,"highest":2801.0}
{"run":"peer","model":"convnet","way":"compiled","batch":64,"torch":"2.11.0","device":"NVIDIA H100","samples_per_second":5600.0}
{"run":"peer","model":"convnet","way":"bf16","batch":256,"torch":"2.11.0","device":"NVIDIA H100","samples_per_second":4000.0}
{"run":"peer","model":"convnet","way":"compiled","batch":256,"torch":"2.11.0","device":"NVIDIA H100","message":"TimeoutError: ended after 90 s"}
"#;

fn rows(page: &str, start: &str) -> Vec<String> {
    page.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

#[test]
fn runs_are_compared_with_the_plain_loop_and_with_pytorch() {
    let page = section(&lines(FILE, LINES).expect("lines"));
    assert!(page.starts_with("## NVIDIA H100, PyTorch 2.11.0\n"), "{page}");
    // The square root of 4 x 2.
    assert!(page.contains("The geometric mean of the gains is x2.83 over 2 models."), "{page}");
    let lstm = rows(&page, "| lstm |");
    assert_eq!(
        lstm[..3],
        [
            "| lstm | 250 | 1,000 | x4.00 | 64 x 1, f32, CUDA graphs | 2.0000 | 2.0200 (+1.00%) | 1 to 2 |",
            "| lstm | - | - | - | x4.00 | x4.00 |",
            "| lstm | - | - | - | - | - | - |",
        ]
    );
    let convnet = rows(&page, "| convnet |");
    assert_eq!(
        convnet[..3],
        [
            "| convnet | 700 | 1,400 | x2.00 | 32 x 2, mixed_bf16, library, CUDA graphs refused | 1.5000 | 1.5000 (+0.00%) | 1 to 1 |",
            "| convnet | - | x1.50 | x1.25 | - | x2.00 |",
            "| convnet | 2,800 | - | 5,600 | 4,000 at 256, bf16 | 0.25 | 0.25 |",
        ]
    );
    let failed = rows(&page, "| lstm | Burn | planned | 64 | lost |");
    assert_eq!(failed, ["| lstm | Burn | planned | 64 | lost | - to - | - | - |"]);
    assert!(page.contains("| lstm | Burn | plain | 64 | 250 | 200 to 300 | 61.2 | 1 |"), "{page}");
}

/// PyTorch had 4,000 samples/s with as many in a step, and 5,600 with 64.
#[test]
fn a_larger_planned_step_is_compared_with_one_as_large() {
    let planned = "\"way\":\"planned\",\"batch\":64,\"micro_batch\":32";
    let text = LINES.replace(planned, "\"way\":\"planned\",\"batch\":256,\"micro_batch\":32");
    let page = section(&lines(FILE, &text).expect("lines"));
    assert_eq!(rows(&page, "| convnet |")[2], "| convnet | 2,800 | - | 5,600 | 4,000 at 256, bf16 | 0.25 | 0.35 |");
}

#[test]
fn a_line_that_is_no_run_is_an_error_with_its_number() {
    let error = lines::<Run>(FILE, "\n{\"run\":\"baseline\"}").expect_err("no model");
    assert_eq!(error.to_string(), "side-by-side.jsonl:2");
}

/// PyTorch trains the models of the locks.
#[test]
fn models_in_pytorch_have_the_parameters_of_those_in_burn() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let results = Results::read(&root.join(results::FOLDER)).expect("it is whole").expect("it is there");
    let script = std::fs::read_to_string(root.join("lab/experiments/peer.py")).expect("it is there");
    let models = ["convnet", "lstm", "resnet", "transformer"];
    assert_eq!(results.lock.workload.keys().collect::<Vec<_>>(), models);
    for (name, entry) in &results.lock.workload {
        let parameters = entry.described.as_ref().expect("a description").workload().parameters.trained();
        let in_python = format!("\"{name}\": {parameters}");
        assert!(script.contains(&in_python), "peer.py has other parameters than {in_python}");
    }
}
