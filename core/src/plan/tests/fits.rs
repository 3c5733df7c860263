//! Plans that fit because of measurements.

use proptest::collection::btree_map;
use proptest::option;
use proptest::prelude::*;

use super::*;
use crate::Provenance;
use crate::plan::Remedy;
use crate::workload::{Declared, Family};

const GPU: &str = "rtx4090";

/// Declared costs of which nobody said what checkpointing saves, with measurements on an RTX 4090.
fn measured(modes: impl IntoIterator<Item = (bool, MeasuredMode)>) -> Workload {
    let declared = Declared {
        parameters: 1_000_000,
        activation_bytes_per_sample: 1 << 20,
        flops_per_sample: 1e9,
        family: Family::Transformer,
        ..Declared::default()
    };
    let modes = modes.into_iter().map(|(checkpointing, mode)| (f32(checkpointing), mode));
    measured_on(GPU, declared.workload(), modes)
}

#[test]
fn checkpointing_follows_from_what_it_is_known_to_save() {
    let one = |batch, gib: u64| dry_run([(batch, point(gib << 10, None))]);
    let timed = dry_run([(8, MeasuredBatch { micro_step_ms: Some(1.0), ..MeasuredBatch::default() })]);
    let needed = measured([(false, one(1, 23)), (true, one(1, 12))]);
    assert_plans(
        "checkpointing",
        vec![
            ("only with checkpointing it fits", nominal(GPU), needed.clone(), global(1)),
            ("on another GPU, by measurements elsewhere", nominal("rtx3090"), needed, global(1)),
            ("its saving is unknown", nominal(GPU), measured([(false, one(8, 1))]), global(8)),
            ("it is not needed", nominal(GPU), measured([(false, one(8, 1)), (true, one(8, 1))]), global(8)),
            ("times alone are no memory", nominal(GPU), measured([(false, one(8, 1)), (true, timed)]), global(8)),
        ],
    );
}

/// 17,800 MiB and 60 MiB of each sample at three micro-batches, with gradients accumulated and without.
fn on_a_line() -> Workload {
    let at = |batch: u64| {
        let measured = point(17_800 + 60 * batch, None);
        (batch, MeasuredBatch { reserved_accumulating_bytes: measured.reserved_bytes, ..measured })
    };
    measured([(false, dry_run([8, 16, 32].map(at)))])
}

/// A goal with a headroom of a twentieth.
fn twentieth(goal: Goal) -> Goal {
    Goal { memory_headroom: 0.05, ..goal }
}

#[test]
fn a_measured_batch_fits_where_smaller_ones_are_estimates_that_do_not() {
    for (mib, batch) in [(21_000, 16), (20_800, 16), (20_200, 8)] {
        let (device, goal) = (with_free(GPU, mib), twentieth(global(512)));
        let pins = Pins { batch_size: Some(1), ..Pins::default() };
        assert!(plan(&device, &on_a_line(), &Goal { pins, ..goal.clone() }).is_err(), "{mib}");
        let planned = planned(&device, &on_a_line(), &goal);
        assert_eq!(planned.settings.batch_size, batch, "{planned}");
        assert_eq!((planned.memory.provenance, planned.memory.margin), (Provenance::Measured, Bytes::ZERO));
    }
}

#[test]
fn where_no_measured_batch_fits_smaller_ones_are_estimated() {
    let at = |batch: u64| (batch, point(2_000 + 1_000 * batch, batch as f64));
    let workload = measured([(false, dry_run([8, 16, 32, 64].map(at)))]);
    let planned = planned(&with_free(GPU, 9_000), &workload, &twentieth(global(512)));
    // 8 samples take 10,000 MiB, and 4 of them 6,000.
    assert!((2..8).contains(&planned.settings.batch_size), "{planned}");
    assert_eq!(planned.memory.provenance, Provenance::Estimated, "{planned}");
    assert!(planned.memory.margin > Bytes::ZERO, "{planned}");
}

#[test]
fn a_step_that_no_measured_batch_divides_is_split_with_a_smaller_last_one() {
    let at = |batch: u64| (batch, point(2_000 + 100 * batch, 5.0 + batch as f64));
    let workload = measured([(false, dry_run([8, 24, 64].map(at)))]);
    let large = planned(&nominal(GPU), &workload, &global(100));
    assert_eq!(large.schedule.micro_batches().collect::<Vec<_>>(), [64, 36], "{large}");
    // Without a measured size up to the step, sizes are estimated.
    let small = planned(&nominal(GPU), &workload, &global(4));
    assert_eq!((small.settings.batch_size, small.memory.provenance), (4, Provenance::Estimated), "{small}");
}

#[test]
fn what_does_not_fit_is_itemised_where_it_needs_least() {
    let found = misfit(&with_free(GPU, 19_000), &on_a_line(), &twentieth(global(512)));
    assert_eq!((found.memory.batch, found.memory.margin), (8, Bytes::ZERO), "{found}");
    // A step at once accumulates no gradients, which are most of this model.
    let wide = Declared { parameters: 1 << 32, activation_bytes_per_sample: 1 << 20, ..Declared::default() }.workload();
    let found = misfit(&nominal(GPU), &wide, &global(64));
    assert_eq!((found.memory.batch, found.memory.accumulated_gradients), (64, Bytes::ZERO), "{found}");
    let Some(&Remedy::LargerGpu { needed, without_headroom, profile: Some(_) }) = found.remedies.last() else {
        panic!("{found}")
    };
    // Parameters, gradients and two states in fp32, and the headroom.
    assert!(without_headroom > Bytes(4 << 34) && needed < Bytes(4 << 34).scaled(1.5), "{without_headroom} of {needed}");
    let share = without_headroom.0 as f64 / needed.0 as f64;
    assert!((share - (1.0 - global(64).memory_headroom)).abs() < 1e-9, "{without_headroom} of {needed}");
}

/// Up to four measured micro-batches of a mode, with gradients accumulated or not.
fn modes() -> impl Strategy<Value = MeasuredMode> {
    let one = (1_000..24_000u64, option::of(1_000..24_000u64)).prop_map(|(mib, accumulating)| MeasuredBatch {
        reserved_accumulating_bytes: accumulating.map(Bytes::from_mib),
        ..point(mib, None)
    });
    btree_map(1..64u64, one, 1..5).prop_map(dry_run)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn where_a_measured_batch_fits_there_is_a_plan(
        plain in modes(), recomputed in option::of(modes()), samples in option::of(1..512u64), mib in 2_000..24_000u64,
    ) {
        let modes = [(false, plain.clone())].into_iter().chain(recomputed.clone().map(|mode| (true, mode)));
        let workload = measured(modes);
        let (device, goal) = (with_free(GPU, mib), twentieth(Goal { global_batch: samples, ..Goal::default() }));
        let planned = plan(&device, &workload, &goal);
        let batches = plain.batch.keys().chain(recomputed.iter().flat_map(|mode| mode.batch.keys()));
        for &batch in batches {
            let pins = Pins { batch_size: Some(batch), ..Pins::default() };
            let fixed = plan(&device, &workload, &Goal { pins, ..goal.clone() });
            prop_assert!(fixed.is_err() || planned.is_ok(), "{} fits, but {:?}", batch, planned);
        }
    }
}
