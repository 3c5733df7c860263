use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, Mode};
use gpu_tuned_core::{Bytes, Precision};

use super::{Plan, Trial, measure};
use crate::measure::timed::Run;
use crate::measure::{MeasureError, Memory, Step, Times};

const PLAIN: Mode = Mode::new(Precision::F32, false);

/// A GPU with so many MiB, on which steps take memory and time along lines.
struct Fake {
    total: u64,
    fixed: u64,
    /// MiB of a sample; half of it with checkpointing.
    sample: u64,
    /// No larger batch can be made.
    largest: usize,
    /// Largest batch whose gradients can be accumulated.
    accumulated: usize,
    /// What steps really take, as a share of their dry run.
    really: f64,
    /// Seconds of the repeats of a batch.
    took: f64,
    /// What each dry run takes for its kernels.
    tuning: Duration,
    /// Milliseconds of a micro-step by its samples.
    ms: fn(f64) -> f64,
    calls: RefCell<Vec<(&'static str, Step)>>,
    now: Cell<Instant>,
}

/// What was measured, with and without checkpointing.
struct Found {
    modes: BTreeMap<Mode, MeasuredMode>,
    kernels: Bytes,
}

fn fake() -> Fake {
    Fake {
        total: 100_000,
        fixed: 10_000,
        sample: 400,
        largest: usize::MAX,
        accumulated: usize::MAX,
        really: 1.0,
        took: 1.0,
        tuning: Duration::ZERO,
        ms: |batch| 2.0 + batch,
        calls: RefCell::default(),
        now: Cell::new(Instant::now()),
    }
}

impl Fake {
    fn reserved(&self, step: Step) -> Bytes {
        let sample = if step.checkpointing { self.sample / 2 } else { self.sample };
        let gradients = if step.micro_batches > 1 { 2000 } else { 0 };
        Bytes::from_mib(self.fixed + gradients + sample * step.batch as u64)
    }

    fn plan(&self, largest_batch: u64) -> Plan<'static> {
        Plan { largest_batch, global: None, at_open: Bytes::from_mib(self.total - 5000), progress: &|_, _| () }
    }

    fn measured(&self, largest_batch: u64) -> Found {
        let (mut modes, mut kernels) = (BTreeMap::new(), Bytes::ZERO);
        for checkpointing in [false, true] {
            let mode = Mode::new(Precision::F32, checkpointing);
            let keep = &mut |found: MeasuredMode, bytes: Option<Bytes>| {
                kernels = kernels.max(bytes.unwrap_or_default());
                modes.insert(mode, found);
                Ok(())
            };
            measure(self, self.plan(largest_batch), mode, keep).expect("it can be measured");
        }
        Found { modes, kernels }
    }

    /// Batches of the steps that were run, in their order.
    fn ran(&self, checkpointing: bool) -> Vec<usize> {
        self.calls("run").iter().filter(|step| step.checkpointing == checkpointing).map(|step| step.batch).collect()
    }

    fn calls(&self, kind: &str) -> Vec<Step> {
        self.calls.borrow().iter().filter(|(name, _)| *name == kind).map(|(_, step)| *step).collect()
    }
}

impl Trial for Fake {
    fn dry(&self, step: Step) -> Result<Memory, MeasureError> {
        self.calls.borrow_mut().push(("dry", step));
        self.now.set(self.now.get() + self.tuning);
        if step.batch > self.largest || step.micro_batches > 1 && step.batch > self.accumulated {
            return Err(step.failed(&"a tensor is too large"));
        }
        let reserved_bytes = self.reserved(step);
        Ok(Memory { reserved_bytes, in_use_bytes: Some(Bytes::ZERO) })
    }

    fn run(&self, step: Step, _: Duration) -> Result<Run, MeasureError> {
        self.calls.borrow_mut().push(("run", step));
        let times = Times { micro_step_ms: (self.ms)(step.batch as f64), optimizer_ms: 1.0, spread: 0.0 };
        let reserved = self.reserved(Step { micro_batches: 2, ..step }).scaled(self.really);
        Ok(Run { times, took: Duration::from_secs_f64(self.took), reserved: Some(reserved) })
    }

    fn free(&self) -> Result<Bytes, MeasureError> {
        // A context of 5000, and 3000 of kernels.
        Ok(Bytes::from_mib(self.total - 5000 - 3000))
    }

    fn held(&self) -> Bytes {
        Bytes::ZERO
    }

    fn now(&self) -> Instant {
        self.now.get()
    }
}

fn batches(found: &Found, mode: &str) -> Vec<(u64, MeasuredBatch)> {
    let mode = &found.modes[&mode.parse().expect("a mode")];
    mode.batch.iter().map(|(batch, point)| (*batch, *point)).collect()
}

#[test]
fn steps_are_run_only_where_they_leave_memory_free() {
    let fake = fake();
    let found = fake.measured(4096);
    let most = Bytes::from_mib(92_000).scaled(0.85);
    for step in fake.calls("run") {
        assert!(fake.reserved(Step { micro_batches: 2, ..step }) <= most, "{step}");
    }
    for (mode, largest) in [("f32", 128), ("f32-checkpointed", 256)] {
        let points = batches(&found, mode);
        assert!(points.len() <= 12, "{points:?}");
        assert!(points.iter().any(|(batch, point)| *batch == largest && point.micro_step_ms.is_some()), "{points:?}");
    }
    assert_eq!(found.kernels, Bytes::from_mib(3000));
}

// Tuning does run in a dry run, and without enough memory it chooses badly for good.
#[test]
fn no_dry_run_needs_more_than_is_free() {
    for tuning in [0, 2, 11, 61].map(Duration::from_secs) {
        for (fixed, sample) in [(10_000, 400), (1000, 30_000), (60_000, 20), (17, 1), (160, 14)] {
            let fake = Fake { fixed, sample, tuning, ..fake() };
            for largest in [512, 4096, 1 << 16] {
                fake.measured(largest);
            }
            for step in fake.calls("dry") {
                assert!(fake.reserved(step) <= Bytes::from_mib(92_000), "{tuning:?}, {fixed} + {sample}: {step}");
            }
        }
    }
}

#[test]
fn every_try_has_the_memory_of_accumulated_gradients() {
    let found = fake().measured(300);
    for mode in ["f32", "f32-checkpointed"] {
        assert!(!found.modes[&mode.parse().expect("a mode")].is_partial);
        for (batch, measured) in batches(&found, mode) {
            let single = measured.reserved_bytes.expect("measured");
            let accumulating = measured.reserved_accumulating_bytes;
            assert_eq!(accumulating, Some(single + Bytes::from_mib(2000)), "{mode}, {batch}");
        }
    }
}

#[test]
fn every_try_is_stored_when_it_is_done() {
    let fake = fake();
    let mut sizes = Vec::new();
    let keep = &mut |found: MeasuredMode, kernels: Option<Bytes>| {
        assert!(found.is_partial && kernels.is_none());
        sizes.push(found.batch.len());
        assert_eq!(fake.calls("dry").len(), 2 * found.batch.len());
        // An error stops the search, as when the disk is full.
        if sizes.len() < 3 { Ok(()) } else { Err(Step::single(1, false).failed(&"no room")) }
    };
    assert!(measure(&fake, fake.plan(4096), PLAIN, keep).is_err());
    assert_eq!(sizes, [1, 2, 3]);
}

#[test]
fn a_model_that_hardly_fits_is_not_run() {
    let fake = Fake { fixed: 80_000, ..fake() };
    let found = fake.measured(64);
    assert_eq!(fake.calls("run"), []);
    assert!(batches(&found, "f32").iter().all(|(_, measured)| measured.micro_step_ms.is_none()));
}

#[test]
fn a_batch_that_cannot_accumulate_keeps_its_memory() {
    let found = Fake { accumulated: 32, ..fake() }.measured(64);
    let points = batches(&found, "f32");
    let (_, largest) = points.last().expect("a point");
    assert!(largest.reserved_bytes.is_some() && largest.reserved_accumulating_bytes.is_none(), "{points:?}");
    assert!(points.iter().any(|(batch, point)| *batch == 32 && point.micro_step_ms.is_some()), "{points:?}");
}

#[test]
fn a_tensor_that_is_too_large_ends_the_search() {
    let found = Fake { largest: 40, ..fake() }.measured(4096);
    for mode in ["f32", "f32-checkpointed"] {
        assert_eq!(batches(&found, mode).last().expect("tries").0, 32, "{mode}");
    }
    let none = Fake { largest: 0, ..fake() };
    assert!(matches!(measure(&none, none.plan(8), PLAIN, &mut |_, _| Ok(())), Err(MeasureError::Step { .. })));
}

#[test]
fn when_the_time_is_up_the_largest_batch_was_run() {
    let fake = Fake { took: 40.0, ..fake() };
    let found = fake.measured(4096);
    for (mode, largest) in [("f32", 128), ("f32-checkpointed", 256)] {
        let tries = batches(&found, mode);
        let timed: Vec<u64> =
            tries.iter().filter(|(_, measured)| measured.micro_step_ms.is_some()).map(|(batch, _)| *batch).collect();
        assert_eq!(timed, [largest / 2, largest], "{tries:?}");
    }
}

#[test]
fn executed_steps_that_reserve_more_than_their_dry_run_count() {
    let found = Fake { really: 1.03, ..fake() }.measured(4096);
    let (_, largest) = batches(&found, "f32")[7];
    let dry = Bytes::from_mib(10_000 + 128 * 400 + 2000);
    assert_eq!(largest.reserved_accumulating_bytes, Some(dry.scaled(1.03)));
}

#[test]
fn launch_bound_steps_are_timed_at_two_batches() {
    // A recurrent network: 0.33 s whatever the batch, and 8.5 s to time it.
    let fake = Fake { ms: |_| 330.0, took: 8.5, ..fake() };
    fake.measured(512);
    assert_eq!([false, true].map(|checkpointing| fake.ran(checkpointing)), [vec![128, 64], vec![256, 128]]);
}

#[test]
fn divisors_of_the_step_are_tried_from_the_whole_step_down() {
    let fake = fake();
    let plan = Plan { global: Some(100), ..fake.plan(100) };
    measure(&fake, plan, PLAIN, &mut |_, _| Ok(())).expect("it can be measured");
    assert_eq!(fake.ran(false)[..4], [100, 50, 25, 20]);
}

#[test]
fn below_the_memory_limit_gaps_are_filled_up_to_twelve_tries() {
    let fake = fake();
    let plan = Plan { global: Some(720), ..fake.plan(720) };
    let mut tries = Vec::new();
    measure(&fake, plan, PLAIN, &mut |found, _| {
        tries = found.batch.into_keys().collect();
        Ok(())
    })
    .expect("it can be measured");
    // 180 samples would reserve 82,000 MiB, more than the 78,200 MiB that steps may reserve.
    assert_eq!(tries, [1, 2, 4, 6, 8, 12, 16, 30, 45, 60, 90, 120]);
}

/// Batches that are dry-run where each has kernels of its own to tune, for so many seconds.
fn slowly(seconds: u64) -> Vec<usize> {
    let fake = Fake { tuning: Duration::from_secs(seconds), fixed: 160, sample: 14, ..fake() };
    measure(&fake, fake.plan(512), PLAIN, &mut |_, _| Ok(())).expect("it can be measured");
    fake.calls("dry").iter().filter(|step| step.micro_batches == 1).map(|step| step.batch).collect()
}

#[test]
fn slow_dry_runs_leave_out_every_second_power_of_two() {
    assert_eq!(slowly(0), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
    assert_eq!(slowly(61), [1, 2, 4, 16, 64, 256, 512]);
}
