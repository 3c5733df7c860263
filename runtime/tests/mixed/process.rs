//! This program started again, with another default float type.

use std::env;
use std::path::Path;
use std::process::Command;

use burn::tensor::{Device, FloatDType};
use gpu_tuned::burn::default_float;

use crate::{gradients, losses, positions, ranks, saving, steps, trainer, training};

const FLOAT: &str = "MIXED_TEST_FLOAT";
const TASK: &str = "MIXED_TEST_TASK";
/// What a result's line begins with; the test harness prints lines of its own.
const MARK: &str = "result: ";

/// What `task` gives in a process whose default float type is `float`.
pub(crate) fn run(float: &str, task: &str) -> String {
    let program = env::current_exe().expect("the program of this test");
    let output = Command::new(program)
        .args(["--exact", "process::started_again", "--nocapture", "--test-threads=1"])
        .env(FLOAT, float)
        .env(TASK, task)
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{float} {task}: {text}\n{errors}");
    let result = text.lines().find_map(|line| line.split_once(MARK)).map(|(_, result)| result.to_owned());
    result.unwrap_or_else(|| panic!("{float} {task} has no result: {text}"))
}

#[test]
fn started_again() {
    let (Ok(float), Ok(task)) = (env::var(FLOAT), env::var(TASK)) else { return };
    let float = match float.as_str() {
        "f64" => FloatDType::F64,
        "f32" => FloatDType::F32,
        "bf16" => FloatDType::BF16,
        "f16" => FloatDType::F16,
        other => panic!("{other} is no float type of these tests"),
    };
    default_float(&Device::flex(), float).expect("nothing was computed before");
    let words: Vec<_> = task.split(' ').collect();
    let result = match words.as_slice() {
        ["train", rest @ ..] => training::task(rest),
        ["losses"] => losses::task(),
        ["instead"] => losses::instead(),
        ["rotary"] => positions::task(),
        ["gradients", rest @ ..] => gradients::task(rest),
        ["overflow"] => steps::overflow(),
        ["ranks", factor] => ranks::task(factor),
        ["resume"] => steps::resume(),
        ["trainer"] => trainer::task(),
        ["loaded_state"] => steps::loaded_state(),
        ["save", path] => saving::save(Path::new(path)),
        ["load", path] => saving::load(Path::new(path)),
        other => panic!("{other:?} is no task"),
    };
    println!("\n{MARK}{result}");
}
