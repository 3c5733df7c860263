//! Selection of the measurements that a device and mode are planned from.

use crate::device::{DeviceFacts, DeviceKind, Rates};
use crate::measured::{Interpolation, Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::profile::ProfileTable;
use crate::workload::Workload;
use crate::{Bytes, Provenance};

/// Distance of a device whose peak rate is unknown: farther than any known one.
const UNKNOWN_DISTANCE: f64 = 10.0;

/// Measurements of one device in one mode.
#[derive(Clone, Copy)]
pub(super) struct BaselineMeasurement<'a> {
    /// Short name of the measured device.
    pub name: &'a str,
    pub on: &'a MeasuredOn,
    pub mode: Mode,
    pub measured: &'a MeasuredMode,
    /// True if the measured device is like the one that is planned for.
    is_here: bool,
}

impl<'a> BaselineMeasurement<'a> {
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
    /// the device with the most similar peak rates. Precision counts for more than checkpointing.
    pub(super) fn for_time(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let timed = Self::all(device, workload).filter(|baseline| baseline.micro_steps().next().is_some());
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

    /// Returns true if the measured device is like the planned one.
    pub(super) const fn is_here(&self) -> bool {
        self.is_here
    }

    /// Returns true if this device was measured in this mode.
    pub(super) fn is_exact(&self, mode: Mode) -> bool {
        self.is_here && self.mode == mode
    }

    /// Source of the bytes, in words that follow `reserved`.
    pub(super) fn source(&self) -> String {
        match self.measured.method {
            MeasurementMethod::Executed | MeasurementMethod::DryRun => format!("on {}", self.name),
            MeasurementMethod::Simulated => format!("as simulated for {}", Measured::simulated_profile(self.name)),
        }
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
    pub(super) fn reserved(&self) -> Option<Interpolation> {
        self.interpolation(|batch| Some(batch.reserved_bytes?.0 as f64))
    }

    /// Bytes that the memory pools reserve where gradients are accumulated; where that was not measured, the
    /// `sums` of gradients more than in steps of one micro-batch.
    pub(super) fn reserved_accumulating(&self, sums: Bytes) -> Option<Interpolation> {
        self.interpolation(|batch| {
            let single = batch.reserved_bytes?;
            Some(batch.reserved_accumulating_bytes.unwrap_or(single + sums).0 as f64)
        })
    }

    /// Bytes in use after the forward pass.
    pub(super) fn in_use(&self) -> Option<Interpolation> {
        self.interpolation(|batch| Some(batch.in_use_bytes?.0 as f64))
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

    /// The measured device, as far as speed is concerned. Its rates are those of its shipped profile, or of the planned
    /// device if that is like it.
    pub(super) fn facts(&self, device: &DeviceFacts) -> DeviceFacts {
        let Self { on, .. } = self;
        let rates = if self.is_here { device.rates } else { shipped_rates(self.name, on) };
        DeviceFacts {
            name: on.device.clone(),
            profile: Some(self.name.to_owned()),
            kind: on.kind,
            memory_kind: device.memory_kind,
            refusal: None,
            memory_total: on.memory_bytes,
            memory_available: on.memory_bytes,
            memory_provenance: Provenance::Measured,
            context: on.context_bytes.unwrap_or_default(),
            sm_count: on.sm_count,
            has_tf32: true,
            has_bf16: true,
            has_f16: true,
            fp32_tflops: on.fp32_tflops,
            bandwidth_gb_s: on.bandwidth_gb_s,
            rates,
            power: None,
            estimated: Vec::new(),
            host_cores: None,
        }
    }

    /// Measurements in the same mode on other devices of the same kind.
    pub(super) fn others<'w>(
        &self,
        workload: &'w Workload,
    ) -> impl Iterator<Item = BaselineMeasurement<'w>> + use<'a, 'w> {
        let (name, kind, mode) = (self.name, self.on.kind, self.mode);
        let others = workload.measured.on.iter().filter(move |(other, on)| *other != name && on.kind == kind);
        others.filter_map(move |(name, on)| {
            on.mode.get(&mode).map(|measured| BaselineMeasurement { name, on, mode, measured, is_here: false })
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

/// Bytes of loaded kernels, where they were measured, scaled by the number of multiprocessors.
pub(super) fn kernels(device: &DeviceFacts, workload: &Workload) -> Option<Bytes> {
    if device.kind == DeviceKind::Cpu {
        return None;
    }
    let measured = workload.measured.on.iter().filter_map(|(name, on)| Some((name, on, on.kernels_bytes?)));
    let (_, on, bytes) = measured.min_by_key(|(name, on, _)| !device.matches(name, on))?;
    Some(bytes.scaled(f64::from(device.sm_count) / f64::from(on.sm_count.max(1))))
}

/// Bytes that opening the device took, where a device like it was measured.
pub(super) fn context(device: &DeviceFacts, workload: &Workload) -> Option<Bytes> {
    let mut here = workload.measured.on.iter().filter(|(name, on)| device.matches(name, on));
    here.find_map(|(_, on)| on.context_bytes)
}

/// Measurements in exactly this mode on this device.
pub(super) fn measured_here<'a>(
    device: &'a DeviceFacts,
    workload: &'a Workload,
    mode: Mode,
) -> Option<&'a MeasuredMode> {
    BaselineMeasurement::all(device, workload)
        .find(|baseline| baseline.is_exact(mode))
        .map(|baseline| baseline.measured)
}

/// Micro-batches that were measured on devices of the same kind.
pub(super) fn batches<'a>(device: &'a DeviceFacts, workload: &'a Workload) -> impl Iterator<Item = u64> {
    BaselineMeasurement::all(device, workload).flat_map(|baseline| baseline.measured.batch.keys().copied())
}

/// Returns true if steps in this mode were timed on this device.
pub(super) fn is_timed_here(device: &DeviceFacts, workload: &Workload, mode: Mode) -> bool {
    BaselineMeasurement::all(device, workload)
        .any(|baseline| baseline.is_exact(mode) && baseline.micro_steps().next().is_some())
}

/// Micro-batches that were measured on this device in this mode; `None` for a partial measurement.
pub(super) fn batches_here(device: &DeviceFacts, workload: &Workload, mode: Mode) -> Option<Vec<u64>> {
    let is_complete = |baseline: &BaselineMeasurement<'_>| baseline.is_exact(mode) && !baseline.measured.is_partial;
    let mut exact = BaselineMeasurement::all(device, workload).filter(is_complete);
    exact.next().map(|baseline| baseline.measured.batch.keys().copied().collect())
}
