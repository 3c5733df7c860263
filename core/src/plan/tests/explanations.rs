use super::*;
use crate::Provenance;
use crate::plan::{Item, Verdict};
use crate::workload::Declared;

/// Value of a formula such as `a x b + c / d - e`, with units and words, computed as a reader would.
fn evaluated(formula: &str) -> f64 {
    let plain = formula.replace(',', "");
    let difference = |terms: &str| {
        let mut terms = terms.split(" - ").map(product);
        let first = terms.next().expect("a term");
        first - terms.sum::<f64>()
    };
    plain.split(" + ").map(difference).sum()
}

fn product(term: &str) -> f64 {
    let mut result = 1.0;
    let mut divides = false;
    let mut words = term.split_whitespace();
    while let Some(word) = words.next() {
        let factor = match word {
            "/" => {
                divides = true;
                continue;
            }
            "KiB" => 1024.0,
            "MiB" => 1_048_576.0,
            "GiB" => 1_073_741_824.0,
            "GB/s" | "GFLOP/s" => 1e9,
            "ms" => 1e-3,
            "us" => 1e-6,
            // The micro-batch of a measurement is no factor.
            "at" => {
                words.next();
                continue;
            }
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
    let gpus = ["gtx1080", "rtx4090", "h200"].map(nominal);
    gpus.into_iter().chain([DeviceFacts::cpu(gib(64), gib(48), 16)]).collect()
}

fn workloads() -> Vec<Workload> {
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
    vec![
        measured(),
        simulated(),
        lm().workload(),
        WorkloadSpec { model: lm().into(), training: packed }.workload(),
        declared.workload(),
    ]
}

/// On an H200, with a point in common with the goals below and others.
fn measured() -> Workload {
    let at = |(batch, mib): (u64, u64)| {
        let in_use_bytes = Some(Bytes::from_mib(mib * 4 / 5));
        let measured = MeasuredBatch { in_use_bytes, optimizer_ms: Some(1.5), ..point(mib, 10.0 + batch as f64) };
        (batch, measured)
    };
    let batches = [(8, 1477), (32, 4738), (128, 16000), (256, 31872)].map(at);
    let mut workload = measured_on("h200", lm().workload(), [(f32(false), dry_run(batches))]);
    let on = workload.measured.on.get_mut("h200").expect("it was measured");
    (on.context_bytes, on.kernels_bytes) = (Some(Bytes::from_mib(537)), Some(Bytes::from_mib(38)));
    workload
}

/// The same figures, simulated.
fn simulated() -> Workload {
    let mut workload = measured();
    let mut on = workload.measured.on.remove("h200").expect("it was measured");
    (on.context_bytes, on.kernels_bytes) = (None, None);
    for mode in on.mode.values_mut() {
        mode.method = MeasurementMethod::Simulated;
        for point in mode.batch.values_mut() {
            (point.micro_step_ms, point.optimizer_ms) = (None, None);
        }
    }
    workload.measured.on.insert(Measured::simulated_name("h200"), on);
    workload
}

fn goals() -> Vec<Goal> {
    let free = Goal::default();
    let bound = global(512);
    let sharded = Goal { world_size: 4, shard_optimizer: true, ..bound.clone() };
    let bf16 = Goal { precision: Some(Precision::Bf16Params.into()), ..bound.clone() };
    let ranks = Goal { world_size: 4, ..bf16.clone() };
    let mixed = Goal { precision: Some(Precision::MixedBf16.into()), ..bound.clone() };
    let pins = Pins { gradient_checkpointing: Some(true), ..Pins::default() };
    let busy = Goal { target_utilization: Some(0.9), ..bound.clone() };
    vec![free, Goal { pins, ..bound.clone() }, sharded, bf16, busy, bound, mixed, ranks]
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
        let has_figures = |item: &&Item| item.name != "device context" && !item.formula.starts_with("loaded");
        for item in explanation.memory.iter().filter(has_figures) {
            let (value, planned) = (evaluated(&item.formula), item.bytes.0 as f64);
            // Figures in MiB are printed with one digit after the point.
            let near = if item.formula.contains("MiB") { 2e5 } else { 1.0 };
            assert!((value - planned).abs() <= near, "{}: {} is {value}, not {planned}", item.name, item.formula);
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
            let value = evaluated(&term.formula);
            assert!((value / term.seconds - 1.0).abs() < 0.01, "{} is {value}, not {}", term.formula, term.seconds);
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
    let explained = explain(&devices()[2], &workloads()[2], &goals()[5]).expect("it fits");
    let planned = planned(&devices()[2], &workloads()[2], &goals()[5]);
    assert_eq!(explained.outcome, Outcome::Plan(Box::new(planned)));
}

#[test]
fn what_was_measured_is_said_to_be() {
    let provenance = |device: usize, name: &str| {
        let explained = explain(&devices()[device], &measured(), &goals()[5]).expect("it fits");
        let item = explained.memory.iter().find(|item| item.name == name).map(|item| item.provenance);
        let time = explained.time.iter().find(|term| term.name == name).map(|term| term.provenance);
        item.or(time).expect("an item")
    };
    for name in ["activations", "allocator reserve", "kernels", "device context", "micro-batches", "optimizer"] {
        assert_ne!(provenance(2, name), Provenance::Derived, "{name}");
    }
    for name in ["activations", "kernels", "micro-batches"] {
        assert_eq!(provenance(1, name), Provenance::Transferred, "{name}");
    }
    assert_eq!(provenance(2, "weights"), Provenance::Derived);
    // A CPU tells nothing of a GPU, and a GPU nothing of a CPU.
    assert_eq!(provenance(3, "activations"), Provenance::Derived);
}
