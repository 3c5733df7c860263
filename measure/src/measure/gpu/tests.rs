mod fake;

use std::time::Duration;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, MeasurementMethod, Mode};
use proptest::prelude::*;

use super::{MOST_MEMORY, Plan, measure};
use crate::measure::bench::Budget;
use crate::measure::{MeasureError, Step};
use fake::{BUDGET, Fake, Found, MODES, fake};

const PLAIN: Mode = MODES[0];

fn batches(found: &Found, mode: Mode) -> Vec<(u64, MeasuredBatch)> {
    found.modes[&mode].batch.iter().map(|(batch, point)| (*batch, *point)).collect()
}

fn sizes(found: &Found, mode: Mode) -> Vec<u64> {
    found.modes.get(&mode).into_iter().flat_map(|mode| mode.batch.keys().copied()).collect()
}

#[test]
fn steps_are_run_only_where_they_leave_memory_free() {
    let fake = fake();
    let found = fake.measured(4096);
    let most = Bytes::from_mib(92_000).scaled(0.85);
    for step in fake.calls("run") {
        assert!(fake.reserved(Step { micro_batches: 2, ..step }) <= most, "{step}");
    }
    for (mode, largest) in MODES.into_iter().zip([128, 256]) {
        let points = batches(&found, mode);
        assert!(points.len() <= 12, "{points:?}");
        assert!(points.iter().any(|(batch, point)| *batch == largest && point.micro_step_ms.is_some()), "{points:?}");
    }
    assert_eq!(found.kernels, Bytes::from_mib(3000));
}

// Autotune does run in a dry run, and without enough memory it chooses badly for good.
#[test]
fn no_dry_run_needs_more_than_is_free() {
    for tuning in [0, 2, 11, 61].map(Duration::from_secs) {
        for (fixed, sample) in [(10_000, 400), (1000, 30_000), (60_000, 20), (17, 1), (160, 14)] {
            // The description takes the model for four times smaller than it is.
            let planned = 4 * (90_000 - fixed) / sample;
            for largest in [1, 512, 4096, 1 << 16] {
                let fake = Fake { fixed, sample, planned, tuning, ..fake() };
                fake.measured(largest);
                for step in fake.calls("dry") {
                    assert!(fake.reserved(step) <= Bytes::from_mib(92_000), "{tuning:?}, {fixed} + {sample}: {step}");
                }
            }
        }
    }
}

#[test]
fn after_a_first_try_that_does_not_fit_no_other_exceeds_the_memory() {
    // The description takes the model for a hundred times smaller: 512 samples need 162,400 MiB.
    let fake = Fake { fixed: 60_000, sample: 200, planned: 2048, ..fake() };
    let found = fake.measured(4096);
    let dry = fake.calls("dry");
    assert_eq!((dry[0].batch, dry[1].batch), (512, 1));
    assert!(dry[1..].iter().filter(|step| !step.checkpointing).all(|step| fake.reserved(*step).0 <= 92_000 << 20));
    assert!(sizes(&found, PLAIN).contains(&64), "{dry:?}");
}

#[test]
fn every_try_has_the_memory_of_accumulated_gradients() {
    let found = fake().measured(300);
    for mode in MODES {
        assert!(!found.modes[&mode].is_partial);
        for (batch, measured) in batches(&found, mode) {
            let single = measured.reserved_bytes.expect("measured");
            let accumulating = measured.reserved_accumulating_bytes;
            assert_eq!(accumulating, Some(single + Bytes::from_mib(2000)), "{mode}, {batch}");
        }
    }
}

#[test]
fn graphs_are_timed_from_the_planned_size_down_while_that_may_pay() {
    // A micro-step of up to 16 samples takes the host 20 ms to launch.
    let launched = |batch: f64| 20.0_f64.max(2.0 + batch);
    let with =
        |graphs_ms: fn(f64) -> f64| Fake { sample: 100, ms: [launched; 2], graphs_ms: Some(graphs_ms), ..fake() };
    let recorded = |fake: &Fake| -> Vec<usize> {
        fake.calls("run").iter().filter(|step| step.cuda_graphs).map(|step| step.batch).collect()
    };
    let fake = with(|batch| 2.0 + batch);
    let found = fake.measured(4096);
    let mode = PLAIN.with_graphs(true);
    let ran = recorded(&fake);
    assert!(ran.len() >= 2 && ran.is_sorted_by(|a, b| a > b), "{ran:?}");
    assert_eq!(sizes(&found, mode), ran.iter().rev().map(|batch| *batch as u64).collect::<Vec<_>>());
    // The last one is more than 2% slower than the best.
    let rate = |batch: usize| batch as f64 / (3.0 + batch as f64);
    let best = rate(ran[0]);
    assert!(ran[1..ran.len() - 1].iter().all(|batch| rate(*batch) >= 0.98 * best), "{ran:?}");
    assert!(!found.modes[&mode].is_partial && found.modes[&mode].method == MeasurementMethod::Executed);
    for (batch, point) in batches(&found, mode) {
        assert_eq!(point.micro_step_ms, Some(2.0 + batch as f64));
        assert!(point.reserved_bytes.is_some() && point.reserved_bytes == point.reserved_accumulating_bytes);
    }
    for step in fake.calls("run").into_iter().filter(|step| step.cuda_graphs) {
        assert!(
            fake.reserved(Step { micro_batches: 2, ..step }).scaled(MOST_MEMORY)
                <= Bytes::from_mib(92_000).scaled(0.85)
        );
    }

    let refused = with(|_| f64::NAN);
    let found = refused.measured(4096);
    assert_eq!((recorded(&refused).len(), found.modes[&mode].batch.len()), (1, 0));
    assert!(!found.modes[&PLAIN].is_partial);
}

#[test]
fn graphs_are_timed_once_without_time_left_where_launches_dominate() {
    let late = |ms: fn(f64) -> f64| {
        let (cold, tuning) = (Duration::from_secs(50), Duration::from_secs(30));
        let fake = Fake { cold, tuning, sample: 4, planned: 512, ms: [ms; 2], graphs_ms: Some(|_| 60.0), ..fake() };
        let found = fake.measured(512);
        [MODES[0], MODES[0].with_graphs(true), MODES[1]].map(|mode| sizes(&found, mode))
    };
    assert_eq!(late(|_| 330.0), [vec![128, 512], vec![512], vec![]]);
    assert_eq!(late(|batch| batch), [vec![128, 512], vec![], vec![]]);
}

#[test]
fn graphs_are_left_out_where_no_time_is_left_to_compile_their_kernels() {
    let timed = |seconds| {
        let cold = Duration::from_secs(seconds);
        let ms = |batch| batch / 4.0;
        let fake = Fake { cold, sample: 4, planned: 512, ms: [ms; 2], graphs_ms: Some(|_| 60.0), ..fake() };
        sizes(&fake.measured(512), MODES[0].with_graphs(true))
    };
    assert_eq!([60, 100].map(|seconds| timed(seconds).len()), [2, 0]);
}

#[test]
fn every_dry_run_and_every_timing_is_stored_when_it_is_done() {
    let fake = fake();
    let mut stored = Vec::new();
    let keep = &mut |mode: Mode, found: MeasuredMode, _: Bytes| {
        assert!(mode == PLAIN && found.is_partial);
        let timed = found.batch.values().filter(|point| point.micro_step_ms.is_some()).count();
        stored.push((found.batch.len(), timed));
        // An error stops the search, as when the disk is full.
        if stored.len() < 4 { Ok(()) } else { Err(Step::single(1, false).failed(&"no room")) }
    };
    assert!(measure(&fake, fake.plan(4096, &Budget::new(BUDGET)), &MODES, keep).is_err());
    assert_eq!(stored, [(1, 0), (1, 1), (2, 1), (2, 2)]);
}

#[test]
fn a_model_that_hardly_fits_is_not_run() {
    let fake = Fake { fixed: 80_000, planned: 8, ..fake() };
    let found = fake.measured(64);
    assert_eq!(fake.calls("run"), []);
    for mode in MODES {
        assert!(sizes(&found, mode).contains(&1), "{mode}");
        assert!(batches(&found, mode).iter().all(|(_, measured)| measured.micro_step_ms.is_none()));
    }
}

#[test]
fn steps_without_the_memory_that_another_process_took_are_left_out() {
    let ms = |batch: f64| if batch > 100.0 { f64::INFINITY } else { 2.0 + batch };
    let fake = Fake { ms: [ms, ms], ..fake() };
    let found = fake.measured(4096);
    let timed: Vec<_> =
        batches(&found, PLAIN).into_iter().filter(|(_, measured)| measured.micro_step_ms.is_some()).collect();
    assert!(timed.len() > 1 && timed.iter().all(|(batch, _)| *batch <= 100), "{timed:?}");
    // Memory was measured by a dry run.
    let (_, lacking) = batches(&found, PLAIN).into_iter().find(|(batch, _)| *batch > 100).expect("a larger size");
    assert!(lacking.reserved_accumulating_bytes.is_some());
    assert_eq!(fake.ran(false).iter().filter(|batch| **batch > 100).count(), 1);
    // Nothing can be timed.
    let none = |_: f64| f64::INFINITY;
    let fake = Fake { ms: [none, none], ..fake };
    assert!(matches!(fake.search(fake.plan(64, &Budget::new(BUDGET))), Err(MeasureError::Step { .. })));
}

#[test]
fn a_batch_that_cannot_accumulate_keeps_its_memory() {
    let found = Fake { accumulated: 32, ..fake() }.measured(64);
    let points = batches(&found, PLAIN);
    let (_, largest) = points.last().expect("a point");
    assert!(largest.reserved_bytes.is_some() && largest.reserved_accumulating_bytes.is_none(), "{points:?}");
    assert!(points.iter().any(|(batch, point)| *batch == 32 && point.micro_step_ms.is_some()), "{points:?}");
}

#[test]
fn a_tensor_that_is_too_large_excludes_larger_batches() {
    for (largest, last) in [(40, 32), (10, 8), (1, 1)] {
        let found = Fake { largest, ..fake() }.measured(4096);
        for mode in MODES {
            assert_eq!(sizes(&found, mode).last(), Some(&last), "{mode}");
        }
    }
    let none = Fake { largest: 0, ..fake() };
    assert!(matches!(none.search(none.plan(8, &Budget::new(BUDGET))), Err(MeasureError::Step { .. })));
}

#[test]
fn executed_steps_that_reserve_more_than_their_dry_run_count() {
    let found = Fake { really: 1.03, ..fake() }.measured(4096);
    let dry = Bytes::from_mib(10_000 + 128 * 400 + 2000);
    assert_eq!(found.modes[&PLAIN].batch[&128].reserved_accumulating_bytes, Some(dry.scaled(1.03)));
}

/// Tries in their order, as micro-batches without checkpointing and with it.
fn order(fake: &Fake, found: &Found) -> (Vec<usize>, Vec<usize>) {
    assert!(found.took <= BUDGET, "{:?}", found.took);
    (fake.ran(false), fake.ran(true))
}

#[test]
fn the_search_climbs_from_a_quarter_of_the_plan_and_then_fills_gaps() {
    // Throughput grows up to 256 samples, and falls beyond.
    let ms = |batch: f64| 20.0 + batch.max(2.0 * batch - 256.0);
    let fake = Fake { sample: 40, ms: [ms, |batch| 1.2 * (20.0 + batch)], ..fake() };
    let found = fake.measured(2048);
    let (plain, checkpointed) = order(&fake, &found);
    // 1024 is slower than 256; beside 256, both neighbours. Then all others, the nearest to 256 first. At 1 sample
    // launches dominate.
    assert_eq!(plain, [16, 64, 256, 1024, 128, 512, 32, 8, 4, 2]);
    // One size is enough where recomputation is slower.
    assert_eq!(checkpointed[..2], [256, 128]);
    let calls = fake.calls("run");
    assert!(calls[..6].iter().all(|step| !step.checkpointing) && calls[6].checkpointing, "{calls:?}");
    assert!(!found.modes[&PLAIN].is_partial);
}

#[test]
fn checkpointing_is_searched_where_memory_limits_the_plain_mode() {
    let fake = Fake { sample: 4000, planned: 8, ms: [|batch| 50.0 + batch, |batch| 60.0 + batch], ..fake() };
    let found = fake.measured(2048);
    let (plain, checkpointed) = order(&fake, &found);
    // One try of 16 samples predicts that 32 of them may not fit, two predict that they do.
    assert_eq!((plain[..3].to_vec(), checkpointed[..3].to_vec()), (vec![2, 8, 16], vec![16, 4, 32]));
    assert!(MODES.iter().all(|mode| !found.modes[mode].is_partial));
}

#[test]
fn launch_bound_steps_are_timed_at_two_batches_and_dry_run_below() {
    // A recurrent network: 0.33 s whatever the batch.
    let fake = Fake { sample: 4, planned: 512, ms: [|_| 330.0, |_| 400.0], ..fake() };
    let found = fake.measured(512);
    assert_eq!(order(&fake, &found), (vec![128, 512, 256], vec![512, 256]));
    assert_eq!(sizes(&found, PLAIN), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    // With little time, two sizes of the plain mode and one of the other are all that a plan needs.
    let slow = Fake { cold: Duration::from_mins(1), tuning: Duration::from_secs(11), ..fake };
    slow.calls.borrow_mut().clear();
    let found = slow.measured(512);
    assert_eq!((sizes(&found, MODES[0]), sizes(&found, MODES[1])), (vec![128, 512], vec![512]));
    assert!(MODES.iter().all(|mode| !found.modes[mode].is_partial));
}

#[test]
fn a_second_size_is_tried_while_a_quarter_of_the_time_is_left() {
    // A ResNet took 161 s to compile for its first size, and an LSTM more than 110 s for its second.
    for (cold, expected) in [(60, vec![16, 64]), (161, vec![16])] {
        let fake = Fake { cold: Duration::from_secs(cold), tuning: Duration::from_secs(20), ..fake() };
        let found = fake.measured(4096);
        assert_eq!(sizes(&found, MODES[0]), expected);
        assert!(found.modes[&PLAIN].is_partial, "larger micro-batches may be faster");
        assert_eq!(sizes(&found, MODES[1]), [0; 0]);
    }
}

#[test]
fn divisors_of_the_step_are_tried() {
    let fake = fake();
    let budget = Budget::new(BUDGET);
    let found = fake.search(Plan { global: Some(720), ..fake.plan(720, &budget) }).expect("it can be measured");
    // 180 samples would reserve 82,000 MiB, more than the 78,200 MiB that steps may reserve.
    assert_eq!(sizes(&found, PLAIN), [1, 2, 4, 6, 8, 12, 16, 30, 45, 60, 90, 120]);
}

proptest! {
    /// The first try of a fake takes the longest, and all others take equally long, so no forecast is too short.
    #[test]
    fn the_search_ends_in_time(
        compiling in 0u64..80, tuning in 0u64..30, took in 1u64..10, sample in 1u64..30_000, overhead in 0u64..1000,
        whole in 1u64..400, largest in 1u64..5000,
    ) {
        let [cold, tuning, took] = [tuning + compiling, tuning, took].map(Duration::from_secs);
        let fake = Fake { cold, tuning, took, sample, fixed: overhead, planned: (40_000 / sample).max(1), ..fake() };
        let budget = Budget::new(Duration::from_secs(whole));
        let found = fake.search(fake.plan(largest, &budget)).expect("it can be measured");
        let least = cold + 3 * tuning + 2 * took;
        prop_assert!(found.took <= Duration::from_secs(whole).max(least), "{:?}", found.took);
    }
}
