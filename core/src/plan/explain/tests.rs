use super::{Explanation, Outcome, Verdict, explain};
use crate::device::DeviceFacts;
use crate::profile::ProfileTable;
use crate::workload::{Declared, Optimizer, Training, Transformer, WeightFormat, Workload, WorkloadSpec};
use crate::{Bytes, Goal, Pins, Precision};

/// What a formula says, read and computed as a person would: `a x b + c / d`, units and words.
fn evaluated(formula: &str) -> f64 {
    let plain = formula.replace(',', "");
    plain.split(" + ").map(product).sum()
}

fn product(term: &str) -> f64 {
    let mut result = 1.0;
    let mut divides = false;
    for word in term.split_whitespace() {
        let factor = match word {
            "/" => {
                divides = true;
                continue;
            }
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            "GB/s" | "GFLOP/s" => 1e9,
            "us" => 1e-6,
            // A remark, such as the peak that a rate is a share of.
            remark if remark.starts_with('(') => break,
            number => match number.parse::<f64>() {
                Ok(number) => number,
                Err(_) => continue,
            },
        };
        // A unit belongs to the number before it.
        result = if divides { result / factor } else { result * factor };
        divides = divides && word.parse::<f64>().is_ok();
    }
    result
}

fn devices() -> Vec<DeviceFacts> {
    let gib = |count: u64| Bytes(count << 30);
    let gpus = ["gtx1080", "rtx4090", "h200"]
        .map(|id| DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("a shipped profile")));
    gpus.into_iter().chain([DeviceFacts::cpu(gib(64), gib(48), 16)]).collect()
}

fn workloads() -> Vec<Workload> {
    let lm = Transformer { heads: Some(8), ..Transformer::new(6, 512, 8192, 256) };
    let packed = Training {
        optimizer: Optimizer::Adafactor,
        lora_rank: Some(8),
        frozen_weights: WeightFormat::Q4,
        layer_scratch_bytes: 1 << 20,
        ..Training::default()
    };
    let declared = Declared {
        parameters: 29_660,
        activation_bytes_per_sample: 1_929_500,
        checkpointed_activation_bytes_per_sample: Some(866_000),
        input_bytes_per_sample: Some(150_528),
        flops_per_sample: 3.96e7,
        ..Declared::default()
    };
    vec![lm.workload(), WorkloadSpec { model: lm.into(), training: packed }.workload(), declared.workload()]
}

fn goals() -> Vec<Goal> {
    let free = Goal::default();
    let bound = Goal { global_batch: Some(512), ..Goal::default() };
    let sharded = Goal { world_size: 4, shard_optimizer: true, ..bound.clone() };
    let bf16 = Goal { precision: Some(Precision::Bf16Params), ..bound.clone() };
    let pins = Pins { gradient_checkpointing: Some(true), ..Pins::default() };
    let busy = Goal { target_utilization: Some(0.9), ..bound.clone() };
    vec![free, Goal { pins, ..bound.clone() }, sharded, bf16, busy, bound]
}

fn explanations() -> Vec<Explanation> {
    let mut all = Vec::new();
    for device in devices() {
        for workload in workloads() {
            all.extend(goals().iter().filter_map(|goal| explain(&device, &workload, goal).ok()));
        }
    }
    assert!(all.len() > 50, "only {} could be explained", all.len());
    all
}

#[test]
fn formulas_give_the_bytes_that_stand_beside_them() {
    for explanation in explanations() {
        for item in explanation.memory.iter().filter(|item| item.name != "device context") {
            let (said, planned) = (evaluated(&item.formula), item.bytes.0 as f64);
            // What a reserve is of is printed in MiB with one digit after the point.
            let near = if item.name == "allocator reserve" { 1e5 } else { 1.0 };
            assert!((said - planned).abs() <= near, "{}: {} is {said}, not {planned}", item.name, item.formula);
        }
        let sum: Bytes = explanation.memory.iter().map(|item| item.bytes).sum();
        assert_eq!(sum, explanation.needed);
    }
}

#[test]
fn the_terms_of_a_step_give_its_throughput() {
    for explanation in explanations() {
        let Outcome::Plan(plan) = &explanation.outcome else { continue };
        let seconds: f64 = explanation.time.iter().map(|term| term.seconds).sum();
        let samples_per_s = plan.schedule.global_batch as f64 / seconds;
        assert!((samples_per_s / plan.samples_per_s - 1.0).abs() < 1e-9, "{samples_per_s}, {}", plan.samples_per_s);
        for term in explanation.time.iter().filter(|term| !term.formula.starts_with('(')) {
            let said = evaluated(&term.formula);
            assert!((said / term.seconds - 1.0).abs() < 0.01, "{} is {said}, not {}", term.formula, term.seconds);
        }
    }
}

#[test]
fn what_was_taken_is_the_plan_and_nothing_before_it_is_better() {
    for explanation in explanations() {
        let taken: Vec<_> = explanation.considered.iter().filter(|one| one.verdict == Verdict::Taken).collect();
        match &explanation.outcome {
            Outcome::Misfit(_) => {
                assert!(explanation.considered.iter().all(|one| one.samples_per_s.is_none()));
                assert!(!explanation.considered.is_empty());
            }
            Outcome::Plan(plan) => {
                let [taken] = taken[..] else { panic!("{} taken", taken.len()) };
                assert_eq!(taken.batch_size, plan.settings.batch_size);
                assert_eq!(taken.micro_steps, plan.settings.gradient_accumulation);
                assert_eq!(taken.memory, plan.memory.total());
                for other in &explanation.considered {
                    let fits = other.memory <= explanation.budget;
                    assert_eq!(matches!(other.verdict, Verdict::DoesNotFit { .. }), !fits, "{other:?}");
                }
            }
        }
    }
}

#[test]
fn what_is_explained_is_what_is_planned() {
    let explained = explain(&devices()[2], &workloads()[0], &goals()[5]).expect("it fits");
    let planned = crate::plan(&devices()[2], &workloads()[0], &goals()[5]).expect("it fits");
    assert_eq!(explained.outcome, Outcome::Plan(Box::new(planned)));
}
