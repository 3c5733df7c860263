//! The judged steps: those after kernels were compiled and autotuned, without pauses between epochs.

use std::collections::BTreeMap;

use crate::recording::StepRecord;

use crate::stats::{mean, median};

/// Steps at the start that are left out, at least: the second allocates the optimizer's state.
const MIN_LEFT_OUT: usize = 2;
/// Time of a step over the usual one, above which the step compiles or autotunes.
const TUNING: f64 = 2.5;
/// Consecutive usual steps that end the warm-up.
const USUAL_IN_A_ROW: usize = 3;
/// Time outside the trainer over that of a step, above which it is a pause.
const PAUSE: f64 = 5.0;
/// Wait over the mean step, above which it counts as a wait.
const WAITS: f64 = 0.05;
/// Steps that a judgement needs.
pub(in super::super) const MIN_STEPS: usize = 20;

/// Means of the judged steps, and the memory after each.
#[derive(Clone, Debug)]
pub(in super::super) struct Steps {
    /// Number of steps.
    pub count: usize,
    /// Numbers of the first and the last step.
    pub numbers: (u64, u64),
    /// Begin of the first and end of the last step.
    pub span: (f64, f64),
    /// Warm-up steps that are left out.
    pub left_out: usize,
    /// Means per step.
    pub mean: Parts,
    /// Memory after every step, pauses included.
    pub memory: Vec<Memory>,
    /// The first step that ran out of memory.
    pub first_rescue: Option<u64>,
    /// Skipped steps.
    pub skipped: Skipped,
    /// Slowest rank in most steps.
    pub slowest_rank: Option<SlowRank>,
}

/// Slowest of several ranks.
#[derive(Clone, Debug, PartialEq)]
pub(in super::super) struct SlowRank {
    pub rank: u64,
    pub host: String,
    /// Part of the steps.
    pub share_of_steps: f64,
    /// Median seconds of the rank for a step.
    pub seconds: f64,
    /// Median seconds of the other ranks.
    pub others_s: f64,
    /// Median of the rank's seconds over those of the others, of all steps.
    pub slowness: f64,
}

impl SlowRank {
    /// Finds the rank that is most often the slowest.
    fn from_records(records: &[&StepRecord]) -> Option<Self> {
        let slowest: Vec<_> = records.iter().filter_map(|step| step.slowest_rank.as_ref()).collect();
        let mut counts = BTreeMap::new();
        for slow in &slowest {
            *counts.entry(slow.rank).or_insert(0_usize) += 1;
        }
        let (rank, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let own: Vec<_> = slowest.iter().filter(|slow| slow.rank == rank).collect();
        Some(Self {
            rank,
            host: own.last()?.host.clone(),
            share_of_steps: count as f64 / slowest.len() as f64,
            seconds: median(own.iter().map(|slow| slow.seconds))?,
            others_s: median(own.iter().map(|slow| slow.others_s))?,
            slowness: median(slowest.iter().map(|slow| slow.slowness_of(rank)))?,
        })
    }
}

/// Steps that were skipped because gradients were not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in super::super) struct Skipped {
    /// Skipped steps, of all recorded ones.
    pub count: usize,
    pub of: usize,
    /// Number of the first skipped step.
    pub first: Option<u64>,
    /// Skipped steps without a finite loss; `None` where no losses are recorded.
    pub without_loss: Option<usize>,
    /// Part of the later half that was skipped: by then a loss scale has found its size.
    pub late_share: f64,
}

impl Skipped {
    fn from_records(records: &[&StepRecord]) -> Self {
        let skipped = || records.iter().filter(|step| !step.applied);
        let has_losses = records.iter().any(|step| step.loss.is_some());
        let late = &records[records.len() / 2..];
        let late_share = late.iter().filter(|step| !step.applied).count() as f64 / late.len().max(1) as f64;
        Self {
            late_share,
            count: skipped().count(),
            of: records.len(),
            first: skipped().next().map(|step| step.step),
            // A recording has no loss for a step whose loss is not finite.
            without_loss: has_losses
                .then(|| skipped().filter(|step| step.loss.is_none_or(|loss| !loss.is_finite())).count()),
        }
    }
}

/// Parts of a step in seconds, and its samples. Parts that are not recorded are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in super::super) struct Parts {
    pub seconds: f64,
    pub waited: Option<f64>,
    pub upload: f64,
    pub outside: f64,
    pub loss: Option<f64>,
    pub loss_cpu: Option<f64>,
    pub backward: f64,
    pub update: f64,
    pub drain: Option<f64>,
    /// Gradient exchange with other ranks.
    pub exchange: f64,
    /// Time of the loader's workers, and the CPU time in it, each summed over the workers.
    pub prepared: Option<f64>,
    pub prepared_cpu: Option<f64>,
    /// Longest wait for the loader.
    pub longest_wait: f64,
    /// Part of the steps that wait for the loader.
    pub waiting_steps: f64,
    pub samples: f64,
    pub micro_batches: f64,
    pub micro_batch: f64,
}

/// Memory of Burn's pools after a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Memory {
    pub step: u64,
    pub in_use: Option<u64>,
    pub reserved: Option<u64>,
}

impl Parts {
    /// Seconds in the trainer, without uploads and gradient exchange.
    pub(in super::super) fn training(&self) -> f64 {
        (self.seconds - self.waited.unwrap_or(0.0) - self.outside - self.upload - self.exchange).max(0.0)
    }

    /// Part of the step.
    pub(in super::super) fn share(&self, seconds: f64) -> f64 {
        if self.seconds > 0.0 { seconds / self.seconds } else { 0.0 }
    }
}

impl Steps {
    /// Selects and averages steps. Returns their number after warm-up where they are too few.
    pub(super) fn from_records(records: &[&StepRecord]) -> Result<Self, usize> {
        let left_out = tuning(records);
        let rest = &records[left_out..];
        let usual = median(rest.iter().map(|step| work(step))).unwrap_or_default();
        let outside = median(rest.iter().map(|step| step.outside_s.unwrap_or(0.0))).unwrap_or_default();
        let is_pause = |step: &StepRecord| step.outside_s.unwrap_or(0.0) > outside + PAUSE * (usual + outside);
        let steady: Vec<_> = rest.iter().copied().filter(|step| !is_pause(step)).collect();
        let ([first, .., last], true) = (steady.as_slice(), steady.len() >= MIN_STEPS) else {
            return Err(steady.len());
        };
        Ok(Self {
            count: steady.len(),
            numbers: (first.step, last.step),
            span: (first.at - first.seconds, last.at),
            left_out,
            mean: means(&steady),
            memory: rest.iter().map(|step| memory(step)).collect(),
            first_rescue: records.iter().find(|step| step.rescues > 0).map(|step| step.step),
            skipped: Skipped::from_records(records),
            slowest_rank: SlowRank::from_records(&steady),
        })
    }

    /// Samples per second over all ranks.
    pub(in super::super) fn samples_per_s(&self) -> f64 {
        self.mean.samples / self.mean.seconds
    }
}

/// Number of warm-up steps, which compile and autotune.
fn tuning(records: &[&StepRecord]) -> usize {
    let late = &records[records.len() / 2..];
    let usual = TUNING * median(late.iter().map(|step| work(step))).unwrap_or_default();
    let is_usual = |from: usize| records[from..].iter().take(USUAL_IN_A_ROW).all(|step| work(step) <= usual);
    let from = MIN_LEFT_OUT.min(records.len());
    (from..records.len()).find(|from| is_usual(*from)).unwrap_or(records.len())
}

/// Seconds of a step in the trainer: the loader has a rhythm of its own.
fn work(step: &StepRecord) -> f64 {
    step.seconds - step.waited_s.unwrap_or(0.0) - step.outside_s.unwrap_or(0.0)
}

fn memory(step: &StepRecord) -> Memory {
    Memory { step: step.step, in_use: step.in_use_bytes, reserved: step.reserved_bytes }
}

fn means(steps: &[&StepRecord]) -> Parts {
    let of = |part: fn(&StepRecord) -> Option<f64>| mean(steps.iter().filter_map(|step| part(step)));
    let known = |part: fn(&StepRecord) -> Option<f64>| of(part).unwrap_or(0.0);
    let seconds = known(|step| Some(step.seconds));
    let waits = || steps.iter().filter_map(|step| step.waited_s);
    let long = waits().filter(|waited| *waited > WAITS * seconds).count();
    Parts {
        seconds,
        longest_wait: waits().fold(0.0, f64::max),
        waiting_steps: long as f64 / steps.len().max(1) as f64,
        waited: of(|step| step.waited_s),
        upload: known(|step| step.upload_s),
        outside: known(|step| step.outside_s),
        loss: of(|step| step.loss_s),
        loss_cpu: of(|step| step.loss_cpu_s),
        backward: known(|step| step.backward_s),
        update: known(|step| step.update_s),
        drain: of(|step| step.drain_s),
        exchange: known(|step| step.exchange_s),
        prepared: of(|step| step.prepared_s),
        prepared_cpu: of(|step| step.prepared_cpu_s),
        samples: known(|step| Some(step.samples as f64)),
        micro_batches: known(|step| Some(step.micro_batches as f64)),
        micro_batch: known(|step| Some(step.micro_batch as f64)),
    }
}

#[cfg(test)]
mod tests {
    use crate::recording::StepRecord;

    use super::Steps;

    fn steps(seconds: impl Fn(u64) -> f64) -> Vec<StepRecord> {
        let mut at = 0.0;
        let record = |step| {
            let seconds = seconds(step);
            at += seconds;
            let mut record = StepRecord::new(at, step);
            (record.seconds, record.samples, record.waited_s) = (seconds, 10, Some(0.0));
            record
        };
        (1..=100).map(record).collect()
    }

    fn left_out(records: &[StepRecord]) -> Result<usize, usize> {
        Steps::from_records(&records.iter().collect::<Vec<_>>()).map(|steps| steps.left_out)
    }

    #[test]
    fn warm_up_steps_are_left_out() {
        for (what, tunes, expected) in [
            ("a warm start", 0, 2),
            ("the first", 1, 2),
            ("the first five", 5, 5),
            ("most: then they are usual", 80, 2),
        ] {
            let records = steps(|step| if step <= tunes { 1.0 } else { 0.1 });
            assert_eq!(left_out(&records), Ok(expected), "{what}");
        }
        let two_slow = steps(|step| if step == 1 || step == 4 { 20.0 } else { 0.1 });
        assert_eq!(left_out(&two_slow), Ok(4));
    }

    #[test]
    fn a_loader_that_delivers_in_bursts_is_no_warm_up() {
        let mut records = steps(|step| if step % 8 == 0 { 0.8 } else { 0.01 });
        for record in &mut records {
            record.waited_s = Some(record.seconds - 0.01);
        }
        assert_eq!(left_out(&records), Ok(2));
    }

    #[test]
    fn pauses_do_not_count_and_too_few_steps_are_counted() {
        let mut records = steps(|step| if step % 25 == 0 { 5.1 } else { 0.1 });
        for record in records.iter_mut().filter(|record| record.seconds > 1.0) {
            record.outside_s = Some(5.0);
        }
        let judged = Steps::from_records(&records.iter().collect::<Vec<_>>()).unwrap();
        assert!((judged.samples_per_s() - 100.0).abs() < 1e-9, "{judged:?}");
        assert_eq!(left_out(&records[..10]), Err(8));
        assert_eq!(left_out(&[]), Err(0));
    }
}
