//! Where the time of a trainer's steps goes.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use gpu_tuned_observe::recording::{Record, StepRecord};

use super::{Course, Seen, Time, processor, trainer};
use crate::train::Step;
use gpu_tuned_observe::recording::now;

/// Burn's pools are asked at most so often: that stops the threads that hand work to the device for a moment.
const POOLS_EVERY: Duration = Duration::from_millis(50);

/// What the host does in an optimizer step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Brings a micro-batch to the device.
    Upload,
    /// Calls the program's loss function.
    Loss,
    /// Calls a training step of Burn's, which has the backward pass in it.
    LossAndBackward,
    /// Calls `backward`, and adds gradients up.
    Backward,
    /// Has the optimizer make new parameters.
    Update,
    /// Exchanges gradients with other ranks.
    Exchange,
    /// Waits for the device.
    Drain,
}

impl Phase {
    const COUNT: usize = 7;

    /// What it is called in a trace.
    const fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Loss => "forward",
            Self::LossAndBackward => "forward and backward",
            Self::Backward => "backward",
            Self::Update => "optimizer",
            Self::Exchange => "exchange",
            Self::Drain => "drain",
        }
    }
}

/// Times the phases of a trainer's steps; its clones are the same. The default times nothing.
#[derive(Clone, Default)]
pub(crate) struct Clock(Option<Arc<Laps>>);

struct Laps {
    seen: Arc<Seen>,
    phases: [Time; Phase::COUNT],
    loss_processor: Time,
    marks: Mutex<Marks>,
}

struct Marks {
    /// The making of the clock.
    made: Instant,
    /// The beginning of this step.
    entered: Instant,
    pools: Option<Instant>,
}

impl Clock {
    pub(crate) fn of(course: &Course) -> Self {
        let begin = Instant::now();
        Self(course.0.as_ref().map(|seen| {
            let marks = Mutex::new(Marks { made: begin, entered: begin, pools: None });
            let (phases, loss_processor) = (std::array::from_fn(|_| Time::default()), Time::default());
            Arc::new(Laps { seen: Arc::clone(seen), phases, loss_processor, marks })
        }))
    }

    /// A step begins.
    pub(crate) fn enter(&self) {
        if let Some(laps) = &self.0 {
            for time in laps.phases.iter().chain([&laps.loss_processor]) {
                time.take();
            }
            laps.marks().entered = Instant::now();
        }
    }

    /// Times a part of the step.
    pub(crate) fn time<T>(&self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let Some(laps) = &self.0 else { return work() };
        let is_loss = matches!(phase, Phase::Loss | Phase::LossAndBackward);
        let begin = Instant::now();
        let before = if is_loss { processor::of_this_thread() } else { None };
        let done = work();
        if let Some((before, after)) = before.zip(before.and_then(|_| processor::of_this_thread())) {
            laps.loss_processor.add(after.saturating_sub(before));
        }
        let end = Instant::now();
        laps.phases[phase as usize].add(end - begin);
        laps.trace(phase.name(), begin, end, &[]);
        done
    }

    /// Shows the work on a micro-batch of so many samples around its phases.
    pub(crate) fn micro_batch<T>(&self, samples: usize, work: impl FnOnce() -> T) -> T {
        let Some(laps) = &self.0 else { return work() };
        let begin = Instant::now();
        let done = work();
        laps.trace("micro-batch", begin, Instant::now(), &[("samples", samples as f64)]);
        done
    }

    /// A step was taken; its loss is known or it is not.
    pub(crate) fn took(&self, step: &Step, knows_loss: bool, device: &Device) {
        if let Some(laps) = &self.0 {
            laps.took(step, knows_loss, device);
        }
    }
}

impl Laps {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trace(&self, name: &str, begin: Instant, end: Instant, figures: &[(&'static str, f64)]) {
        if let Some(tracer) = self.seen.tracer.as_ref().filter(|tracer| tracer.is_on()) {
            tracer.span(&trainer(self.seen.rank), name, begin, end, figures);
        }
    }

    fn took(&self, step: &Step, knows_loss: bool, device: &Device) {
        let end = Instant::now();
        let number = self.seen.steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let (made, entered, asks_pools) = {
            let mut marks = self.marks();
            let asks = marks.pools.is_none_or(|asked| end - asked >= POOLS_EVERY);
            if asks {
                marks.pools = Some(end);
            }
            (marks.made, marks.entered, asks)
        };
        let ended = self.seen.ends(made, end);
        self.trace(&format!("step {number}"), entered, end, &[("samples", step.samples as f64)]);
        if let Some(tracer) = &self.seen.tracer {
            tracer.took(self.seen.rank, number);
        }
        let Some(recorder) = &self.seen.recorder else { return };
        let mut record = self.timed(number, ended, entered, end);
        record.samples = step.samples as u64;
        record.micro_batches = step.micro_batches as u64;
        record.micro_batch = step.micro_batch as u64;
        record.loss = knows_loss.then_some(f64::from(step.loss)).filter(|loss| loss.is_finite());
        record.gradient_norm = Some(f64::from(step.gradient_norm)).filter(|norm| norm.is_finite());
        record.loss_scale = knows_loss.then_some(step.loss_scale);
        record.applied = step.applied;
        record.rescues = step.rescues.len() as u64;
        if asks_pools {
            (record.in_use_bytes, record.reserved_bytes) = held(device);
        }
        recorder.record(Record::Step(Box::new(record)));
    }

    /// Where the time of the step went.
    fn timed(&self, number: u64, ended: Instant, entered: Instant, end: Instant) -> StepRecord {
        let phase = |phase: Phase| self.phases[phase as usize].take();
        let seconds = |time: Duration| Some(time.as_secs_f64());
        let (loss, whole) = (phase(Phase::Loss), phase(Phase::LossAndBackward));
        let exchange = phase(Phase::Exchange);
        let loss_processor = self.loss_processor.take();
        let mut record = StepRecord::new(now(), number);
        record.rank = self.seen.rank;
        record.seconds = (end - ended).as_secs_f64();
        record.upload_s = seconds(phase(Phase::Upload));
        record.loss_s = seconds(loss + whole);
        record.loss_cpu_s = seconds(loss_processor).filter(|_| cfg!(unix));
        record.backward_s = seconds(phase(Phase::Backward)).filter(|_| whole.is_zero());
        record.update_s = seconds(phase(Phase::Update));
        record.exchange_s = seconds(exchange).filter(|_| !exchange.is_zero());
        record.drain_s = seconds(phase(Phase::Drain));
        let mut outside = entered.saturating_duration_since(ended);
        if let Some(loaded) = self.seen.loader.take() {
            outside = outside.saturating_sub(loaded.waited);
            record.waited_s = seconds(loaded.waited);
            record.queued = Some(loaded.queued);
            record.prepared = Some(loaded.prepared);
            record.prepared_s = seconds(loaded.preparing);
            record.prepared_cpu_s = seconds(loaded.processor).filter(|_| cfg!(unix));
        }
        record.outside_s = seconds(outside);
        record
    }
}

/// In use and reserved, where that can be told: by Burn's pools, or on the CPU by the allocator that counts.
fn held(device: &Device) -> (Option<u64>, Option<u64>) {
    if let Some(pools) = device.memory_pool_usage() {
        return (Some(pools.bytes_in_use), Some(pools.bytes_reserved));
    }
    counted()
}

#[cfg(feature = "counting-allocator")]
fn counted() -> (Option<u64>, Option<u64>) {
    (Some(crate::allocation::live_bytes() as u64), None)
}

#[cfg(not(feature = "counting-allocator"))]
const fn counted() -> (Option<u64>, Option<u64>) {
    (None, None)
}
