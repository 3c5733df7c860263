//! Measurements of micro-batches: their limits, their results, and how a CPU takes them.
//!
//! On the CPU, steps run, and their parts are timed one by one.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, MeasurementMethod, Mode, micro_batches};
use serde::{Deserialize, Serialize};

use super::report::Work;
use super::timed::timed;
use super::{MeasureError, Step, Subject, Times};

/// Model, device and limits of a measurement.
pub(super) struct Bench<'b, 'a, M, B> {
    /// The device, without autodiff.
    pub(super) device: &'b Device,
    pub(super) subject: &'b Subject<'a, M, B>,
    /// The precision, without checkpointing.
    pub(super) plain: Mode,
    /// Largest micro-batch: a rank's share of the global batch.
    pub(super) largest_batch: u64,
    /// A rank's share of the global batch, if there is one.
    pub(super) global: Option<u64>,
    /// Micro-batch to begin near: the planned one, or 1 if the description is of another model.
    #[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "CPUs try sizes in ascending order"))]
    pub(super) planned: u64,
    /// Time for all modes.
    pub(super) budget: &'b Budget,
    /// Called before steps that are taken for a figure.
    pub(super) begins: &'b dyn Fn(Work),
    /// Called after every try.
    pub(super) progress: &'b dyn Fn(Mode, &Tried),
}

/// Measurements of one micro-batch so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tried {
    pub(super) batch: u64,
    /// Memory of steps with one micro-batch; `None` where nothing counts it.
    pub(super) memory: Option<Memory>,
    /// Memory of steps that accumulate gradients.
    pub(super) accumulating: Option<Memory>,
    pub(super) times: Option<Times>,
    /// Bytes that executed steps reserved, with accumulated gradients.
    pub(super) ran: Option<Bytes>,
}

/// Micro-batches of a step that accumulates gradients; more of them take no more memory.
pub(super) const ACCUMULATING: usize = 2;

impl<M: Module, B: Clone> Bench<'_, '_, M, B> {
    pub(super) fn mode(&self, checkpointing: bool) -> Mode {
        Mode { checkpointing, ..self.plain }
    }
}

impl Step {
    pub(super) fn single(batch: u64, checkpointing: bool) -> Self {
        Self {
            batch: usize::try_from(batch).unwrap_or(usize::MAX),
            micro_batches: 1,
            checkpointing,
            cuda_graphs: false,
        }
    }

    pub(super) fn accumulating(batch: u64, checkpointing: bool) -> Self {
        Self { micro_batches: ACCUMULATING, ..Self::single(batch, checkpointing) }
    }
}

impl Tried {
    #[cfg(any(feature = "cuda", test))]
    pub(super) fn reserved(&self) -> Option<Bytes> {
        self.memory.map(|memory| memory.reserved_bytes)
    }

    /// Measurements as a lock stores them.
    pub(super) fn measured(&self) -> MeasuredBatch {
        let in_use_bytes = self.memory.and_then(|memory| memory.in_use_bytes);
        // The bytes in use are read in a further step, whose pages may be more than the steps before reserved.
        let reserved = |memory: Memory| memory.reserved_bytes.max(in_use_bytes.unwrap_or_default());
        let accumulating = self.accumulating.map(reserved);
        MeasuredBatch {
            reserved_bytes: self.memory.map(reserved),
            reserved_accumulating_bytes: accumulating.map(|bytes| bytes.max(self.ran.unwrap_or_default())),
            in_use_bytes,
            micro_step_ms: self.times.map(|times| times.micro_step_ms),
            optimizer_ms: self.times.map(|times| times.optimizer_ms),
            spread: self.times.map(|times| times.spread),
        }
    }
}

/// Memory that optimizer steps take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Most bytes that the device's memory pools reserve after any of the steps; on a CPU, the most that was allocated.
    pub reserved_bytes: Bytes,
    /// Bytes in use after the forward pass of a micro-batch, with the loss alive; `None` where they cannot be counted.
    pub in_use_bytes: Option<Bytes>,
}

/// Measures the memory of steps on the CPU; `None` without an allocator that counts.
#[cfg_attr(not(feature = "counting-allocator"), expect(clippy::unnecessary_wraps, reason = "the other version counts"))]
pub(super) fn counted<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Option<Memory>, MeasureError> {
    #[cfg(feature = "counting-allocator")]
    return held(device, subject, step).map(Some);
    #[cfg(not(feature = "counting-allocator"))]
    {
        let _ = (device, subject, step);
        Ok(None)
    }
}

/// The first step allocates the optimizer's state late, the second settles, the third is as all that follow.
#[cfg(feature = "counting-allocator")]
pub(super) const STEPS: usize = 3;

/// Runs steps on the CPU and counts what they allocate.
///
/// Nothing else may allocate much in the meantime: the allocator counts for the whole process.
///
/// # Errors
///
/// [`MeasureError::Step`] when the model panics.
#[cfg(feature = "counting-allocator")]
pub fn held<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Memory, MeasureError> {
    use gpu_tuned_train::allocation::{live_bytes, peak_bytes, restart_peak};

    super::isolated(step, || {
        let before = live_bytes();
        let mut training = super::training::Training::new(subject, step, device);
        for _ in 1..STEPS {
            training.step(step.micro_batches);
        }
        restart_peak();
        training.step(step.micro_batches);
        let peak = peak_bytes();
        let forward = training.after_forward(live_bytes);
        let since = |bytes: usize| Bytes(bytes.saturating_sub(before) as u64);
        Memory { reserved_bytes: since(peak), in_use_bytes: forward.map(since) }
    })
}

/// Limit without a request on a GPU, for all modes of a precision.
pub(super) const ON_A_GPU: Duration = Duration::from_mins(2);
/// Limit without a request on the CPU, for a mode.
pub(super) const MODE_ON_THE_CPU: Duration = Duration::from_secs(25);

/// Time of a measurement, counted by the clock from the first try, with compilation and autotune.
#[derive(Debug)]
pub(super) struct Budget {
    begin: OnceLock<Instant>,
    pub(super) whole: Duration,
}

impl Budget {
    pub(super) const fn new(whole: Duration) -> Self {
        Self { begin: OnceLock::new(), whole }
    }

    /// Begins, unless it has begun before.
    pub(super) fn begin(&self, now: Instant) {
        self.begin.get_or_init(|| now);
    }

    #[cfg(any(feature = "cuda", test))]
    pub(super) fn left(&self, now: Instant) -> Duration {
        self.whole.saturating_sub(self.spent(now))
    }

    fn spent(&self, now: Instant) -> Duration {
        self.begin.get().map_or(Duration::ZERO, |begin| now.saturating_duration_since(*begin))
    }
}

/// The time so far, of the whole time: `34 s of 120 s`.
impl fmt::Display for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0} s of {:.0} s", self.spent(Instant::now()).as_secs_f64(), self.whole.as_secs_f64())
    }
}

/// Time for the repeats of one micro-batch.
const SPEND: Duration = Duration::from_millis(700);
/// Largest micro-batch that is measured: beyond it a CPU's throughput hardly changes.
const LARGEST: u64 = 512;

/// Measures steps with or without checkpointing, and calls `keep` after every micro-batch.
pub(super) fn measure_on_cpu<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    checkpointing: bool,
    keep: &mut dyn FnMut(MeasuredMode) -> Result<(), MeasureError>,
) -> Result<(), MeasureError> {
    let begin = Instant::now();
    bench.budget.begin(begin);
    let modes = bench.subject.checkpointing().len() as u32;
    let budget = bench.budget.whole / modes;
    let mut batch = BTreeMap::new();
    let sizes = micro_batches(bench.largest_batch.min(LARGEST), bench.global);
    for (index, &size) in sizes.iter().enumerate() {
        let started = Instant::now();
        let tried = measured(bench, size, checkpointing)?;
        (bench.progress)(bench.mode(checkpointing), &tried);
        batch.insert(size, tried.measured());
        // A larger micro-batch takes at most as much longer as it is larger.
        let expected = |next: &u64| begin.elapsed() + started.elapsed() * next.div_ceil(size) as u32;
        let is_partial = sizes.get(index + 1).is_some_and(|next| expected(next) <= budget);
        keep(MeasuredMode { method: MeasurementMethod::Executed, is_partial, batch: batch.clone() })?;
        if !is_partial {
            break;
        }
    }
    Ok(())
}

fn measured<M: Module, B: Clone>(
    bench: &Bench<'_, '_, M, B>,
    batch: u64,
    checkpointing: bool,
) -> Result<Tried, MeasureError> {
    let &Bench { device, subject, .. } = bench;
    let single = Step::single(batch, checkpointing);
    (bench.begins)(Work::Time(single));
    // Times come first: threads keep scratch memory that they allocate once.
    let times = timed(device, subject, single, SPEND)?;
    (bench.begins)(Work::Memory(single));
    Ok(Tried {
        batch,
        memory: counted(device, subject, single)?,
        accumulating: counted(device, subject, Step::accumulating(batch, checkpointing))?,
        times: Some(times),
        ..Tried::default()
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use gpu_tuned_core::Bytes;

    use super::{Budget, Memory, Tried};

    #[test]
    fn bytes_in_use_are_reserved() {
        let memory = |reserved: u64, in_use: u64| Memory {
            reserved_bytes: Bytes::from_mib(reserved),
            in_use_bytes: Some(Bytes::from_mib(in_use)),
        };
        let tried = |memory, accumulating| Tried { batch: 8, memory, accumulating, ..Tried::default() };
        let point = tried(Some(memory(100, 110)), Some(memory(90, 0))).measured();
        assert_eq!([point.reserved_bytes, point.reserved_accumulating_bytes], [Some(Bytes::from_mib(110)); 2]);
        let point = tried(Some(memory(100, 80)), Some(memory(90, 0))).measured();
        let found = [point.reserved_bytes, point.reserved_accumulating_bytes, point.in_use_bytes];
        assert_eq!(found, [100, 90, 80].map(|mib| Some(Bytes::from_mib(mib))));
        assert_eq!(tried(None, None).measured().reserved_bytes, None);
        let ran = Tried { ran: Some(Bytes::from_mib(95)), ..tried(Some(memory(100, 80)), Some(memory(90, 0))) };
        assert_eq!(ran.measured().reserved_accumulating_bytes, Some(Bytes::from_mib(95)));
    }

    #[test]
    fn time_counts_from_the_begin() {
        let seconds = Duration::from_secs;
        let budget = Budget::new(seconds(120));
        let now = Instant::now() + seconds(1000);
        assert_eq!((budget.left(now), budget.to_string().as_str()), (seconds(120), "0 s of 120 s"));
        budget.begin(now);
        budget.begin(now + seconds(50));
        assert_eq!(budget.left(now + seconds(100)), seconds(20));
        assert_eq!(budget.left(now + seconds(200)), Duration::ZERO);
    }
}
