//! The page of a small fixture.

use std::path::Path;

use super::{FILE, Model, PLAIN, README, Run, lines, means, section};
use crate::figures::{max, min};
use crate::results::{self, Results};

/// A convnet with all runs, and an LSTM of which one failed.
const LINES: &str = r#"
{"run":"baseline","model":"convnet","way":"plain","batch":64,"samples_per_second":700.0,"lowest":690.0,"highest":710.0,"first_step_seconds":61.25,"loss":1.5,"reserved_bytes":1048576}
{"run":"baseline","model":"convnet","way":"bf16","batch":64,"samples_per_second":2800.0,"loss":1.525,"reserved_bytes":1048576}
{"run":"baseline","model":"convnet","way":"f32","batch":64,"samples_per_second":1400.0,"loss":1.5,"reserved_bytes":2097152}
{"run":"baseline","model":"convnet","way":"library","batch":64,"samples_per_second":875.0,"loss":1.5}
{"run":"peer","model":"convnet","way":"tf32","batch":64,"torch":"2.11.0","device":"NVIDIA H100","samples_per_second":2800.0,"lowest":2799.0,"highest":2801.0}
{"run":"peer","model":"convnet","way":"compiled","batch":64,"torch":"2.11.0","device":"NVIDIA H100","samples_per_second":5600.0}
{"run":"peer","model":"convnet","way":"bf16","batch":256,"torch":"2.11.0","device":"NVIDIA H100","samples_per_second":8000.0}
{"run":"baseline","model":"convnet","way":"plain-1","batch":64,"samples_per_second":700.0,"loss":1.55}
{"run":"baseline","model":"convnet","way":"plain-2","batch":64,"samples_per_second":700.0,"loss":1.45}
{"run":"baseline","model":"lstm","way":"plain","batch":64,"samples_per_second":250.0,"loss":2.0}
{"run":"baseline","model":"lstm","way":"f32","batch":64,"samples_per_second":250.0,"loss":2.0}
{"run":"baseline","model":"lstm","way":"bf16","batch":64,"message":"lost","out_of_memory":false}
"#;

fn rows(page: &str, start: &str) -> Vec<String> {
    page.lines().filter(|line| line.starts_with(start)).map(str::to_owned).collect()
}

#[test]
fn runs_are_compared_with_the_plain_loop_and_with_pytorch() {
    let page = section(&lines(FILE, LINES).expect("lines"));
    assert!(page.starts_with("## NVIDIA H100, PyTorch 2.11.0\n"), "{page}");
    // The square root of 4 x 1.
    let means = "Over 2 models, the geometric means are x2.00 over the plain loop, and 0.50 of PyTorch.";
    assert!(page.contains(means), "{page}");
    assert_eq!(
        rows(&page, "| convnet |")[..3],
        [
            "| convnet | 700 | 875 | 1,400 | 2,800 | x4.00 | 0.50 |",
            "| convnet | 1.4500 to 1.5500 | 1.5000 | 1.5250 | 3, 1, 1 | 1 | 2 | 1 |",
            "| convnet | 2,800 | - | 5,600 | 0.25 |",
        ]
    );
    assert_eq!(
        rows(&page, "| lstm |")[..3],
        [
            "| lstm | 250 | - | 250 | - | x1.00 | - |",
            "| lstm | 2.0000 | 2.0000 | - | 1, 1, 0 | - | - | - |",
            "| lstm | - | - | - | - |",
        ]
    );
    assert_eq!(rows(&page, "| lstm | Burn | bf16 |"), ["| lstm | Burn | bf16 | 64 | lost | - to - | - | - |"]);
    assert!(page.contains("| convnet | Burn | plain | 64 | 700 | 690 to 710 | 61.2 | 1 |"), "{page}");
}

/// The README and the book state the means of the runs, and the range of the plain loops.
#[test]
fn stated_speeds_are_those_of_the_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(root.join(path)).expect("it is there");
    let runs: Vec<Run> = lines(README, &read(README)).expect("runs");
    let models = Model::all(&runs);
    let [gain, part] = means(&models).map(|mean| mean.expect("models"));
    let plain = models.iter().map(|model| model.run(PLAIN).map(Run::rate).zip(model.peer("tf32")).expect("both runs"));
    let plain: Vec<f64> = plain.map(|(plain, peer)| plain / peer).collect();
    let (least, most) = (min(&plain).expect("models"), max(&plain).expect("models"));
    let readme = read("README.md");
    for stated in [
        format!("{gain:.1} times as fast as in a plain loop in f32, at {part:.2} of PyTorch's speed"),
        format!("{least:.2} to {most:.2} of PyTorch's speed"),
    ] {
        assert!(readme.contains(&stated), "{stated}");
    }
    let book = read("docs/kernels.md").replace('\n', " ");
    let stated = format!("{gain:.1} times the plain loop in f32, and {part:.2} of PyTorch's fastest run");
    assert!(book.contains(&stated), "{stated}");
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
