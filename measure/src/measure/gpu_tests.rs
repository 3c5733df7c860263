use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use gpu_tuned_core::measured::{MeasuredMode, Mode, Point};
use gpu_tuned_core::{Bytes, Precision};

use super::{Climb, Plan, Trial, measured};
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
    /// What steps really take, as a share of their dry run.
    really: f64,
    /// MiB that a dry run like one before holds more.
    again: u64,
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
        really: 1.0,
        again: 0,
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
            let found = measured(self, self.plan(largest_batch), mode).expect("it can be measured");
            kernels = kernels.max(found.kernels);
            modes.insert(mode, found.mode);
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
        let again = if self.calls("dry").contains(&step) { self.again } else { 0 };
        self.calls.borrow_mut().push(("dry", step));
        self.now.set(self.now.get() + self.tuning);
        if step.batch > self.largest {
            return Err(step.failed(&"a tensor is too large"));
        }
        let reserved_bytes = self.reserved(step) + Bytes::from_mib(again);
        Ok(Memory { reserved_bytes, in_use_bytes: Some(Bytes::ZERO), pages: None })
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

fn batches(found: &Found, mode: &str) -> Vec<(u64, Point)> {
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
        assert!(points.len() <= 4, "{points:?}");
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
fn every_point_says_what_adding_gradients_up_takes() {
    let found = fake().measured(300);
    for mode in ["f32", "f32-checkpointed"] {
        for (batch, point) in batches(&found, mode) {
            let (once, added_up) = (point.reserved_bytes.expect("measured"), point.reserved_accumulating_bytes);
            assert_eq!(added_up, Some(once + Bytes::from_mib(2000)), "{mode}, {batch}");
        }
    }
}

#[test]
fn of_equal_dry_runs_the_larger_counts_at_what_is_kept() {
    let held = |again| {
        let found = Fake { again, ..fake() }.measured(300);
        batches(&found, "f32").iter().map(|(batch, point)| (*batch, point.reserved_bytes)).collect::<Vec<_>>()
    };
    let once = held(0);
    let more =
        once.iter().map(|(batch, bytes)| (*batch, bytes.map(|bytes| bytes + Bytes::from_mib(8)))).collect::<Vec<_>>();
    assert_eq!(held(8), more);
}

#[test]
fn a_model_that_hardly_fits_is_not_run() {
    let fake = Fake { fixed: 80_000, ..fake() };
    let found = fake.measured(64);
    assert_eq!(fake.calls("run"), []);
    assert!(batches(&found, "f32").iter().all(|(_, point)| point.micro_step_ms.is_none()));
}

#[test]
fn a_tensor_that_is_too_large_ends_the_climb() {
    let found = Fake { largest: 40, ..fake() }.measured(4096);
    for mode in ["f32", "f32-checkpointed"] {
        assert_eq!(batches(&found, mode).last().expect("points").0, 32, "{mode}");
    }
    let none = Fake { largest: 0, ..fake() };
    assert!(matches!(measured(&none, none.plan(8), PLAIN), Err(MeasureError::Step { .. })));
}

#[test]
fn when_the_budget_ends_the_largest_batch_was_run() {
    let fake = Fake { took: 40.0, ..fake() };
    let found = fake.measured(4096);
    for (mode, largest) in [("f32", 128), ("f32-checkpointed", 256)] {
        let points = batches(&found, mode);
        let timed: Vec<u64> =
            points.iter().filter(|(_, point)| point.micro_step_ms.is_some()).map(|(batch, _)| *batch).collect();
        assert!(timed.len() <= 2 && timed.contains(&largest), "{points:?}");
    }
}

#[test]
fn what_steps_really_take_counts_for_the_residual() {
    let residual = |really| {
        let found = Fake { really, ..fake() }.measured(4096);
        found.modes.values().map(|mode| mode.residual.expect("a residual")).fold(0.0, f64::max)
    };
    assert!(residual(1.0) < 0.01 && residual(0.9) < 0.01);
    assert!((0.03..0.04).contains(&residual(1.03)));
}

#[test]
fn more_batches_are_timed_than_are_kept_and_the_knee_is_among_these() {
    // Launches take 12 ms until 16 samples; from 64 on it becomes slower.
    let fake =
        Fake { ms: |batch| f64::max(12.0, 0.75 * batch) * (1.0 + 0.1 * (batch / 64.0 - 1.0).max(0.0)), ..fake() };
    let found = fake.measured(4096);
    for (mode, runs) in [("f32", [128, 64, 32, 16, 8]), ("f32-checkpointed", [256, 128, 64, 32, 16])] {
        let ran = fake.ran(mode != "f32");
        assert_eq!(ran[..5], runs, "{mode}");
        let points = batches(&found, mode);
        let timed = |batch: u64| points.iter().any(|(known, point)| *known == batch && point.micro_step_ms.is_some());
        // At 32 one micro-step and the optimizer take 25 ms, at 64 49 ms.
        assert!(points.len() <= 4 && timed(64), "{mode}: {points:?}");
        for (batch, point) in &points {
            assert!(point.reserved_from.is_none_or(|from| from < *batch), "{batch}: {point:?}");
        }
        let error = found.modes[&mode.parse().expect("a mode")].time_residual;
        assert!(error.is_none_or(|error| error < 0.05), "{mode}: {error:?} {points:?}");
    }
}

#[test]
fn what_launches_bind_is_timed_at_two_batches() {
    // A recurrent network: 0.33 s whatever the batch, and 8.5 s to time it.
    let fake = Fake { ms: |_| 330.0, took: 8.5, ..fake() };
    let found = fake.measured(512);
    for (mode, runs) in [("f32", [128, 64]), ("f32-checkpointed", [256, 128])] {
        let ran = fake.ran(mode != "f32");
        assert_eq!(ran, runs, "{mode}");
        let largest = batches(&found, mode)
            .iter()
            .any(|(batch, point)| *batch == runs[0] as u64 && point.micro_step_ms.is_some());
        assert!(largest, "{mode}");
    }
}

#[test]
fn all_samples_at_once_are_timed_where_they_fit() {
    let fake = fake();
    measured(&fake, Plan { global: Some(100), ..fake.plan(100) }, PLAIN).expect("it can be measured");
    assert_eq!(fake.calls("run")[..3].iter().map(|step| step.batch).collect::<Vec<_>>(), [100, 64, 32]);
}

#[test]
fn gradients_are_added_up_in_dry_runs_only_where_it_counts() {
    let fake = fake();
    let found = fake.measured(4096);
    for (checkpointing, mode) in [(false, "f32"), (true, "f32-checkpointed")] {
        let dry = fake.calls("dry");
        let added: Vec<u64> = dry
            .iter()
            .filter(|step| step.checkpointing == checkpointing && step.micro_batches > 1)
            .map(|step| step.batch as u64)
            .collect();
        let kept: Vec<u64> = batches(&found, mode).iter().map(|(batch, _)| *batch).collect();
        let half = Bytes::from_mib(92_000).scaled(0.85 * 0.5);
        let near = |batch: u64| fake.reserved(Step::single(batch, checkpointing)) > half;
        assert!(added.iter().all(|batch| kept.contains(batch) || near(*batch)), "{added:?} {kept:?}");
    }
}

/// Every batch of the ladder has kernels of its own to tune, for so many seconds.
fn slowly(fake: Fake, seconds: u64) -> Vec<usize> {
    slowly_up_to(512, fake, seconds)
}

fn slowly_up_to(largest: u64, fake: Fake, seconds: u64) -> Vec<usize> {
    let fake = Fake { tuning: Duration::from_secs(seconds), ..fake };
    let mut climb = Climb { trial: &fake, plan: fake.plan(largest), mode: PLAIN, tried: Vec::new() };
    climb.up_to(Bytes::from_mib(92_000)).expect("it can be measured");
    fake.calls("dry").iter().map(|step| step.batch).collect()
}

#[test]
fn the_longer_dry_runs_take_the_fewer_there_are() {
    assert_eq!(slowly(fake(), 0), [1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192]);
    assert_eq!(slowly(fake(), 3), [1, 2, 3, 4, 8, 16, 32, 64, 128]);
    // By what is known of one sample, all of them might take more than the GPU has.
    assert_eq!(slowly(fake(), 61), [1, 4, 16, 64]);
}

#[test]
fn large_batches_come_first_where_tuning_is_slow_and_small_ones_if_they_take_much() {
    // A ResNet: 230 MiB for one sample, and 7 GiB for all.
    let resnet = || Fake { fixed: 160, sample: 14, ..fake() };
    assert_eq!(slowly(resnet(), 11), [1, 128, 256, 512, 64, 32, 16]);
    assert_eq!(slowly(resnet(), 61), [1, 256, 512, 64, 16]);
    // An LSTM: 18 MiB for one, and one more for each sample.
    let lstm = || Fake { fixed: 17, sample: 1, ..fake() };
    assert_eq!(slowly(lstm(), 61), [1, 256, 512]);
    // The first took 40 s, so that another one would be late.
    assert_eq!(slowly(lstm(), 40), [1, 256, 512]);
    assert_eq!(slowly(lstm(), 11), [1, 128, 256, 512]);
    // What waited is tried where a tensor of a larger batch is too large.
    assert_eq!(slowly(Fake { largest: 40, ..lstm() }, 61), [1, 256, 64, 16]);
    // Without a global batch, too, as far as is sure to fit.
    assert_eq!(slowly_up_to(1 << 16, lstm(), 61), [1, 4096, 16_384, 65_536, 1024, 256]);
    assert_eq!(slowly(lstm(), 2), [1, 2, 3, 4, 6, 8, 128, 256, 512]);
}

/// The batches that are dry-run between the smallest and a large one, where each takes so many seconds.
fn refined(seconds: u64) -> Vec<usize> {
    let fake = Fake { tuning: Duration::from_secs(seconds), ..fake() };
    let mut climb = Climb { trial: &fake, plan: fake.plan(1 << 16), mode: PLAIN, tried: Vec::new() };
    for batch in [1, 1 << 16] {
        climb.attempt(batch).expect("a dry run");
    }
    climb.refine(Bytes::from_mib(1 << 40)).expect("dry runs");
    fake.calls("dry")[2..].iter().map(|step| step.batch).collect()
}

#[test]
fn what_is_compiled_and_tuned_for_one_dry_run_leaves_time_for_others() {
    assert_eq!([0, 4, 5, 10, 30, 60, 200].map(|seconds| refined(seconds).len()), [30, 15, 12, 12, 8, 4, 2]);
}

#[test]
fn after_a_minute_only_what_shares_its_kernels_with_others_is_dry_run() {
    let kernels: Vec<usize> = [1, 1 << 16].into_iter().chain(refined(30)).map(usize::next_power_of_two).collect();
    // Three more of them began within it.
    for late in 2 + 3..kernels.len() {
        assert!(kernels[..late].contains(&kernels[late]), "{kernels:?}");
    }
}
