//! Precisions that the planner chooses.

use super::*;
use crate::PrecisionPolicy;
use crate::plan::{PrecisionVerdict, Remedy, fits};
use crate::workload::{Block, Convnet, Declared, Recurrent, Stage};

fn auto() -> Goal {
    Goal { precision: Some(PrecisionPolicy::Auto), ..global(64) }
}

/// Steps of 32 samples on an H200 that take so many milliseconds in each precision.
fn measured(times: &[(Precision, f64)]) -> Workload {
    let mode = |&(precision, ms): &(Precision, f64)| {
        let batch = MeasuredBatch { optimizer_ms: Some(1.0), ..point(5000, ms) };
        (Mode::new(precision, false), dry_run([(32, batch)]))
    };
    measured_on("h200", small(), times.iter().map(mode))
}

#[test]
fn precisions_follow_the_device_the_goal_and_the_measurements() {
    use Precision::{F32, MixedBf16};
    let fixed = Goal { precision: Some(F32.into()), ..auto() };
    let pin = |precision| Goal { pins: Pins { precision: Some(precision), ..Pins::default() }, ..auto() };
    let cpu = DeviceFacts::cpu(Bytes(16 << 30), Bytes(16 << 30), 8);
    // Launches take the time, in any precision.
    let lstm = Recurrent { inputs: 8, hidden: 64, layers: 2, seq: 30, outputs: 1, ..Recurrent::default() }.workload();
    let both = |mixed_ms| measured(&[(F32, 40.0), (MixedBf16, mixed_ms)]);
    assert_plans(
        "precision",
        vec![
            ("no tensor cores", nominal("gtx1080"), small(), auto()),
            ("the generic GPU", nominal("generic"), small(), auto()),
            ("f16 tensor cores of Volta", nominal("v100-sxm2-16gb"), small(), auto()),
            ("f16 tensor cores of Turing", nominal("t4"), small(), auto()),
            ("bf16 tensor cores of Ada", nominal("rtx4090"), small(), auto()),
            ("bf16 tensor cores of Hopper", nominal("h200"), small(), auto()),
            ("a CPU", cpu, small(), auto()),
            ("no precision in the goal", nominal("rtx4090"), small(), Goal { precision: None, ..auto() }),
            ("f32 by name", nominal("rtx4090"), small(), fixed),
            ("f32 pinned", nominal("rtx4090"), small(), pin(F32)),
            ("mixed_bf16 pinned without bf16", nominal("t4"), small(), pin(MixedBf16)),
            ("a gain of less than 5%", nominal("rtx4090"), lstm, auto()),
            ("both measured, 16 bits faster", nominal("h200"), both(30.0), auto()),
            ("both measured, 16 bits 1.3% faster", nominal("h200"), both(39.5), auto()),
            ("both measured, 16 bits slower", nominal("h200"), both(60.0), auto()),
            ("f32 measured alone", nominal("h200"), measured(&[(F32, 40.0)]), auto()),
            ("16 bits measured alone", nominal("h200"), measured(&[(MixedBf16, 40.0)]), auto()),
            ("f32 measured elsewhere", nominal("rtx4090"), measured(&[(F32, 40.0)]), auto()),
            ("16 bits measured elsewhere", nominal("rtx4090"), measured(&[(MixedBf16, 40.0)]), auto()),
        ],
    );
}

/// A ResNet-18 on images of 32 pixels was 42% slower in bf16 than in f32 on an H100.
#[test]
fn no_gain_is_promised_to_convnets() {
    let stages = [[64, 2], [128, 2], [256, 2], [512, 2]].map(Stage::from).into();
    let resnet = Convnet { image: 32, classes: 10, block: Block::Basic, stages, ..Convnet::default() }.workload();
    let plan = planned(&nominal("h100-sxm5-80gb"), &resnet, &auto());
    let why = "no gain of mixed_bf16 is known for this kind of network: measure";
    assert_eq!((plan.settings.precision, &*reason(&plan, Setting::Precision).why), (Precision::F32, why));
    let pinned = Goal { pins: Pins { precision: Some(Precision::MixedBf16), ..Pins::default() }, ..auto() };
    let half = planned(&nominal("h100-sxm5-80gb"), &resnet, &pinned);
    assert!(half.samples_per_s < plan.samples_per_s * 1.05, "{half}");
}

#[test]
fn mixed_precision_is_taken_where_only_it_fits() {
    let cut = |memory| DeviceFacts { memory_available: memory, ..nominal("h200") };
    let pins = Pins { gradient_checkpointing: Some(false), ..Pins::default() };
    let one = Goal { global_batch: Some(1), pins, ..auto() };
    let fixed = |precision: Precision| Goal { precision: Some(precision.into()), ..one.clone() };
    // One sample of 2048 tokens: activations outweigh the copies of weights.
    let long = Transformer { heads: Some(8), tied_head: false, dropout: false, ..Transformer::new(6, 512, 8192, 2048) };
    let long = long.workload();
    let needed = |precision| planned(&nominal("h200"), &long, &fixed(precision)).memory.total();
    let (f32, mixed) = (needed(Precision::F32), needed(Precision::MixedBf16));
    assert!(mixed < f32, "{mixed} and {f32}");
    let between = Bytes(f32.0.midpoint(mixed.0)).scaled(1.0 / 0.9);
    let plan = planned(&cut(between), &long, &one);
    let why = reason(&plan, Setting::Precision).why.as_str();
    assert_eq!((plan.settings.precision, why), (Precision::MixedBf16, "f32 does not fit"));
    assert!(fits(&cut(between), &long, &one) && !fits(&cut(between), &long, &fixed(Precision::F32)));
    // Where neither fits, the report is about the smaller one.
    assert_eq!(misfit(&cut(Bytes(mixed.0 / 2)), &long, &one).memory.total(), mixed);
}

#[test]
fn each_compared_precision_is_explained_with_its_figures_and_a_fixed_one_alone() {
    let explained = explain(&nominal("t4"), &small(), &auto()).expect("it fits");
    let Outcome::Plan(plan) = &explained.outcome else { panic!("it fits") };
    let [f32, mixed] = &explained.precisions[..] else { panic!("{:?}", explained.precisions) };
    assert_eq!((mixed.samples_per_s, mixed.memory), (Some(plan.samples_per_s), Some(plan.memory.total())));
    assert_eq!((mixed.verdict, f32.precision), (PrecisionVerdict::Taken, Precision::F32));
    assert!(matches!(f32.verdict, PrecisionVerdict::Slower { by } if by > 0.04), "{f32:?}");
    let alone = explain(&nominal("t4"), &small(), &Goal { precision: None, ..auto() }).expect("it fits");
    assert_eq!(alone.precisions.len(), 1);
}

/// GTX cards with 8 GiB hold this sample in 16 bits, but they train in f32.
#[test]
fn the_larger_gpu_that_is_offered_fits_in_the_precision_of_that_gpu() {
    let declared = Declared { parameters: 1_000_000, activation_bytes_per_sample: 5 << 30, ..Declared::default() };
    let (workload, t4) = (declared.workload(), nominal("t4"));
    let small = DeviceFacts { memory_available: t4.memory_available.scaled(0.1), ..t4 };
    let misfit = misfit(&small, &workload, &auto());
    let Some(Remedy::LargerGpu { profile: Some(id), needed, .. }) = misfit.remedies.last() else { panic!("{misfit}") };
    assert!(*needed <= nominal(id).memory_available, "{id} for {needed}");
    planned(&nominal(id), &workload, &auto());
}
