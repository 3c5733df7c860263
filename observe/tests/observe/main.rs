//! Observation of training runs, tested through its public functions.

#![allow(clippy::float_cmp, clippy::assigning_clones, reason = "expected values are exact, and tests need no speed")]

mod bench;
mod csv;
mod diagnose;
mod leak;
mod monitor;
mod plot;
mod prometheus;
mod recording;
mod summary;
mod trace;

use gpu_tuned_observe::recording::{Record, parse};

/// Two GPUs, one of them with a slice, and a program with every figure that a sample can have. There are also records of
/// another run and of another process.
fn recorded() -> Vec<Record> {
    parse("recording.jsonl", include_str!("recording.jsonl")).expect("a recording").records
}
