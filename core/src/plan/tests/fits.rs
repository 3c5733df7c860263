//! Plans that fit because of measurements.

use std::collections::BTreeMap;

use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;

use crate::device::DeviceFacts;
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::plan::{Plan, PlanError, Remedy, plan};
use crate::profile::ProfileTable;
use crate::workload::{Declared, Family, Workload};
use crate::{Bytes, Goal, Pins, Precision, Provenance, Setting};

fn rtx4090() -> DeviceFacts {
    DeviceFacts::nominal(ProfileTable::builtin().get("rtx4090").expect("a shipped profile"))
}

fn point(mib: u64) -> MeasuredBatch {
    MeasuredBatch { reserved_bytes: Some(Bytes::from_mib(mib)), ..MeasuredBatch::default() }
}

fn mode(batch: impl IntoIterator<Item = (u64, MeasuredBatch)>) -> MeasuredMode {
    let batch = batch.into_iter().collect();
    MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch }
}

/// Declared costs of which nobody said what checkpointing saves, with measurements on an RTX 4090.
fn measured(modes: impl IntoIterator<Item = (bool, MeasuredMode)>) -> Workload {
    let facts = rtx4090();
    let modes = modes.into_iter().map(|(checkpointing, mode)| (Mode::new(Precision::F32, checkpointing), mode));
    let on = MeasuredOn {
        device: "NVIDIA GeForce RTX 4090".to_owned(),
        mode: modes.collect::<BTreeMap<_, _>>(),
        ..facts.measured_on("0.22.1")
    };
    let declared = Declared {
        parameters: 1_000_000,
        activation_bytes_per_sample: 1 << 20,
        flops_per_sample: 1e9,
        family: Family::Transformer,
        ..Declared::default()
    };
    let on = BTreeMap::from([("rtx4090".to_owned(), on)]);
    declared.workload().with_measured(Measured { on, ..Measured::default() })
}

fn global(samples: u64) -> Goal {
    Goal { global_batch: Some(samples), ..Goal::default() }
}

fn why_not_recomputed(plan: &Plan) -> (Provenance, &str) {
    let reason = plan.reasons.iter().find(|reason| reason.setting == Setting::GradientCheckpointing);
    reason.map(|reason| (reason.provenance, reason.why.as_str())).expect("a reason")
}

#[test]
fn checkpointing_is_planned_where_it_was_measured_though_nobody_declared_what_it_saves() {
    let (plain, recomputed) = (mode([(1, point(23 << 10))]), mode([(1, point(12 << 10))]));
    let workload = measured([(false, plain), (true, recomputed)]);
    let planned = plan(&rtx4090(), &workload, &global(1)).expect("it fits with checkpointing");
    assert!(planned.settings.gradient_checkpointing, "{planned}");
    assert_eq!(why_not_recomputed(&planned), (Provenance::Derived, "without it nothing as fast fits into the memory"));
    assert_eq!(planned.memory.provenance, Provenance::Measured);
    // On another GPU, by what was measured there.
    let other = DeviceFacts::nominal(ProfileTable::builtin().get("rtx3090").expect("a shipped profile"));
    assert!(plan(&other, &workload, &global(1)).expect("it fits too").settings.gradient_checkpointing);
}

#[test]
fn checkpointing_says_whether_what_it_saves_is_known() {
    let fits = |batch: u64| mode([(batch, point(1 << 10))]);
    let planned = |workload: &Workload| plan(&rtx4090(), workload, &global(8)).expect("it fits");
    let unknown = planned(&measured([(false, fits(8))]));
    let neither = "its saving is neither declared nor measured";
    assert_eq!(why_not_recomputed(&unknown), (Provenance::Derived, neither));
    let known = planned(&measured([(false, fits(8)), (true, fits(8))]));
    let (_, why) = why_not_recomputed(&known);
    assert!(why.starts_with("the activations fit; recomputing them would cost about"), "{why}");
    // Times alone say nothing of memory.
    let timed = MeasuredBatch { micro_step_ms: Some(1.0), ..MeasuredBatch::default() };
    let timed = planned(&measured([(false, fits(8)), (true, mode([(8, timed)]))]));
    assert_eq!(why_not_recomputed(&timed), (Provenance::Derived, neither));
}

/// 17,800 MiB and 60 MiB of each sample at three micro-batches, with gradients accumulated and without.
fn on_a_line() -> Workload {
    let at = |batch: u64| {
        let measured = point(17_800 + 60 * batch);
        (batch, MeasuredBatch { reserved_accumulating_bytes: measured.reserved_bytes, ..measured })
    };
    measured([(false, mode([8, 16, 32].map(at)))])
}

/// A device with this much free memory, and a headroom of a twentieth.
fn with_free(mib: u64, goal: Goal) -> (DeviceFacts, Goal) {
    let device = DeviceFacts { memory_available: Bytes::from_mib(mib), ..rtx4090() };
    (device, Goal { memory_headroom: 0.05, ..goal })
}

#[test]
fn a_measured_batch_fits_where_smaller_ones_are_estimates_that_do_not() {
    for (mib, batch) in [(21_000, 16), (20_800, 16), (20_200, 8)] {
        let (device, goal) = with_free(mib, global(512));
        let pins = Pins { batch_size: Some(1), ..Pins::default() };
        assert!(plan(&device, &on_a_line(), &Goal { pins, ..goal.clone() }).is_err(), "{mib}");
        let planned = plan(&device, &on_a_line(), &goal).expect("8 fits");
        assert_eq!(planned.settings.batch_size, batch, "{planned}");
        assert_eq!((planned.memory.provenance, planned.memory.margin), (Provenance::Measured, Bytes::ZERO));
    }
}

#[test]
fn where_no_measured_batch_fits_smaller_ones_are_estimated() {
    let at = |batch: u64| (batch, MeasuredBatch { micro_step_ms: Some(batch as f64), ..point(2_000 + 1_000 * batch) });
    let workload = measured([(false, mode([8, 16, 32, 64].map(at)))]);
    let (device, goal) = with_free(9_000, global(512));
    let planned = plan(&device, &workload, &goal).expect("a smaller one fits");
    // 8 samples take 10,000 MiB, and 4 of them 6,000.
    assert!((2..8).contains(&planned.settings.batch_size), "{planned}");
    assert_eq!(planned.memory.provenance, Provenance::Estimated, "{planned}");
    assert!(planned.memory.margin > Bytes::ZERO, "{planned}");
}

#[test]
fn a_step_that_no_measured_batch_divides_is_split_with_a_smaller_last_one() {
    let at =
        |batch: u64| (batch, MeasuredBatch { micro_step_ms: Some(5.0 + batch as f64), ..point(2_000 + 100 * batch) });
    let workload = measured([(false, mode([8, 24, 64].map(at)))]);
    let planned = plan(&rtx4090(), &workload, &global(100)).expect("it fits");
    assert_eq!(planned.schedule.micro_batches().collect::<Vec<_>>(), [64, 36], "{planned}");
    // Without a measured size up to the step, sizes are estimated.
    let small = plan(&rtx4090(), &workload, &global(4)).expect("it fits");
    assert_eq!((small.settings.batch_size, small.memory.provenance), (4, Provenance::Estimated), "{small}");
}

#[test]
fn what_does_not_fit_is_itemised_where_it_needs_least() {
    let (device, goal) = with_free(19_000, global(512));
    let Err(PlanError::DoesNotFit(misfit)) = plan(&device, &on_a_line(), &goal) else { panic!("it must not fit") };
    assert_eq!((misfit.memory.batch, misfit.memory.margin), (8, Bytes::ZERO), "{misfit}");
    // A step at once accumulates no gradients, which are most of this model.
    let wide = Declared { parameters: 1 << 32, activation_bytes_per_sample: 1 << 20, ..Declared::default() }.workload();
    let Err(PlanError::DoesNotFit(misfit)) = plan(&rtx4090(), &wide, &global(64)) else { panic!("it must not fit") };
    assert_eq!((misfit.memory.batch, misfit.memory.accumulated_gradients), (64, Bytes::ZERO), "{misfit}");
    let Some(Remedy::LargerGpu { needed, profile: Some(_) }) = misfit.remedies.last() else { panic!("{misfit}") };
    assert!(*needed < Bytes(4 << 34).scaled(1.5), "{needed}");
}

/// Up to four measured micro-batches of a mode, with gradients accumulated or not.
fn modes() -> impl Strategy<Value = MeasuredMode> {
    let one = (1_000..24_000u64, option::of(1_000..24_000u64)).prop_map(|(mib, accumulating)| MeasuredBatch {
        reserved_accumulating_bytes: accumulating.map(Bytes::from_mib),
        ..point(mib)
    });
    btree_map(1..64u64, one, 1..5).prop_map(mode)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn where_a_measured_batch_fits_there_is_a_plan(
        plain in modes(), recomputed in option::of(modes()), samples in option::of(1..512u64), mib in 2_000..24_000u64,
    ) {
        let modes = [(false, plain.clone())].into_iter().chain(recomputed.clone().map(|mode| (true, mode)));
        let workload = measured(modes);
        let (device, goal) = with_free(mib, Goal { global_batch: samples, ..Goal::default() });
        let planned = plan(&device, &workload, &goal);
        let batches = plain.batch.keys().chain(recomputed.iter().flat_map(|mode| mode.batch.keys()));
        for &batch in batches {
            let pins = Pins { batch_size: Some(batch), ..Pins::default() };
            let fixed = plan(&device, &workload, &Goal { pins, ..goal.clone() });
            prop_assert!(fixed.is_err() || planned.is_ok(), "{} fits, but {:?}", batch, planned);
        }
    }
}
