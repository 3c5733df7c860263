//! Measurements that a device and mode are planned from, and the memory that they predict.

use std::collections::BTreeSet;

use super::calibration::{ACCUMULATION_EXCESS, SMALL_PAGES};
use super::memory::{Formulas, MemoryEstimate, mib};
use crate::Precision::{self, Bf16Params, F32};
use crate::device::{DeviceFacts, DeviceKind, Rates};
use crate::measured::{Interpolation, Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::profile::ProfileTable;
use crate::workload::{Family, Workload};
use crate::{Bytes, Kernels, Provenance};

/// Distance of a device whose peak rate is unknown: farther than any known one.
const UNKNOWN_DISTANCE: f64 = 10.0;

/// Measurements of one device in one mode.
#[derive(Clone, Copy)]
pub(super) struct Baseline<'a> {
    /// Short name of the measured device.
    pub name: &'a str,
    pub on: &'a MeasuredOn,
    pub mode: Mode,
    pub measured: &'a MeasuredMode,
    /// True if the measured device is like the one that is planned for.
    pub is_here: bool,
}

impl<'a> Baseline<'a> {
    /// All measurements on devices of the same kind.
    fn all(device: &'a DeviceFacts, workload: &'a Workload) -> impl Iterator<Item = Self> {
        let same_kind = workload.measured.on.iter().filter(|(_, on)| on.kind == device.kind);
        same_kind.flat_map(move |(name, on)| {
            let is_alike = device.matches(name, on);
            on.mode.iter().map(move |(mode, measured)| {
                // A simulation never ran on the device, whatever its entry is called.
                let is_here = is_alike && measured.method != MeasurementMethod::Simulated;
                Self { name, on, mode: *mode, measured, is_here }
            })
        })
    }

    /// The measurements for the memory of a mode: the device's own, else another device's, else a simulation. Of
    /// several, those of the device with the most similar memory.
    pub(super) fn for_memory(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let in_mode = Self::all(device, workload).filter(|baseline| baseline.mode == mode);
        in_mode.min_by_key(|baseline| {
            let apart = baseline.on.memory_bytes.0.abs_diff(device.memory_total.0);
            (!baseline.is_here, baseline.measured.method, apart)
        })
    }

    /// The measurements for the time of a mode: of the device rather than another, in this mode rather than another, of
    /// the device with the most similar peak rates. Precision counts for more than checkpointing. Steps with other kernels
    /// are of no use: those of the library are up to 3.5 times as fast.
    pub(super) fn for_time(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let has_kernels = |baseline: &Self| baseline.mode.kernels == mode.kernels;
        let timed = Self::all(device, workload).filter(has_kernels);
        let timed = timed.filter(|baseline| baseline.micro_steps().next().is_some());
        timed.min_by(|a, b| {
            let rank = |baseline: &Self| {
                let measured = baseline.mode;
                let other = (measured.full_f32 != mode.full_f32, measured.checkpointing != mode.checkpointing);
                let graphs = measured.cuda_graphs != mode.cuda_graphs;
                (!baseline.is_here, measured.precision != mode.precision, other, graphs)
            };
            rank(a).cmp(&rank(b)).then_with(|| a.distance(device).total_cmp(&b.distance(device)))
        })
    }

    /// Returns true if this device was measured in this mode.
    pub(super) fn is_exact(&self, mode: Mode) -> bool {
        self.is_here && self.mode == mode
    }

    /// Provenance of a figure from these measurements, at a measured micro-batch or between them.
    pub(super) fn provenance(&self, is_measured: bool, mode: Mode) -> Provenance {
        match (self.is_here, self.mode == mode && is_measured) {
            (true, true) => Provenance::Measured,
            (true, false) => Provenance::Estimated,
            (false, _) => Provenance::Transferred,
        }
    }

    /// Bytes that the memory pools reserve in steps of one micro-batch.
    fn reserved(&self) -> Option<Interpolation> {
        self.interpolation(|batch| Some(batch.reserved_bytes?.0 as f64))
    }

    /// Seconds of one micro-batch.
    pub(super) fn micro_step(&self) -> Option<Interpolation> {
        Interpolation::new(self.micro_steps())
    }

    /// Seconds of the optimizer: the median over the micro-batches, as it hardly depends on them.
    pub(super) fn optimizer(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.measured.batch.values().filter_map(|batch| batch.optimizer_ms).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).map(|ms| ms / 1e3)
    }

    /// The planned device with the speed of the measured one. Rates are those of the measured device's shipped profile, or of
    /// the planned device if that is like it.
    pub(super) fn facts(&self, device: &DeviceFacts) -> DeviceFacts {
        let Self { on, .. } = self;
        let rates = if self.is_here { device.rates } else { shipped_rates(self.name, on) };
        DeviceFacts {
            has_tf32: true,
            has_bf16: true,
            has_f16: true,
            fp32_tflops: on.fp32_tflops,
            bandwidth_gb_s: on.bandwidth_gb_s,
            rates,
            host_cores: None,
            ..device.clone()
        }
    }

    /// Measurements in the same mode on other devices of the same kind.
    pub(super) fn others<'w>(&self, workload: &'w Workload) -> impl Iterator<Item = Baseline<'w>> + use<'a, 'w> {
        let (name, kind, mode) = (self.name, self.on.kind, self.mode);
        let others = workload.measured.on.iter().filter(move |(other, on)| *other != name && on.kind == kind);
        others.filter_map(move |(name, on)| {
            on.mode.get(&mode).map(|measured| Baseline { name, on, mode, measured, is_here: false })
        })
    }

    /// Micro-batches that were timed, with their seconds.
    pub(super) fn micro_steps(&self) -> impl Iterator<Item = (u64, f64)> {
        let batches = self.measured.batch.iter();
        batches.filter_map(|(size, batch)| Some((*size, batch.micro_step_ms? / 1e3)))
    }

    fn interpolation(&self, figure: impl Fn(&MeasuredBatch) -> Option<f64>) -> Option<Interpolation> {
        Interpolation::new(self.measured.batch.iter().filter_map(|(size, batch)| Some((*size, figure(batch)?))))
    }

    /// Difference of two devices in peak rates: the sum of the logarithms of their ratios.
    fn distance(&self, device: &DeviceFacts) -> f64 {
        let ratio = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) if a > 0.0 && b > 0.0 => (a / b).ln().abs(),
            _ => UNKNOWN_DISTANCE,
        };
        ratio(self.on.fp32_tflops, device.fp32_tflops) + ratio(self.on.bandwidth_gb_s, device.bandwidth_gb_s)
    }
}

/// Rates of a measured GPU that has a shipped profile, scaled to the measured share of the GPU.
fn shipped_rates(name: &str, on: &MeasuredOn) -> Rates {
    let Some(profile) = ProfileTable::shipped_profile(name) else { return Rates::default() };
    let share = match (on.sm_count, profile.compute.sm_count) {
        (measured, Some(whole)) if measured > 0 => (f64::from(measured) / f64::from(whole)).min(1.0),
        _ => 1.0,
    };
    Rates::from_profile(profile).scaled(share)
}

/// Measured bytes of loaded kernels, scaled by the number of multiprocessors, with the measured device.
pub(super) fn kernels<'a>(device: &DeviceFacts, workload: &'a Workload) -> Option<(Bytes, &'a str, &'a MeasuredOn)> {
    if device.kind == DeviceKind::Cpu {
        return None;
    }
    let measured = workload.measured.on.iter().filter_map(|(name, on)| Some((on.kernels_bytes?, name.as_str(), on)));
    let (bytes, name, on) = measured.min_by_key(|(_, name, on)| !device.matches(name, on))?;
    Some((bytes.scaled(f64::from(device.sm_count) / f64::from(on.sm_count.max(1))), name, on))
}

/// Bytes that opening the device took, where a device like it was measured.
pub(super) fn context(device: &DeviceFacts, workload: &Workload) -> Option<Bytes> {
    let mut here = workload.measured.on.iter().filter(|(name, on)| device.matches(name, on));
    here.find_map(|(_, on)| on.context_bytes)
}

/// Returns true if the memory of this mode was measured or simulated.
pub(super) fn has_memory(device: &DeviceFacts, workload: &Workload, mode: Mode) -> bool {
    Baseline::for_memory(device, workload, mode).is_some_and(|baseline| baseline.reserved().is_some())
}

/// Micro-batches that were measured on devices of the same kind.
pub(super) fn batches<'a>(device: &'a DeviceFacts, workload: &'a Workload) -> impl Iterator<Item = u64> {
    Baseline::all(device, workload).flat_map(|baseline| baseline.measured.batch.keys().copied())
}

/// Returns true if steps in this mode were timed on this device.
pub(super) fn is_timed_here(device: &DeviceFacts, workload: &Workload, mode: Mode) -> bool {
    Baseline::all(device, workload).any(|baseline| baseline.is_exact(mode) && baseline.micro_steps().next().is_some())
}

/// Kernels of the steps that were timed on this device in this precision.
pub(super) fn kernels_timed_here(device: &DeviceFacts, workload: &Workload, precision: Precision) -> Vec<Kernels> {
    let in_precision = |baseline: &Baseline<'_>| baseline.is_here && baseline.mode.precision == precision;
    let timed =
        Baseline::all(device, workload).filter(in_precision).filter(|found| found.micro_steps().next().is_some());
    let timed: BTreeSet<_> = timed.map(|baseline| baseline.mode.kernels).collect();
    timed.into_iter().collect()
}

/// Micro-batches that were measured on this device in this mode; `None` for a partial measurement.
pub(super) fn batches_here(device: &DeviceFacts, workload: &Workload, mode: Mode) -> Option<Vec<u64>> {
    let is_complete = |baseline: &Baseline<'_>| baseline.is_exact(mode) && !baseline.measured.is_partial;
    let mut exact = Baseline::all(device, workload).filter(is_complete);
    exact.next().map(|baseline| baseline.measured.batch.keys().copied().collect())
}

/// Bytes that the memory pools reserve in one mode, by the micro-batch.
pub(super) struct Pools<'a> {
    baseline: Baseline<'a>,
    mode: Mode,
    single: Interpolation,
    accumulating: Interpolation,
    /// Bytes that a single step of several ranks adds, because gradients are summed in fp32.
    widened: Bytes,
    in_use: Option<Interpolation>,
    /// Optimizer state that other ranks keep.
    elsewhere: Bytes,
    /// Relative error of a simulation; 0 where steps allocated on a device.
    simulation_margin: f64,
}

/// Bytes that the memory pools reserve in steps of one micro-batch size.
struct PoolUsage {
    bytes: Bytes,
    origin: Origin,
    /// Margin of an estimate as a fraction of the bytes.
    margin_share: f64,
}

/// Origin of the bytes at a micro-batch size.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Measured at this size.
    Measured,
    /// Measured at this size without sums of gradients, plus the sums.
    WithGradients,
    /// Interpolated between measured sizes.
    Interpolated,
    /// Extrapolated beyond the largest measured size.
    Extrapolated,
}

impl<'a> Pools<'a> {
    /// Selects the measurements for a mode without CUDA graphs; `None` where memory was not measured. Steps of one rank were
    /// measured: of several, a single step has `widened` bytes more, and other ranks keep the state `elsewhere`.
    pub(super) fn new(
        device: &'a DeviceFacts,
        workload: &'a Workload,
        mode: Mode,
        widened: Bytes,
        elsewhere: Bytes,
    ) -> Option<Self> {
        let baseline = Baseline::for_memory(device, workload, mode)?;
        let is_simulated = baseline.measured.method == MeasurementMethod::Simulated;
        let sums = Bytes(workload.parameters.trained()).times(Precision::SUM_BYTES);
        Some(Self {
            mode,
            single: baseline.reserved()?,
            // Where accumulation was not measured, it takes the sums of gradients more.
            accumulating: baseline.interpolation(|batch| {
                Some(batch.reserved_accumulating_bytes.unwrap_or(batch.reserved_bytes? + sums).0 as f64)
            })?,
            widened,
            in_use: baseline.interpolation(|batch| Some(batch.in_use_bytes?.0 as f64)),
            elsewhere,
            simulation_margin: if is_simulated { simulation_margin(workload.family, mode) } else { 0.0 },
            baseline,
        })
    }

    /// Returns the bytes at a micro-batch, which may be one of several in a step.
    fn usage(&self, batch: u64, accumulates: bool) -> PoolUsage {
        let reserved = if accumulates { &self.accumulating } else { &self.single };
        let measured = self.baseline.measured.batch.get(&batch).copied().unwrap_or_default();
        let widened = if accumulates { Bytes::ZERO } else { self.widened };
        let origin = match (measured.reserved_bytes, measured.reserved_accumulating_bytes) {
            (Some(_), None) if accumulates => Origin::WithGradients,
            (Some(_), _) if widened > Bytes::ZERO => Origin::WithGradients,
            (Some(_), _) => Origin::Measured,
            (None, _) if reserved.is_beyond(batch) => Origin::Extrapolated,
            (None, _) => Origin::Interpolated,
        };
        let most = if origin == Origin::WithGradients { ACCUMULATION_EXCESS } else { f64::INFINITY };
        PoolUsage {
            bytes: bytes(reserved.at(batch)) + widened,
            origin,
            margin_share: (1.0 + reserved.margin(batch).min(most)) * (1.0 + self.simulation_margin) - 1.0,
        }
    }

    /// Returns the bytes that the pools reserve at a micro-batch.
    pub(super) fn reserved(&self, batch: u64, accumulates: bool) -> Bytes {
        self.usage(batch, accumulates).bytes
    }

    /// Replaces activations, scratch and reserve of an estimate by dimensions by measurements. `input` is the input of one
    /// micro-batch, which the measured bytes already contain.
    pub(super) fn apply(
        &self,
        estimate: &mut MemoryEstimate,
        input: Bytes,
        accumulates: bool,
        formulas: &mut Formulas,
    ) {
        let usage = self.usage(estimate.batch, accumulates);
        let is_measured = usage.origin == Origin::Measured;
        let queue = estimate.inputs - input;
        let pools = usage.bytes - self.elsewhere + queue;
        let persistent = estimate.persistent();
        let known = persistent + estimate.gradients + estimate.accumulated_gradients + estimate.inputs;
        let reserved = || format!("reserved {}", usage.source(&self.baseline));
        let in_use = self.in_use.as_ref().map(|in_use| bytes(in_use.at(estimate.batch)) - self.elsewhere);
        let kept = in_use.map_or(estimate.activations, |in_use| in_use - persistent - input);
        let activations = kept.min(pools - known);
        formulas.add("activations", None, || match in_use {
            Some(in_use) if kept == activations => {
                let (in_use, lasting, input) = (mib(in_use), mib(persistent), mib(input));
                format!("{in_use} in use after the forward pass - {lasting} of the run - {input} of input")
            }
            _ => format!("{} {} - {} known", mib(pools), reserved(), mib(known)),
        });
        formulas.add("allocator reserve", None, || {
            format!("{} {} - {} above", mib(pools), reserved(), mib(known + activations))
        });
        let is_exact = self.baseline.is_exact(self.mode) && is_measured;
        let margin = if is_exact { Bytes::ZERO } else { usage.bytes.scaled(usage.margin_share) + SMALL_PAGES };
        formulas.add("margin", None, || {
            let (share, bytes, pages) = (usage.margin_share, mib(usage.bytes), mib(SMALL_PAGES));
            format!("{share:.6} x {bytes} {} + {pages} of small pages", reserved())
        });
        estimate.activations = activations;
        estimate.scratch = Bytes::ZERO;
        estimate.allocator = pools - known - activations;
        estimate.margin = margin;
        estimate.provenance = self.baseline.provenance(is_measured, self.mode);
    }
}

impl PoolUsage {
    /// Describes the measured or simulated device, and how the bytes follow from its figures.
    fn source(&self, Baseline { name, measured, .. }: &Baseline<'_>) -> String {
        let device = match measured.method {
            MeasurementMethod::Executed | MeasurementMethod::DryRun => format!("on {name}"),
            MeasurementMethod::Simulated => format!("as simulated for {}", Measured::simulated_profile(name)),
        };
        device
            + match self.origin {
                Origin::Measured => "",
                Origin::WithGradients => " plus sums of gradients",
                Origin::Extrapolated => ", extrapolated beyond the largest measured micro-batch",
                Origin::Interpolated => ", interpolated between measured micro-batches",
            }
    }
}

fn bytes(figure: f64) -> Bytes {
    Bytes(figure.ceil().max(0.0) as u64)
}

/// Memory that CUDA graphs add in one mode.
pub(super) struct RecordedStep<'a> {
    /// Measurements with CUDA graphs on this device.
    measured: Option<&'a MeasuredMode>,
}

impl<'a> RecordedStep<'a> {
    pub(super) fn new(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Self {
        let exact = Baseline::all(device, workload).find(|baseline| baseline.is_exact(mode));
        Self { measured: exact.map(|baseline| baseline.measured) }
    }

    /// Bytes that the memory pools reserved with CUDA graphs at this micro-batch, where that was measured.
    fn reserved(&self, batch: u64, accumulates: bool) -> Option<Bytes> {
        let batch = self.measured?.batch.get(&batch)?;
        if accumulates { batch.reserved_accumulating_bytes } else { batch.reserved_bytes }
    }

    /// Adds a recorded step to an estimate without one, for which the memory pools were measured to reserve `pools`.
    ///
    /// Without a measurement at this size, the recorded step is another set of all that lives for one step. Two copies of the
    /// parameters and of their gradients come on top, the second one in comparisons. Steps that were measured without the
    /// second copy took 0.7 to 0.9 of that.
    pub(super) fn add_to(
        &self,
        estimate: &mut MemoryEstimate,
        pools: Option<Bytes>,
        accumulates: bool,
        formulas: &mut Formulas,
    ) {
        if let Some((recorded, pools)) = self.reserved(estimate.batch, accumulates).zip(pools) {
            estimate.cuda_graph = recorded - pools;
            formulas.add("CUDA graph", Some(Provenance::Measured), || {
                let without = recorded - estimate.cuda_graph;
                format!("{} reserved with CUDA graphs - {} without", mib(recorded), mib(without))
            });
        } else {
            let (step, parameters) = (estimate.transient(), estimate.weights + estimate.gradients);
            estimate.cuda_graph = step + parameters.times(2);
            estimate.provenance = estimate.provenance.max(Provenance::Estimated);
            formulas.add("CUDA graph", Some(Provenance::Estimated), || {
                format!("{} of a step again + 2 x {} of parameters and gradients", mib(step), mib(parameters))
            });
        }
    }
}

/// 95th percentile of the error of simulated memory, as a fraction of the bytes that an H200 reserved; of two models of a
/// family the larger. Source: `tests/models/REPLAYED.md`, Burn 0.22.1.
pub(super) const SIMULATION_ERRORS: [(Family, Precision, bool, f64); 9] = [
    (Family::Transformer, F32, false, 0.110),
    (Family::Transformer, F32, true, 0.085),
    (Family::Transformer, Bf16Params, false, 0.072),
    (Family::Transformer, Bf16Params, true, 0.098),
    (Family::Convnet, F32, false, 0.163),
    (Family::Convnet, F32, true, 0.126),
    (Family::Convnet, Bf16Params, false, 0.072),
    (Family::Convnet, Bf16Params, true, 0.238),
    (Family::Recurrent, F32, false, 0.099),
];

/// The same error where gradients are accumulated under checkpointing. Source: `tests/models/REPLAYED.md`.
pub(super) const ACCUMULATING_CHECKPOINTED_ERROR: f64 = 0.269;

/// Returns the margin that makes simulated memory an upper bound, as a fraction of it.
///
/// A family or mode that was never compared with a GPU gets the largest error of all.
pub(super) fn simulation_margin(family: Family, mode: Mode) -> f64 {
    let Mode { precision, checkpointing, .. } = mode;
    let is_same = |row: &&(Family, Precision, bool, f64)| (row.0, row.1, row.2) == (family, precision, checkpointing);
    let largest = || SIMULATION_ERRORS.iter().map(|row| row.3).fold(0.0, f64::max);
    let single = SIMULATION_ERRORS.iter().find(is_same).map_or_else(largest, |row| row.3);
    let error = if checkpointing { ACCUMULATING_CHECKPOINTED_ERROR.max(single) } else { single };
    // The simulation may be too low by this error, relative to the real bytes.
    error / (1.0 - error)
}
