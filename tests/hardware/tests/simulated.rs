//! What runs on CUDA, beside a driver that runs no kernel: `cargo test --release -p hardware-tests --features cuda`.

#![cfg(feature = "cuda")]

use std::path::Path;
use std::process::{Command, Output};

use fake_cuda::Machine;
use serde_json::Value;

/// The program with these words, beside an H200.
fn hardware(machine: &Machine, words: &str) -> Command {
    let mut command = machine.command(env!("CARGO_BIN_EXE_hardware"));
    command.args(words.split(' '));
    command
}

/// What a program says and prints, with the lines of it.
fn run(mut command: Command) -> (Output, Vec<Value>) {
    let output = command.output().expect("it starts");
    let (text, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines: Vec<_> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(!lines.is_empty(), "{errors}");
    (output, lines)
}

/// Of a model of dense layers, whose memory does not depend on what tuning decides for.
#[test]
fn memory_pools_hold_what_they_hold_on_an_h200() {
    let machine = Machine::new("h200");
    let batches = "40,80";
    let words = format!("trace --model transformer --checkpointing --batches {batches} --steps 12 --unwatched");
    let (_, found) = run(hardware(&machine, &words));
    assert_eq!(found.len(), 2, "{found:?}");
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("results/h200/trace.jsonl");
    let text = std::fs::read_to_string(file).expect("results");
    let observed: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    for found in found {
        let keys = ["model", "precision", "checkpointing", "accumulate", "batch", "queue"];
        let is_it = |line: &&Value| keys.iter().all(|key| line[key] == found[key]);
        let observed = observed.iter().find(is_it).unwrap_or_else(|| panic!("no observation of {found}"));
        assert_eq!(found["reserved_bytes"], observed["reserved_bytes"], "batch {}", found["batch"]);
    }
}

/// Allocations fail as the driver's do, in the forward pass, the backward pass, the optimizer and the loader.
#[test]
fn training_goes_on_with_the_same_samples_wherever_memory_runs_out() {
    let machine = Machine::new("h200");
    for drill in ["forward", "backward", "optimizer", "loader"] {
        let words = format!("drill {drill} --repeats 1 --before 3 --after 8 --layers 1");
        let (output, lines) = run(hardware(&machine, &words));
        let line = &lines[0];
        assert!(output.status.success() && line["error"].is_null(), "{line}");
        assert_eq!(line["samples_exact"], Value::from(true), "{line}");
        assert!(line["rescues"].as_u64() > Some(0), "{line}");
        assert!(line["micro_batch_after"].as_u64() < line["planned"].as_u64(), "{line}");
    }
}
