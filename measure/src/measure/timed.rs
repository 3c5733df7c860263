//! Times of steps and of their parts, and of preparations on the host.

use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use gpu_tuned_train::train::GraphStatus;
use serde::{Deserialize, Serialize};

use super::bench::ACCUMULATING;
use super::training::Training;
use super::{MeasureError, Step, Subject, isolated, release, reserved};

/// Shorter windows than this vary more.
const WINDOW: f64 = 0.1;
/// Seconds of the longer of the two timed steps, as a target. The host's work that a short step hides counts once for
/// all its micro-batches.
const LONGER: f64 = 0.2;
const FEW: usize = 3;
const MANY: usize = 16;
const MOST_STEPS: usize = 100;
const MOST_REPEATS: usize = 7;
const LEAST_REPEATS: usize = 3;
const MOST_WARM_UPS: usize = 12;
/// Equal steps with which memory pools begin: at least as many as dry runs of slow steps take, at most as many as any.
const FEWEST_EQUAL: usize = 4;
const MOST_EQUAL: usize = 12;
/// After this no more of them than necessary, and after that none.
const EQUAL: Duration = Duration::from_millis(500);
/// Steps until replays are trusted: some plain ones, and some in which both are compared.
const MOST_UNTIL_REPLAYED: usize = 16;
const TOO_LONG: Duration = Duration::from_secs(10);

/// Times warm steps, for about as long as `spend`; ignores `step.micro_batches`.
///
/// On a GPU, steps of one micro-batch and of many are timed in turns, each with a wait for the device at its end, as a trainer
/// waits for the loss. Many means three to sixteen, to fill a fifth of a second. The difference is the time of micro-steps; the
/// rest of the short step is the optimizer, with what the wait costs. Overlapping work so counts once. On the CPU nothing
/// overlaps, and each part of a step is timed by itself. Long steps are repeated less.
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
    /// Bytes reserved by the device's memory pools after equal steps of two micro-batches, before any other steps.
    /// Pools shared by several kinds of steps use a page more. `None` on the CPU, and if such steps take too long.
    pub(super) reserved: Option<Bytes>,
}

/// See [`timed`].
pub(super) fn run<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
    spend: Duration,
) -> Result<Run, MeasureError> {
    Clock::on_a_thread(device, subject, step, |clock| clock.run(spend, Clock::held))
}

/// Steps that are waited for.
pub(super) struct Clock<'s, 'a, M, B> {
    device: &'s Device,
    step: Step,
    is_cpu: bool,
    /// Bytes that the device's memory pools reserved before; `None` on the CPU.
    before: Option<Bytes>,
    pub(super) training: Training<'s, 'a, M, B>,
}

/// Numbers of steps.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Repeats {
    /// Micro-batches of the longer step.
    many: usize,
    /// Short steps in a row, and longer ones.
    steps: usize,
    longer_steps: usize,
    count: usize,
}

impl Repeats {
    /// For steps that take `warm` seconds with one micro-batch; the CPU takes no others.
    fn for_duration(warm: f64, spend: Duration, is_cpu: bool) -> Self {
        let within = |seconds: f64, each: f64| (seconds / each) as usize;
        let many = within(LONGER, warm).clamp(FEW, MANY);
        let steps = within(WINDOW, warm).clamp(1, MOST_STEPS);
        let longer_steps = if is_cpu { 0 } else { within(WINDOW, warm * many as f64).clamp(1, MOST_STEPS) };
        let one = warm * (steps + many * longer_steps) as f64;
        // Slow steps vary little.
        let least = within(spend.as_secs_f64() * LEAST_REPEATS as f64, one).clamp(1, LEAST_REPEATS);
        Self { many, steps, longer_steps, count: within(spend.as_secs_f64(), one).clamp(least, MOST_REPEATS) }
    }
}

impl<'s, 'a, M: Module, B: Clone> Clock<'s, 'a, M, B> {
    fn new(device: &'s Device, subject: &'s Subject<'a, M, B>, step: Step) -> Self {
        let before = reserved(device);
        Self { device, step, is_cpu: before.is_none(), before, training: Training::new(subject, step, device) }
    }

    /// Times steps on a new thread, then releases their memory.
    pub(super) fn on_a_thread<T: Send>(
        device: &'s Device,
        subject: &'s Subject<'a, M, B>,
        step: Step,
        timed: impl FnOnce(&mut Self) -> Result<T, MeasureError> + Send,
    ) -> Result<T, MeasureError> {
        let outcome = isolated(step, || {
            let mut clock = Self::new(device, subject, step);
            let timed = timed(&mut clock)?;
            drop(clock);
            release(device, step)?;
            Ok(timed)
        });
        outcome?
    }

    /// Bytes that the device's memory pools reserve for the steps; `None` on the CPU.
    pub(super) fn held(&self) -> Option<Bytes> {
        reserved(self.device).zip(self.before).map(|(held, before)| held - before)
    }

    /// Steps, and what the device's memory pools `held` after the first of them.
    fn run(&mut self, spend: Duration, held: impl Fn(&Self) -> Option<Bytes>) -> Result<Run, MeasureError> {
        if self.step.cuda_graphs {
            return self.replayed(spend);
        }
        let first = self.time(1, if self.is_cpu { 1 } else { ACCUMULATING })?;
        let is_steady = !self.is_cpu && self.equal()?;
        let reserved = held(self).filter(|_| is_steady);
        self.check()?;
        let warm = self.warm_up(first, spend)?;
        let times = self.repeat(warm, spend)?;
        self.check()?;
        Ok(Run { times, reserved })
    }

    /// Times steps with CUDA graphs after replays agree with plain micro-steps. Returns the peak of reserved bytes, too.
    fn replayed(&mut self, spend: Duration) -> Result<Run, MeasureError> {
        let (mut reserved, mut last) = (None, 0.0);
        for _ in 0..MOST_UNTIL_REPLAYED {
            last = self.time(1, ACCUMULATING)?;
            reserved = reserved.max(self.held());
            if self.training.graph_status() == Some(&GraphStatus::Replaying) {
                break;
            }
        }
        match self.training.graph_status() {
            Some(GraphStatus::Replaying) => {}
            Some(status) => return Err(self.step.failed(status)),
            None => unreachable!("BUG: the step has graphs"),
        }
        self.check()?;
        let warm = self.warm_up(last, spend)?;
        let times = self.repeat(warm, spend)?;
        self.check()?;
        Ok(Run { times, reserved: reserved.max(self.held()) })
    }

    /// Takes more steps like the first one. Returns true if they were as many as a dry run takes.
    fn equal(&mut self) -> Result<bool, MeasureError> {
        let begin = Instant::now();
        let mut taken = 1;
        while taken < MOST_EQUAL {
            let is_late = begin.elapsed() > if taken < FEWEST_EQUAL { TOO_LONG } else { EQUAL };
            if is_late {
                break;
            }
            self.time(1, ACCUMULATING)?;
            taken += 1;
        }
        Ok(taken >= FEWEST_EQUAL)
    }

    /// Takes steps until they get no faster: kernels are compiled and tuned in the first ones. Returns the seconds of a step.
    pub(super) fn warm_up(&mut self, first: f64, spend: Duration) -> Result<f64, MeasureError> {
        let (begin, mut last) = (Instant::now(), first);
        for _ in 0..MOST_WARM_UPS {
            let seconds = self.time(1, 1)?;
            let settled = seconds > 0.8 * last;
            last = seconds.min(last);
            if settled || begin.elapsed() > spend {
                break;
            }
        }
        Ok(last)
    }

    fn repeat(&mut self, warm: f64, spend: Duration) -> Result<Times, MeasureError> {
        let repeats = Repeats::for_duration(warm, spend, self.is_cpu);
        let once = |_| if self.is_cpu { Ok(self.watch(repeats.steps)) } else { self.compare(repeats) };
        let all: Vec<_> = (0..repeats.count).map(once).collect::<Result<_, _>>()?;
        Ok(Times::from_repeats(&all))
    }

    /// Steps with one and with many micro-batches: the parts follow.
    fn compare(&mut self, repeats: Repeats) -> Result<Seconds, MeasureError> {
        let step = self.time(repeats.steps, 1)?;
        let longer = self.time(repeats.longer_steps, repeats.many)?;
        Ok(Seconds::from_steps(step, longer, repeats.many))
    }

    /// Steps on the CPU, and their parts as they are.
    fn watch(&mut self, steps: usize) -> Seconds {
        let (mut micro_step, mut optimizer) = (Duration::ZERO, Duration::ZERO);
        for _ in 0..steps {
            let begin = Instant::now();
            let gradients = self.training.gradients(1);
            let between = Instant::now();
            self.training.optimize(gradients);
            micro_step += between - begin;
            optimizer += between.elapsed();
        }
        let each = |all: Duration| all.as_secs_f64() / steps as f64;
        let (micro_step, optimizer) = (each(micro_step), each(optimizer));
        Seconds { step: micro_step + optimizer, micro_step, optimizer }
    }

    /// Times so many equal steps, in seconds a step. Each is waited for, as by a trainer.
    pub(super) fn time(&mut self, steps: usize, micro_batches: usize) -> Result<f64, MeasureError> {
        let begin = Instant::now();
        for _ in 0..steps {
            self.training.step(micro_batches);
            self.wait()?;
        }
        Ok(begin.elapsed().as_secs_f64() / steps as f64)
    }

    pub(super) fn wait(&self) -> Result<(), MeasureError> {
        self.device.sync().map_err(|error| self.step.failed(&error))
    }

    /// Checks for an out-of-memory error. On the CPU the process would have been killed.
    pub(super) fn check(&self) -> Result<(), MeasureError> {
        if self.is_cpu { Ok(()) } else { self.is_finite().map(drop) }
    }

    /// Returns true for a finite loss, or for finite weights where there is none.
    pub(super) fn is_finite(&self) -> Result<bool, MeasureError> {
        self.training.check().map_err(|error| self.step.failed(&error))
    }
}

/// Shortest time of a part.
const LEAST_MS: f64 = 1e-3;

/// Times of a micro-batch's steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Milliseconds of the forward and backward pass of a micro-batch.
    pub micro_step_ms: f64,
    /// Milliseconds of the optimizer, and on a GPU of the wait at the end of a step.
    pub optimizer_ms: f64,
    /// Half of the range of the repeats of a step, as a share of their median.
    pub spread: f64,
}

/// Seconds of a step and of its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds {
    pub(super) step: f64,
    pub(super) micro_step: f64,
    pub(super) optimizer: f64,
}

impl Seconds {
    /// The parts, neither of them negative, that best explain a step and one with `many` micro-batches.
    fn from_steps(step: f64, longer: f64, many: usize) -> Self {
        let many = many as f64;
        let micro_step = ((longer - step) / (many - 1.0)).max(0.0);
        if micro_step <= step {
            return Self { step, micro_step, optimizer: step - micro_step };
        }
        // Noise hides an optimizer that takes next to nothing: the least squares without one.
        Self { step, micro_step: (step + many * longer) / (1.0 + many * many), optimizer: 0.0 }
    }
}

impl Times {
    fn from_repeats(all: &[Seconds]) -> Self {
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

/// Median of at least one value. Sorts the values.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { values[middle - 1].midpoint(values[middle]) } else { values[middle] }
}

/// Time limit of preparations.
const PREPARATION_TIME: Duration = Duration::from_millis(300);

/// Milliseconds that this thread takes for a sample, a median over preparations of so many samples at a time.
pub(super) fn host_ms_per_sample(prepare: &dyn Fn(usize), samples: usize) -> f64 {
    prepare(samples);
    let begin = Instant::now();
    let mut times = Vec::new();
    while times.is_empty() || begin.elapsed() < PREPARATION_TIME {
        let start = Instant::now();
        prepare(samples);
        times.push(start.elapsed().as_secs_f64() * 1e3 / samples as f64);
    }
    median(&mut times)
}

#[cfg(test)]
mod tests;
