//! The planner over workloads of every kind, drawn at random: held against a search that tries everything, against the
//! properties that any plan has, and timed.
//!
//! `PLANNED_WORKLOADS=10000 cargo test --release -p gpu-tuned-core --lib planner -- --nocapture` draws 200 times as
//! many.

mod brute_force;
mod costs;
mod estimates;
mod properties;
mod timing;
mod workloads;

use std::collections::BTreeMap;

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::{Profile, ProfileTable};
use proptest::prelude::*;
use proptest::test_runner::{RngAlgorithm, TestRng, TestRunner};

/// Facts of shipped GPUs that can train.
fn supported() -> impl Iterator<Item = DeviceFacts> {
    ProfileTable::builtin().iter().map(DeviceFacts::nominal).filter(|facts| facts.refusal.is_none())
}

/// Facts of a shipped GPU of each compute capability and memory size, with this fraction of its memory free.
fn profiles(free: f64) -> Vec<DeviceFacts> {
    let kind = |profile: &&Profile| (profile.compute_capability, profile.memory.nominal_mib);
    let kinds: BTreeMap<_, _> = ProfileTable::builtin().iter().map(|profile| (kind(&profile), &profile.id)).collect();
    let is_of_a_kind = |facts: &DeviceFacts| kinds.values().any(|id| facts.name == id.as_str());
    let all = supported().filter(is_of_a_kind);
    all.map(|facts| DeviceFacts { memory_available: facts.memory_total.scaled(free), ..facts }).collect()
}

/// The same cases in every run: `few`, or more in the proportion that the environment asks for.
fn runner(few: u32) -> TestRunner {
    let asked = std::env::var("PLANNED_WORKLOADS").ok();
    let asked: u32 = asked.map_or(50, |count| count.parse().expect("PLANNED_WORKLOADS is a number"));
    let config = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases((few * asked / 200).max(4)) };
    TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha))
}

/// The share of a device's memory that is free: often all of it.
fn free_memory() -> impl Strategy<Value = f64> {
    prop_oneof![Just(1.0), 0.05..1.0f64]
}
