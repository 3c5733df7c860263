use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use serde::{Deserialize, Serialize};

use super::training::Training;
use super::{MeasureError, Step, Subject, isolated, release, reserved};

/// How long steps of a micro-batch take.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Milliseconds of the forward and backward pass of a micro-batch.
    pub micro_step_ms: f64,
    /// Milliseconds of the optimizer.
    pub optimizer_ms: f64,
    /// Half of the range of the repeats of a step, as a share of their median.
    pub spread: f64,
}

/// Micro-batches of the longer of the two steps that are timed.
pub(super) const MANY: usize = 3;
/// Shorter windows than this are mostly waiting for the device.
const WINDOW: Duration = Duration::from_millis(100);
/// No part is known to take less.
const LEAST_MS: f64 = 1e-3;
const MOST_STEPS: usize = 100;
const MOST_REPEATS: usize = 7;
const LEAST_REPEATS: usize = 3;
const MOST_WARM_UPS: usize = 12;

/// Runs steps and times them, for about as long as `spend` says once they are warm; `step.micro_batches` does not count.
///
/// On a GPU steps of one and of three micro-batches are timed in turns, several of each in a row with one wait for the
/// device at the end, as training runs them: their difference is two micro-steps, and what is left of the first is the
/// optimizer. What overlaps is so counted once. On the CPU nothing overlaps, and the parts of a step are timed as they are.
///
/// The steps must fit the device's memory with much to spare, gradients added up included: a device that ran out of it is
/// slow from then on.
///
/// # Errors
///
/// [`MeasureError::Step`] when the model panics or memory runs out.
pub fn timed<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
    spend: Duration,
) -> Result<Times, MeasureError> {
    run(device, subject, step, spend).map(|run| run.times)
}

/// Steps that were run.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(not(any(feature = "cuda", test)), expect(dead_code, reason = "what concerns GPUs alone"))]
pub(super) struct Run {
    pub(super) times: Times,
    /// What they took without the first ones, which compile and tune.
    pub(super) took: Duration,
    /// What the device's memory pools held in the end; `None` on the CPU.
    pub(super) reserved: Option<Bytes>,
}

/// See [`timed`].
pub(super) fn run<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
    spend: Duration,
) -> Result<Run, MeasureError> {
    let run = isolated(step, || {
        let before = reserved(device);
        let clock = Clock { device, step, is_cpu: before.is_none() };
        let (training, warm) = clock.warm_up(Training::new(subject, step, device))?;
        let begin = Instant::now();
        let (training, times) = clock.repeat(training, warm, spend)?;
        let took = begin.elapsed();
        let after = reserved(device);
        drop(training);
        release(device, step)?;
        Ok(Run { times, took, reserved: after.zip(before).map(|(after, before)| after - before) })
    });
    run?
}

/// Seconds of a step and of its parts.
#[derive(Clone, Copy, Debug)]
struct Seconds {
    step: f64,
    micro_step: f64,
    optimizer: f64,
}

/// Steps that are waited for.
#[derive(Clone, Copy)]
struct Clock<'d> {
    device: &'d Device,
    step: Step,
    is_cpu: bool,
}

impl Clock<'_> {
    /// Steps until they get no faster: kernels are compiled and tuned in the first ones.
    fn warm_up<'s, 'a, M: Module, B: Clone>(
        self,
        mut training: Training<'s, 'a, M, B>,
    ) -> Result<(Training<'s, 'a, M, B>, f64), MeasureError> {
        if !self.is_cpu {
            (training, _) = self.time(training, 1, MANY)?;
        }
        let mut last;
        (training, last) = self.time(training, 1, 1)?;
        for _ in 0..MOST_WARM_UPS {
            let seconds;
            (training, seconds) = self.time(training, 1, 1)?;
            let settled = seconds > 0.8 * last;
            last = seconds.min(last);
            if settled {
                break;
            }
        }
        self.check(&training)?;
        Ok((training, last))
    }

    fn repeat<'s, 'a, M: Module, B: Clone>(
        self,
        mut training: Training<'s, 'a, M, B>,
        warm: f64,
        spend: Duration,
    ) -> Result<(Training<'s, 'a, M, B>, Times), MeasureError> {
        let steps = ((WINDOW.as_secs_f64() / warm) as usize).clamp(1, MOST_STEPS);
        let micro_batches = if self.is_cpu { 1 } else { 1 + MANY };
        let one = warm * (steps * micro_batches) as f64;
        let repeats = ((spend.as_secs_f64() / one) as usize).clamp(LEAST_REPEATS, MOST_REPEATS);
        let mut all = Vec::with_capacity(repeats);
        for _ in 0..repeats {
            let seconds;
            (training, seconds) = if self.is_cpu { watch(training, steps) } else { self.compare(training, steps)? };
            all.push(seconds);
        }
        Ok((training, Times::of(&all)))
    }

    /// Steps with one and with many micro-batches: the parts follow.
    fn compare<'s, 'a, M: Module, B: Clone>(
        self,
        training: Training<'s, 'a, M, B>,
        steps: usize,
    ) -> Result<(Training<'s, 'a, M, B>, Seconds), MeasureError> {
        let (training, step) = self.time(training, steps, 1)?;
        let (training, longer) = self.time(training, steps, MANY)?;
        self.check(&training)?;
        Ok((training, Seconds::from_steps(step, longer)))
    }

    /// So many equal steps, and the seconds that one of them took.
    fn time<'s, 'a, M: Module, B: Clone>(
        self,
        mut training: Training<'s, 'a, M, B>,
        steps: usize,
        micro_batches: usize,
    ) -> Result<(Training<'s, 'a, M, B>, f64), MeasureError> {
        let begin = Instant::now();
        for _ in 0..steps {
            training = training.step(micro_batches);
        }
        self.device.sync().map_err(|error| self.step.failed(&error))?;
        Ok((training, begin.elapsed().as_secs_f64() / steps as f64))
    }

    /// Whether memory sufficed, which on the CPU it does or the process is gone.
    fn check<M: Module, B: Clone>(self, training: &Training<'_, '_, M, B>) -> Result<(), MeasureError> {
        if self.is_cpu { Ok(()) } else { training.check().map_err(|error| self.step.failed(&error)) }
    }
}

/// Steps on the CPU, and their parts as they are.
fn watch<'s, 'a, M: Module, B: Clone>(
    mut training: Training<'s, 'a, M, B>,
    steps: usize,
) -> (Training<'s, 'a, M, B>, Seconds) {
    let (mut micro_step, mut optimizer) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..steps {
        let begin = Instant::now();
        let gradients = training.gradients(1);
        let between = Instant::now();
        training = training.optimize(gradients);
        micro_step += between - begin;
        optimizer += between.elapsed();
    }
    let each = |all: Duration| all.as_secs_f64() / steps as f64;
    let (micro_step, optimizer) = (each(micro_step), each(optimizer));
    (training, Seconds { step: micro_step + optimizer, micro_step, optimizer })
}

impl Seconds {
    /// The parts, neither of them negative, that best explain a step and one with [`MANY`] micro-batches.
    fn from_steps(step: f64, longer: f64) -> Self {
        let many = MANY as f64;
        let micro_step = ((longer - step) / (many - 1.0)).max(0.0);
        if micro_step <= step {
            return Self { step, micro_step, optimizer: step - micro_step };
        }
        // Noise hides an optimizer that takes next to nothing: the least squares without one.
        Self { step, micro_step: (step + many * longer) / (1.0 + many * many), optimizer: 0.0 }
    }
}

impl Times {
    fn of(all: &[Seconds]) -> Self {
        let sorted = |of: fn(&Seconds) -> f64| {
            let mut values: Vec<f64> = all.iter().map(of).collect();
            let middle = median(&mut values);
            (middle, values)
        };
        let ms = |of| (sorted(of).0 * 1e3).max(LEAST_MS);
        let (step, steps) = sorted(|seconds| seconds.step);
        Self {
            micro_step_ms: ms(|seconds| seconds.micro_step),
            optimizer_ms: ms(|seconds| seconds.optimizer),
            spread: (steps[steps.len() - 1] - steps[0]) / 2.0 / step,
        }
    }
}

/// Sorts, and takes the middle; there is at least one.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { values[middle - 1].midpoint(values[middle]) } else { values[middle] }
}

#[cfg(test)]
mod tests {
    use super::{Seconds, Times, median};

    fn close(found: (f64, f64), expected: (f64, f64)) {
        assert!((found.0 - expected.0).abs() < 1e-9 && (found.1 - expected.1).abs() < 1e-9, "{found:?}");
    }

    fn parts(step: f64, longer: f64) -> (f64, f64) {
        let seconds = Seconds::from_steps(step, longer);
        (seconds.micro_step, seconds.optimizer)
    }

    #[test]
    fn a_step_is_its_micro_steps_and_the_optimizer() {
        close(parts(10.0 + 3.0, 30.0 + 3.0), (10.0, 3.0));
        close(parts(10.0, 30.0), (10.0, 0.0));
    }

    #[test]
    fn noise_makes_no_part_negative() {
        for (step, longer) in [(10.0, 30.5), (10.0, 40.0), (10.0, 9.0)] {
            let (micro_step, optimizer) = parts(step, longer);
            assert!(micro_step >= 0.0 && optimizer >= 0.0, "{step} {longer}: {micro_step} {optimizer}");
        }
        // Nearest to both: (10 + 3 x 30.5) / 10.
        close(parts(10.0, 30.5), (10.15, 0.0));
    }

    #[test]
    fn outliers_show_in_the_spread_alone() {
        let steps = [0.013, 0.011, 0.013, 0.014, 0.013];
        let times = Times::of(&steps.map(|step| Seconds { step, micro_step: step - 0.003, optimizer: 0.003 }));
        close((times.micro_step_ms, times.optimizer_ms), (10.0, 3.0));
        assert!((times.spread - 0.0015 / 0.013).abs() < 1e-9, "{}", times.spread);
        assert!((median(&mut [4.0, 1.0, 3.0, 2.0]) - 2.5).abs() < 1e-12);
    }
}
