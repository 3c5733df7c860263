//! Times of a trainer's steps, phase by phase.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::Device;
use gpu_tuned_observe::recording::{Record, StepRecord, now};

use super::{AtomicDuration, RankState, StepInstrumentation, cpu_time};

/// Shortest interval between two queries of Burn's memory pools, each of which blocks the threads that launch kernels.
const POOL_INTERVAL: Duration = Duration::from_millis(50);

/// Phase of an optimizer step on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Upload of a micro-batch to the device.
    Upload,
    /// Call of the program's loss function.
    Loss,
    /// Call of a Burn training step, which includes the backward pass.
    LossAndBackward,
    /// Backward pass.
    Backward,
    /// Addition of gradients to those of earlier micro-batches, recorded as part of the backward pass.
    Accumulation,
    /// Update of the parameters.
    Update,
    /// Exchange of gradients with other ranks.
    Exchange,
    /// Wait for the device.
    Drain,
}

impl Phase {
    const COUNT: usize = 8;

    /// Name in a trace.
    const fn name(self) -> &'static str {
        match self {
            Self::Upload => "upload",
            Self::Loss => "forward",
            Self::LossAndBackward => "forward and backward",
            Self::Backward => "backward",
            Self::Accumulation => "accumulation",
            Self::Update => "optimizer",
            Self::Exchange => "exchange",
            Self::Drain => "drain",
        }
    }
}

/// Timer of one trainer's steps. Clones share their state; the default times nothing.
#[derive(Clone, Default)]
pub struct StepTimer(Option<Arc<StepTimes>>);

/// Times of the step under way.
struct StepTimes {
    rank: Arc<RankState>,
    phases: [AtomicDuration; Phase::COUNT],
    /// CPU time of the loss function.
    loss_cpu_time: AtomicDuration,
    marks: Mutex<Marks>,
}

#[derive(Clone, Copy)]
struct Marks {
    created: Instant,
    /// Begin of this step.
    begin: Instant,
    /// Last query of the memory pools.
    pools: Option<Instant>,
}

impl StepTimer {
    /// A timer that reports to `instrumentation`.
    pub(crate) fn new(instrumentation: &StepInstrumentation) -> Self {
        let created = Instant::now();
        Self(instrumentation.0.as_ref().map(|rank| {
            let marks = Mutex::new(Marks { created, begin: created, pools: None });
            let phases = std::array::from_fn(|_| AtomicDuration::default());
            Arc::new(StepTimes { rank: Arc::clone(rank), phases, loss_cpu_time: AtomicDuration::default(), marks })
        }))
    }

    /// Begins a step.
    pub(crate) fn begin(&self) {
        if let Some(times) = &self.0 {
            for time in times.phases.iter().chain([&times.loss_cpu_time]) {
                time.take();
            }
            times.marks().begin = Instant::now();
        }
    }

    /// Times a phase of the step.
    pub(crate) fn time<T>(&self, phase: Phase, work: impl FnOnce() -> T) -> T {
        let Some(times) = &self.0 else { return work() };
        let begin = Instant::now();
        let done = if matches!(phase, Phase::Loss | Phase::LossAndBackward) {
            let (done, cpu_time) = cpu_time::measured(work);
            times.loss_cpu_time.add(cpu_time.unwrap_or_default());
            done
        } else {
            work()
        };
        let end = Instant::now();
        times.phases[phase as usize].add(end - begin);
        times.rank.trace(phase.name(), begin, end, &[]);
        done
    }

    /// Adds the work on a micro-batch to the trace, around its phases.
    pub(crate) fn micro_batch<T>(&self, samples: usize, work: impl FnOnce() -> T) -> T {
        let Some(times) = &self.0 else { return work() };
        let begin = Instant::now();
        let done = work();
        times.rank.trace("micro-batch", begin, Instant::now(), &[("samples", samples as f64)]);
        done
    }

    /// Ends a step and records it. `fill` adds the step's results to the record.
    pub(crate) fn end(&self, samples: usize, device: &Device, fill: impl FnOnce(&mut StepRecord)) {
        if let Some(times) = &self.0 {
            times.end(samples, device, fill);
        }
    }
}

impl StepTimes {
    fn marks(&self) -> MutexGuard<'_, Marks> {
        self.marks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn end(&self, samples: usize, device: &Device, fill: impl FnOnce(&mut StepRecord)) {
        let end = Instant::now();
        let number = self.rank.steps.fetch_add(1, std::sync::atomic::Ordering::Relaxed) + 1;
        let (marks, queries_pools) = self.pass_marks(end);
        let previous_end = self.rank.replace_end(marks.created, end);
        self.rank.trace(&format!("step {number}"), marks.begin, end, &[("samples", samples as f64)]);
        if let Some(tracer) = &self.rank.tracer {
            tracer.end_step(self.rank.rank, number);
        }
        let Some(recorder) = &self.rank.recorder else { return };
        let mut record = self.timed_record(number, previous_end, marks.begin, end);
        record.samples = samples as u64;
        fill(&mut record);
        if queries_pools {
            (record.in_use_bytes, record.reserved_bytes) = pool_usage(device);
        }
        recorder.record(Record::Step(Box::new(record)));
    }

    /// Returns the marks of this step, and true if it queries the memory pools.
    fn pass_marks(&self, end: Instant) -> (Marks, bool) {
        let mut marks = self.marks();
        let is_due = marks.pools.is_none_or(|queried| end - queried >= POOL_INTERVAL);
        if is_due {
            marks.pools = Some(end);
        }
        (*marks, is_due)
    }

    /// A record with the times of the step's phases.
    fn timed_record(&self, number: u64, previous_end: Instant, begin: Instant, end: Instant) -> StepRecord {
        let phase = |phase: Phase| self.phases[phase as usize].take();
        let seconds = |time: Duration| Some(time.as_secs_f64());
        let (loss, both_passes) = (phase(Phase::Loss), phase(Phase::LossAndBackward));
        let exchange = phase(Phase::Exchange);
        let loss_cpu_time = self.loss_cpu_time.take();
        let mut record = StepRecord::new(now(), number);
        record.rank = self.rank.rank;
        record.seconds = (end - previous_end).as_secs_f64();
        record.upload_s = seconds(phase(Phase::Upload));
        record.loss_s = seconds(loss + both_passes);
        record.loss_cpu_s = seconds(loss_cpu_time).filter(|_| cfg!(unix));
        let backward = phase(Phase::Backward) + phase(Phase::Accumulation);
        record.backward_s = seconds(backward).filter(|_| both_passes.is_zero());
        record.update_s = seconds(phase(Phase::Update));
        record.exchange_s = seconds(exchange).filter(|_| !exchange.is_zero());
        record.drain_s = seconds(phase(Phase::Drain));
        let waited = self.rank.loader.fill(&mut record);
        record.outside_s = seconds(begin.saturating_duration_since(previous_end).saturating_sub(waited));
        record
    }
}

/// Bytes in use and bytes reserved: of Burn's pools, or of the counting allocator on the CPU.
fn pool_usage(device: &Device) -> (Option<u64>, Option<u64>) {
    match device.memory_pool_usage() {
        Some(pools) => (Some(pools.bytes_in_use), Some(pools.bytes_reserved)),
        None => (counted_bytes(), None),
    }
}

#[cfg(feature = "counting-allocator")]
#[expect(clippy::unnecessary_wraps, reason = "the signature is that of the version that counts nothing")]
fn counted_bytes() -> Option<u64> {
    Some(crate::allocation::live_bytes() as u64)
}

#[cfg(not(feature = "counting-allocator"))]
const fn counted_bytes() -> Option<u64> {
    None
}
