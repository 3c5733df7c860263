//! Precisions that the planner chooses.

use std::collections::BTreeMap;

use crate::device::DeviceFacts;
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::plan::{Outcome, Plan, PlanError, PrecisionVerdict, Remedy, explain, fits, plan};
use crate::profile::ProfileTable;
use crate::workload::{Declared, Recurrent, Transformer, Workload};
use crate::{Bytes, Goal, Pins, Precision, PrecisionPolicy, Setting};

fn nominal(id: &str) -> DeviceFacts {
    DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("a shipped profile"))
}

fn small() -> Workload {
    Transformer { heads: Some(8), tied_head: false, dropout: false, ..Transformer::new(6, 512, 8192, 256) }.workload()
}

fn auto() -> Goal {
    Goal { global_batch: Some(64), precision: Some(PrecisionPolicy::Auto), ..Goal::default() }
}

fn why(plan: &Plan) -> &str {
    let reason = plan.reasons.iter().find(|reason| reason.setting == Setting::Precision);
    &reason.expect("every setting has a reason").why
}

#[test]
fn tensor_cores_decide_the_mixed_precision() {
    for (id, precision, reason) in [
        ("gtx1080", Precision::F32, "no 16-bit tensor cores"),
        ("generic", Precision::F32, "no 16-bit tensor cores"),
        ("v100-sxm2-16gb", Precision::MixedF16, "more samples/s than f32"),
        ("t4", Precision::MixedF16, "more samples/s than f32"),
        ("rtx4090", Precision::MixedBf16, "more samples/s than f32"),
        ("h200", Precision::MixedBf16, "more samples/s than f32"),
    ] {
        let plan = plan(&nominal(id), &small(), &auto()).expect("it fits");
        assert_eq!(plan.settings.precision, precision, "{plan}");
        assert!(why(&plan).ends_with(reason), "{plan}");
        assert!(why(&plan).split_whitespace().count() <= 12, "{plan}");
    }
    let cpu = DeviceFacts::cpu(Bytes(16 << 30), Bytes(16 << 30), 8);
    let plan = plan(&cpu, &small(), &auto()).expect("it fits");
    assert_eq!((plan.settings.precision, why(&plan)), (Precision::F32, "a CPU has no tensor cores"));
}

#[test]
fn a_goal_without_a_precision_stays_in_f32() {
    let plan = plan(&nominal("rtx4090"), &small(), &Goal { precision: None, ..auto() }).expect("it fits");
    assert_eq!(
        (plan.settings.precision, why(&plan)),
        (Precision::F32, "the default on every device; `auto` allows faster formats")
    );
}

#[test]
fn a_pin_or_a_precision_by_name_is_taken_as_it_is() {
    let pins = Pins { precision: Some(Precision::F32), ..Pins::default() };
    for goal in [Goal { pins, ..auto() }, Goal { precision: Some(Precision::F32.into()), ..auto() }] {
        let plan = plan(&nominal("rtx4090"), &small(), &goal).expect("it fits");
        assert_eq!(plan.settings.precision, Precision::F32, "{plan}");
    }
    let pins = Pins { precision: Some(Precision::MixedBf16), ..Pins::default() };
    let refused = plan(&nominal("t4"), &small(), &Goal { pins, ..auto() });
    assert!(matches!(refused, Err(PlanError::PrecisionUnsupported { .. })), "{refused:?}");
}

#[test]
fn a_gain_of_less_than_five_percent_is_not_worth_it() {
    // Launches take the time, in any precision.
    let lstm = Recurrent { inputs: 8, hidden: 64, layers: 2, seq: 30, outputs: 1, ..Recurrent::default() }.workload();
    let explained = explain(&nominal("rtx4090"), &lstm, &auto()).expect("it is planned");
    let Outcome::Plan(plan) = &explained.outcome else { panic!("it fits") };
    assert_eq!(plan.settings.precision, Precision::F32, "{plan}");
    let [f32, mixed] = &explained.precisions[..] else { panic!("{:?}", explained.precisions) };
    assert_eq!((f32.precision, f32.verdict), (Precision::F32, PrecisionVerdict::Taken));
    let PrecisionVerdict::LittleGain { by } = mixed.verdict else { panic!("{mixed:?}") };
    assert!(by < 0.05, "{mixed:?}");
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
    let needed = |precision| plan(&nominal("h200"), &long, &fixed(precision)).expect("it fits").memory.total();
    let (f32, mixed) = (needed(Precision::F32), needed(Precision::MixedBf16));
    assert!(mixed < f32, "{mixed} and {f32}");
    let between = Bytes(f32.0.midpoint(mixed.0)).scaled(1.0 / 0.9);
    let planned = plan(&cut(between), &long, &one).expect("one of them fits");
    assert_eq!((planned.settings.precision, why(&planned)), (Precision::MixedBf16, "f32 does not fit"));
    assert!(fits(&cut(between), &long, &one) && !fits(&cut(between), &long, &fixed(Precision::F32)));
    // Where neither fits, the report is about the smaller one.
    let Err(PlanError::DoesNotFit(misfit)) = plan(&cut(Bytes(mixed.0 / 2)), &long, &one) else { panic!("it fits") };
    assert_eq!(misfit.memory.total(), mixed);
}

/// Steps of 32 samples on an H200 that take so many milliseconds in each precision.
fn measured(times: &[(Precision, f64)]) -> Workload {
    let mode = |&(precision, micro_step_ms): &(Precision, f64)| {
        let batch = MeasuredBatch {
            reserved_bytes: Some(Bytes::from_mib(5000)),
            micro_step_ms: Some(micro_step_ms),
            optimizer_ms: Some(1.0),
            ..MeasuredBatch::default()
        };
        let batch = BTreeMap::from([(32, batch)]);
        let measured = MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch };
        (Mode::new(precision, false), measured)
    };
    let on = MeasuredOn { mode: times.iter().map(mode).collect(), ..nominal("h200").measured_on("0.22.1") };
    small().with_measured(Measured { on: BTreeMap::from([("h200".to_owned(), on)]), ..Measured::default() })
}

#[test]
fn where_both_were_measured_the_faster_one_is_taken() {
    for (mixed_ms, precision) in [(30.0, Precision::MixedBf16), (39.5, Precision::F32), (60.0, Precision::F32)] {
        let workload = measured(&[(Precision::F32, 40.0), (Precision::MixedBf16, mixed_ms)]);
        let plan = plan(&nominal("h200"), &workload, &auto()).expect("it fits");
        assert_eq!(plan.settings.precision, precision, "{mixed_ms} ms: {plan}");
    }
}

#[test]
fn where_one_was_measured_it_is_taken_and_the_reason_names_the_command() {
    for (only, other) in [(Precision::F32, Precision::MixedBf16), (Precision::MixedBf16, Precision::F32)] {
        let workload = measured(&[(only, 40.0)]);
        let explained = explain(&nominal("h200"), &workload, &auto()).expect("it is planned");
        let Outcome::Plan(plan) = &explained.outcome else { panic!("it fits") };
        assert_eq!(plan.settings.precision, only, "{plan}");
        assert_eq!(why(plan), format!("{other} was not measured here: run `cargo gpu-tuned measure`"));
        let judged = explained.precisions.iter().find(|judged| judged.precision == other).expect("it is explained");
        assert_eq!(judged.verdict, PrecisionVerdict::NotMeasured);
        // Measurements on another device compare nothing here.
        let elsewhere = crate::plan(&nominal("rtx4090"), &workload, &auto()).expect("it fits");
        assert!(!why(&elsewhere).contains("measured"), "{elsewhere}");
    }
}

#[test]
fn each_compared_precision_is_explained_and_a_fixed_one_alone() {
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
    let Err(PlanError::DoesNotFit(misfit)) = plan(&small, &workload, &auto()) else { panic!("it must not fit") };
    let Some(Remedy::LargerGpu { profile: Some(id), needed }) = misfit.remedies.last() else { panic!("{misfit}") };
    let larger = nominal(id);
    assert!(*needed <= larger.memory_available, "{id} for {needed}");
    plan(&larger, &workload, &auto()).unwrap_or_else(|error| panic!("{id}: {error}"));
}
