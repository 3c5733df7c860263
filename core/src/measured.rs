//! Measurements of a workload, the micro-batches to measure, and interpolation between measured ones.
//!
//! The planner chooses among the measured micro-batches of its device, and interpolates for all other sizes.
//! `gpu-tuned.lock` stores them.

use core::cmp::Reverse;
use core::fmt;
use core::str::FromStr;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::device::{DeviceFacts, Rates};
use crate::text::through_text;
use crate::{Bytes, Kernels, ParseError, Precision, Settings};

/// Measurements of one workload, on any number of devices.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Number of values that training changes.
    pub parameters: u64,
    /// Hash of the names and shapes of the model's parameters, in hexadecimal.
    pub shape: String,
    /// Milliseconds that one host core takes to prepare a sample; `None` when it was not measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host_ms_per_sample: Option<f64>,
    /// Devices by short name: a profile's name, or one derived from the driver's name.
    #[serde(default)]
    pub on: BTreeMap<String, MeasuredOn>,
}

/// The kind of device that trains.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeviceKind {
    /// A CUDA GPU.
    #[default]
    Gpu,
    /// The host's processor.
    Cpu,
}

/// Measurements on one device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredOn {
    /// The driver's name of the device; for simulated steps the device that they stand for.
    pub device: String,
    /// GPU or CPU.
    pub kind: DeviceKind,
    /// Total memory of the device.
    pub memory_bytes: Bytes,
    /// Streaming multiprocessors; 0 for a CPU.
    pub sm_count: u32,
    /// Peak f32 rate of the ordinary units, 10^12 operations per second. Times are scaled to other devices by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fp32_tflops: Option<f64>,
    /// Peak memory bandwidth, 10^9 bytes per second. Times are scaled to other devices by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bandwidth_gb_s: Option<f64>,
    /// Release of the driver; `None` for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<String>,
    /// Release of Burn that was measured.
    pub burn: String,
    /// Release of `CubeCL` that was measured, or whose memory manager was simulated; `None` for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cubecl: Option<String>,
    /// Bytes that opening the device took, before the first tensor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context_bytes: Option<Bytes>,
    /// Bytes that the process used beyond context and memory pools once all kernels were loaded, and none ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernels_bytes: Option<Bytes>,
    /// Measurements by precision and checkpointing.
    #[serde(default)]
    pub mode: BTreeMap<Mode, MeasuredMode>,
}

/// Measurements in one precision, with or without checkpointing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredMode {
    /// Method of measuring the memory.
    pub method: MeasurementMethod,
    /// True until all sizes that plans need were tried, as after an interruption or at the end of the time: other sizes
    /// may be better.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub is_partial: bool,
    /// Every measured micro-batch, by its number of samples.
    pub batch: BTreeMap<u64, MeasuredBatch>,
}

/// Methods of measuring memory; the most reliable first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MeasurementMethod {
    /// Steps ran on the device.
    #[default]
    Executed,
    /// Steps allocated on the GPU, and no kernel was executed.
    DryRun,
    /// Steps ran on a CPU, and their allocations went through a model of the GPU's memory manager.
    Simulated,
}

/// Measurements of optimizer steps with one micro-batch size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MeasuredBatch {
    /// Bytes that the device's memory pools reserve once further steps add nothing; on a CPU, the most that was
    /// allocated. `None` when memory was not measured, as on a CPU without the counting allocator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<Bytes>,
    /// [`reserved_bytes`](Self::reserved_bytes) of a step that accumulates the gradients of several micro-batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_accumulating_bytes: Option<Bytes>,
    /// Bytes in use after the forward pass, with the loss alive.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use_bytes: Option<Bytes>,
    /// Median milliseconds of the forward and backward pass of one micro-batch; `None` when no step ran.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub micro_step_ms: Option<f64>,
    /// Median milliseconds of the optimizer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub optimizer_ms: Option<f64>,
    /// Half of the range of the repeats of the whole step, as a fraction of their median.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub spread: Option<f64>,
}

impl Measured {
    /// Largest figure that a lock may contain; sums of larger ones would saturate.
    pub const LARGEST: u64 = 1 << 50;

    /// Returns true if nothing was measured.
    pub fn is_empty(&self) -> bool {
        self.on.is_empty() && self.host_ms_per_sample.is_none()
    }
}

impl DeviceFacts {
    /// Entry for measurements on this device with a release of Burn; without measurements yet.
    pub fn measured_on(&self, burn: impl Into<String>) -> MeasuredOn {
        MeasuredOn {
            device: self.name.clone(),
            kind: self.kind,
            memory_bytes: self.memory_total,
            sm_count: self.sm_count,
            fp32_tflops: self.fp32_tflops,
            bandwidth_gb_s: self.bandwidth_gb_s,
            burn: burn.into(),
            ..MeasuredOn::default()
        }
    }

    /// Returns true if measurements under this short name are of this device: the same profile or name, and the same
    /// number of multiprocessors, which a MIG slice does not have.
    pub(crate) fn matches(&self, name: &str, on: &MeasuredOn) -> bool {
        let named = self.profile.as_deref() == Some(name) || self.name == on.device;
        named && self.sm_count == on.sm_count
    }

    /// Returns true if a device like this one was measured.
    pub fn is_in(&self, measured: &Measured) -> bool {
        measured.on.iter().any(|(name, on)| self.matches(name, on))
    }

    /// The mode of a plan's settings on this device.
    pub fn mode(&self, settings: &Settings) -> Mode {
        let Settings { precision, gradient_checkpointing, allow_tf32, cuda_graphs, kernels, .. } = *settings;
        let library = kernels.is_library() && self.kind == DeviceKind::Gpu;
        self.mode_of(precision, gradient_checkpointing, allow_tf32).with_graphs(cuda_graphs).with_library(library)
    }

    /// The mode of a precision on this device, with Burn's kernels and without CUDA graphs.
    pub fn mode_of(&self, precision: Precision, checkpointing: bool, allow_tf32: bool) -> Mode {
        Mode::new(precision, checkpointing).with_full_f32(self.has_tf32 && !allow_tf32)
    }
}

impl Rates {
    /// Rate of a mode's matrix products.
    pub const fn product_rate(&self, mode: Mode) -> Option<f64> {
        use crate::Precision::{Bf16Params, F32, MixedBf16, MixedF16};
        match mode.precision {
            F32 if mode.full_f32 => self.fp32,
            F32 => self.tf32,
            MixedF16 => self.fp16,
            MixedBf16 | Bf16Params => self.bf16,
        }
    }
}

/// A way to run the step. Memory and time depend on the mode, the workload and the micro-batch.
///
/// In files and on command lines `f32`, with the suffixes `-checkpointed`, `-graphs` and `-library` in this order, or
/// `full_f32` in place of `f32` without TF32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode {
    /// Number formats.
    pub precision: Precision,
    /// True if activations are recomputed.
    pub checkpointing: bool,
    /// True if f32 products do not use the TF32 of the device. Their kernels differ, and so does their memory.
    pub full_f32: bool,
    /// True if micro-steps are replayed as CUDA graphs.
    pub cuda_graphs: bool,
    /// Kernels of the modules in `gpu_tuned::nn`.
    pub kernels: Kernels,
}

const CHECKPOINTED: &str = "-checkpointed";
const GRAPHS: &str = "-graphs";
const LIBRARY: &str = "-library";
const FULL_F32: &str = "full_f32";

impl Mode {
    /// A mode with TF32, where the device has it, with Burn's kernels and without CUDA graphs.
    pub const fn new(precision: Precision, checkpointing: bool) -> Self {
        Self { precision, checkpointing, full_f32: false, cuda_graphs: false, kernels: Kernels::Burn }
    }

    /// The mode with CUDA graphs, or without.
    #[must_use]
    pub const fn with_graphs(self, cuda_graphs: bool) -> Self {
        Self { cuda_graphs, ..self }
    }

    /// The mode with kernels of the library, or with Burn's.
    #[must_use]
    pub const fn with_library(self, library: bool) -> Self {
        Self { kernels: Kernels::switched(library), ..self }
    }

    /// The mode with full f32 products in place of the device's TF32; only f32 has such products.
    #[must_use]
    pub fn with_full_f32(self, full_f32: bool) -> Self {
        Self { full_f32: full_f32 && self.precision == Precision::F32, ..self }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let formats = if self.full_f32 { FULL_F32 } else { self.precision.name() };
        let checkpointed = if self.checkpointing { CHECKPOINTED } else { "" };
        let graphs = if self.cuda_graphs { GRAPHS } else { "" };
        let library = if self.kernels.is_library() { LIBRARY } else { "" };
        write!(f, "{formats}{checkpointed}{graphs}{library}")
    }
}

impl FromStr for Mode {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let without = |text, suffix| str::strip_suffix(text, suffix).map_or((text, false), |rest| (rest, true));
        let (rest, library) = without(text, LIBRARY);
        let (rest, cuda_graphs) = without(rest, GRAPHS);
        let (precision, checkpointing) = without(rest, CHECKPOINTED);
        let full_f32 = precision == FULL_F32;
        let precision = if full_f32 { Ok(Precision::F32) } else { precision.parse() };
        let precision = precision.map_err(|_| {
            ParseError(format!(
                "unknown mode `{text}`, expected a precision, such as `f32`, or one with checkpointing, CUDA graphs or the \
                 library's kernels, such as `f32-checkpointed`, `f32-graphs` or `f32-library`"
            ))
        })?;
        let mode = Self::new(precision, checkpointing).with_graphs(cuda_graphs).with_library(library);
        Ok(Self { full_f32, ..mode })
    }
}

through_text!(Mode);

/// Prefix of such entries' names. A measurement on the GPU itself has the GPU's own name, so the two never collide.
const PREFIX: &str = "simulated-";

impl MeasuredOn {
    /// Returns true if steps were simulated for the device, rather than run on it.
    pub fn is_simulated(&self) -> bool {
        self.mode.values().any(|mode| mode.method == MeasurementMethod::Simulated)
    }
}

impl Measured {
    /// Name of the entry for steps that were simulated for the GPU of a profile.
    pub fn simulated_name(profile: &str) -> String {
        format!("{PREFIX}{profile}")
    }

    /// Profile that an entry of this name was simulated for.
    pub fn simulated_profile(name: &str) -> &str {
        name.strip_prefix(PREFIX).unwrap_or(name)
    }

    /// Describes the devices: `measured on cpu-2-cores, memory simulated for rtx4090`; `None` without any.
    pub fn describe(&self) -> Option<String> {
        let names = |is_simulated: bool| {
            let those = self.on.iter().filter(move |(_, on)| on.is_simulated() == is_simulated);
            those.map(|(name, _)| name.as_str())
        };
        let (run, simulated) = (names(false), names(true).map(Self::simulated_profile));
        let parts = [("measured on", run.collect::<Vec<_>>()), ("memory simulated for", simulated.collect())];
        let parts = parts.into_iter().filter(|(_, names)| !names.is_empty());
        let parts: Vec<_> = parts.map(|(how, names)| format!("{how} {}", names.join(", "))).collect();
        (!parts.is_empty()).then(|| parts.join(", "))
    }
}

/// Most micro-batches that are measured in a mode.
pub const MOST_MICRO_BATCHES: usize = 12;

/// Largest micro-batch where no global batch asks for one: throughput hardly grows beyond it.
const LARGEST_FREE: u64 = 2048;

/// Neighbours farther apart than this ratio get a size between them that need not divide the step.
const WIDE: f64 = 2.25;

/// Returns the micro-batches to measure, ascending, from 1 to `largest`.
///
/// The sizes lie near powers of two, where throughput changes by less than a plan's tolerance from one to the next.
/// `samples` is a rank's share of the global batch: near a power of two its divisors are preferred, because they split
/// a step evenly. At most [`MOST_MICRO_BATCHES`] are returned. Few divisors without wide gaps are all returned. If sizes are
/// left over, they go into the widest gaps, the largest micro-batches first. Without `samples` no size exceeds 2048.
///
/// ```
/// use gpu_tuned_core::measured::micro_batches;
///
/// assert_eq!(micro_batches(360, Some(360)), [1, 2, 4, 8, 15, 30, 45, 60, 90, 120, 180, 360]);
/// assert_eq!(micro_batches(100, Some(512)), [1, 2, 4, 8, 16, 32, 64, 100]);
/// ```
pub fn micro_batches(largest: u64, samples: Option<u64>) -> Vec<u64> {
    let largest = samples.map_or(largest.min(LARGEST_FREE), |_| largest).max(1);
    let divisors = divisors(samples.unwrap_or(1), largest);
    let has_gap = divisors.windows(2).any(|pair| pair[1] as f64 > WIDE * pair[0] as f64);
    if divisors.len() <= MOST_MICRO_BATCHES && divisors.last() == Some(&largest) && !has_gap {
        return divisors;
    }
    let mut sizes: Vec<u64> = powers_of_two(largest).map(|power| nearest_divisor(power, &divisors)).collect();
    sizes.push(largest);
    sizes.sort_unstable();
    sizes.dedup();
    thin(&mut sizes);
    while sizes.len() < MOST_MICRO_BATCHES {
        let Some(size) = between_widest(&sizes, &divisors) else { break };
        sizes.insert(sizes.partition_point(|known| *known < size), size);
    }
    sizes
}

/// Divisors of `samples` up to `largest`, ascending.
fn divisors(samples: u64, largest: u64) -> Vec<u64> {
    let small = (1..=samples.isqrt()).filter(|divisor| samples.is_multiple_of(*divisor));
    let mut all: Vec<u64> = small.flat_map(|divisor| [divisor, samples / divisor]).collect();
    all.retain(|divisor| *divisor <= largest);
    all.sort_unstable();
    all.dedup();
    all
}

/// Powers of two that are at least half an octave below the largest size.
fn powers_of_two(largest: u64) -> impl Iterator<Item = u64> {
    (0..=largest.ilog2()).map(|exponent| 1 << exponent).filter(move |power| 2 * power * power <= largest * largest)
}

/// The divisor nearest to a power of two, if it is less than a third of an octave away; else the power of two.
fn nearest_divisor(power: u64, divisors: &[u64]) -> u64 {
    let distance = |divisor: u64| (divisor as f64 / power as f64).log2().abs();
    let near = divisors.iter().copied().filter(|divisor| distance(*divisor) < 1.0 / 3.0);
    near.min_by(|a, b| distance(*a).total_cmp(&distance(*b))).unwrap_or(power)
}

/// Removes sizes until few enough are left: from the smallest on, those whose neighbours are nearest to each other.
fn thin(sizes: &mut Vec<u64>) {
    while sizes.len() > MOST_MICRO_BATCHES {
        let ratio = |at: usize| sizes[at + 1] as f64 / sizes[at - 1] as f64;
        let nearest = (1..sizes.len() - 1).min_by(|a, b| ratio(*a).total_cmp(&ratio(*b)));
        sizes.remove(nearest.expect("BUG: more than two sizes are left"));
    }
}

/// The size that splits the widest gap best: a divisor, or where the gap is wide, any size. `None` where no gap has one.
fn between_widest(sizes: &[u64], divisors: &[u64]) -> Option<u64> {
    let split = |pair: &[u64]| {
        let (low, high) = (pair[0], pair[1]);
        let ratio = high as f64 / low as f64;
        let middle = (low as f64 * high as f64).sqrt();
        let distance = |size: u64| (size as f64 / middle).ln().abs();
        let inside = divisors.iter().copied().filter(|size| low < *size && *size < high);
        // Rounding makes equal distances differ, and the larger size is preferred.
        let nearest = inside.min_by_key(|size| ((distance(*size) * 1e6).round() as u64, Reverse(*size)));
        let any = || (ratio > WIDE && high - low > 1).then(|| (middle.round() as u64).clamp(low + 1, high - 1));
        Some((ratio, nearest.or_else(any)?))
    };
    let gaps = sizes.windows(2).filter_map(split);
    gaps.max_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, size)| size)
}

/// Margin where fewer than two leave-one-out errors exist. A GPT with 50,000 words reserved 19% more at 52 samples than
/// the line between 40 and 56 predicts.
const UNKNOWN_MARGIN: f64 = 0.25;

/// Largest margin: about twice the largest excess over a line that was ever measured, 19%.
const LARGEST_MARGIN: f64 = 0.4;

/// Ratio of the neighbours of a measurement that is left out, where each is twice the one before.
const USUAL_GAP: f64 = 4.0;

/// A figure that was measured at some micro-batches, with straight lines between neighbours.
///
/// The line of the first two measurements extends below them, and the figure is at least the micro-batch's proportional
/// share of the first, and at most all of it. Beyond the last, the steeper of two lines extends: the one of the last two
/// measurements, and the one of the first and the last. Page counts jump, so the last two alone may even fall. With a
/// single measurement, larger micro-batches get their multiple of it, and smaller ones all of it.
#[derive(Clone, Debug)]
pub(crate) struct Interpolation {
    /// Ascending; at least one.
    measured: Vec<(u64, f64)>,
}

impl Interpolation {
    /// Interpolates between measurements in ascending order of the micro-batch; `None` without any.
    pub(crate) fn new(measured: impl IntoIterator<Item = (u64, f64)>) -> Option<Self> {
        let measured: Vec<_> = measured.into_iter().collect();
        (!measured.is_empty()).then_some(Self { measured })
    }

    /// Returns the figure at a micro-batch.
    pub(crate) fn at(&self, batch: u64) -> f64 {
        let [(low, figure), (high, other)] = self.neighbours(batch);
        let slope = if low == high { 0.0 } else { (other - figure) / (high as f64 - low as f64) };
        let (first, at_first) = self.measured[0];
        if batch < first {
            let share = at_first * batch as f64 / first as f64;
            return (at_first - (first - batch) as f64 * slope).clamp(share.min(at_first), at_first);
        }
        if low == high {
            return figure * batch as f64 / low as f64;
        }
        let (last, at_last) = self.last();
        if batch > last {
            let overall = (at_last - at_first) / (last - first) as f64;
            return at_last + (batch - last) as f64 * slope.max(overall).max(0.0);
        }
        figure + (batch - low) as f64 * slope
    }

    /// Returns true if the figure was measured at this micro-batch.
    pub(crate) fn has(&self, batch: u64) -> bool {
        self.measured.binary_search_by_key(&batch, |(known, _)| *known).is_ok()
    }

    /// Returns true if a micro-batch is larger than every measured one.
    pub(crate) fn is_beyond(&self, batch: u64) -> bool {
        batch > self.last().0
    }

    /// Smallest measured micro-batch.
    pub(crate) fn first(&self) -> u64 {
        self.measured[0].0
    }

    /// Smallest figure for one sample at any measured micro-batch.
    pub(crate) fn least_per_sample(&self) -> f64 {
        self.measured.iter().map(|(batch, figure)| figure / *batch as f64).fold(f64::INFINITY, f64::min)
    }

    /// Largest leave-one-out underestimate, as a fraction of the measured figure; `None` with fewer than three
    /// measurements.
    pub(crate) fn largest_underestimate(&self) -> Option<f64> {
        let errors = self.leave_one_out_errors();
        errors.map(|error| error / (1.0 + error)).reduce(f64::max).map(|largest| largest.max(0.0))
    }

    /// Returns the margin that turns [`at`](Self::at) into an upper bound, as a fraction of it.
    ///
    /// Each inner measurement is left out once and compared with the line between its neighbours. The range of these
    /// errors estimates by how much page counts move the figure. A sample of `n` values covers `(n - 1) / (n + 1)` of
    /// a uniform distribution's range on average, which the margin corrects. Gaps that are wider than those that the
    /// errors come from widen the margin, in proportion to the logarithm of the ratio.
    pub(crate) fn margin(&self, batch: u64) -> f64 {
        let errors: Vec<f64> = self.leave_one_out_errors().collect();
        let count = errors.len() as f64;
        let range =
            errors.iter().fold((0.0_f64, 0.0_f64), |(least, most), error| (least.min(*error), most.max(*error)));
        let share = if errors.len() < 2 { UNKNOWN_MARGIN } else { (range.1 - range.0) * (count + 1.0) / (count - 1.0) };
        let widest = self.measured.windows(3).map(|three| three[2].0 as f64 / three[0].0 as f64);
        let widening = self.gap(batch).log2() / widest.fold(USUAL_GAP, f64::max).log2();
        (share * widening.max(1.0)).min(LARGEST_MARGIN)
    }

    /// Measured over interpolated figure, less one, of each inner measurement when it is left out.
    fn leave_one_out_errors(&self) -> impl Iterator<Item = f64> {
        self.measured.windows(3).map(|three| {
            let [(low, below), (middle, figure), (high, above)] = [three[0], three[1], three[2]];
            let line = below + (above - below) * (middle - low) as f64 / (high - low) as f64;
            figure / line.max(f64::MIN_POSITIVE) - 1.0
        })
    }

    /// Ratio of the measured micro-batches around this one; beyond all of them, of this one and the nearest; 1 at a
    /// measured one.
    fn gap(&self, batch: u64) -> f64 {
        let ratio = |low: u64, high: u64| high as f64 / low as f64;
        let (first, last) = (self.first(), self.last().0);
        if batch < first {
            return ratio(batch.max(1), first);
        }
        if batch > last {
            return ratio(last, batch);
        }
        let [(low, _), (high, _)] = self.neighbours(batch);
        if low == batch || high == batch { 1.0 } else { ratio(low, high) }
    }

    /// The two measurements whose line covers a micro-batch; the same one twice where there is only one.
    fn neighbours(&self, batch: u64) -> [(u64, f64); 2] {
        let count = self.measured.len();
        let above = self.measured.partition_point(|(known, _)| *known <= batch).clamp(1, (count - 1).max(1));
        [self.measured[above - 1], self.measured[above.min(count - 1)]]
    }

    fn last(&self) -> (u64, f64) {
        self.measured[self.measured.len() - 1]
    }
}

#[cfg(test)]
mod tests;
