//! This program started again, with another default float type.

use std::env;
use std::path::Path;

use burn::tensor::{Device, FloatDType};
use gpu_tuned::burn::default_float;

#[cfg(feature = "distributed")]
use super::ranks;
use super::{gradients, losses, positions, saving, steps, trainer, training};

const FLOAT: &str = "MIXED_TEST_FLOAT";
const TASK: &str = "MIXED_TEST_TASK";

/// Output of `task` in a process whose default float type is `float`.
pub(crate) fn run(float: &str, task: &str) -> String {
    own_process::result(own_process::command(started_again).env(FLOAT, float).env(TASK, task))
}

#[test]
#[ignore = "started by other tests"]
fn started_again() {
    let [float, task] = [FLOAT, TASK].map(|variable| env::var(variable).expect("a variable"));
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
        #[cfg(feature = "distributed")]
        ["ranks", factor] => ranks::task(factor),
        ["resume"] => steps::resume(),
        ["trainer"] => trainer::task(),
        ["loaded_state"] => steps::loaded_state(),
        ["save", path] => saving::save(Path::new(path)),
        ["load", path] => saving::load(Path::new(path)),
        other => panic!("{other:?} is no task"),
    };
    own_process::give(result);
}
