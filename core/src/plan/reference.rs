//! What of a workload's measurements speaks for a device and a mode.

use std::collections::BTreeMap;

use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::select::MATTERS;
use crate::measured::{Curve, Measured, MeasuredMode, MeasuredOn, Mode, Point, Reserved, Way};
use crate::workload::Workload;
use crate::{Bytes, Provenance};

/// Measurements of one device in one mode.
#[derive(Clone, Copy)]
pub(super) struct Reference<'a> {
    /// The short name of the device that was measured.
    pub name: &'a str,
    pub on: &'a MeasuredOn,
    pub mode: Mode,
    pub measured: &'a MeasuredMode,
    /// Whether the device is one like it.
    is_here: bool,
}

impl<'a> Reference<'a> {
    /// All measurements on devices of the same kind.
    fn all(device: &'a DeviceFacts, workload: &'a Workload) -> impl Iterator<Item = Self> {
        let same_kind = workload.measured.on.iter().filter(|(_, on)| on.kind == device.kind);
        same_kind.flat_map(move |(name, on)| {
            let is_alike = on.is_of(name, device);
            on.mode.iter().map(move |(mode, measured)| {
                // What was replayed was never on any device, whatever it is called.
                let is_here = is_alike && measured.way != Way::Replayed;
                Self { name, on, mode: *mode, measured, is_here }
            })
        })
    }

    /// The measurements that say what memory the mode takes: the device's own, else another's, else what a GPU's memory
    /// manager made of the allocations of a CPU. Of several the one with about as much memory, whose points are where they
    /// matter.
    pub(super) fn for_memory(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let in_mode = Self::all(device, workload).filter(|reference| reference.mode == mode);
        in_mode.min_by_key(|reference| {
            let apart = reference.on.memory_bytes.0.abs_diff(device.memory_total.0);
            (!reference.is_here, reference.measured.way, apart)
        })
    }

    /// The measurements that say how long the mode takes: in this mode rather than another, on the device rather than one
    /// of about its speed. Precision counts for more than checkpointing.
    pub(super) fn for_time(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let timed = Self::all(device, workload).filter(|reference| reference.micro_steps().next().is_some());
        timed.min_by(|a, b| {
            let rank = |reference: &Self| {
                let measured = reference.mode;
                let other = (measured.full_f32 != mode.full_f32, measured.checkpointing != mode.checkpointing);
                (!reference.is_here, measured.precision != mode.precision, other)
            };
            rank(a).cmp(&rank(b)).then_with(|| a.distance(device).total_cmp(&b.distance(device)))
        })
    }

    /// Whether the device that was measured is one like this.
    pub(super) const fn is_here(&self) -> bool {
        self.is_here
    }

    /// Whether this is the device, in this mode.
    pub(super) fn is_exact(&self, mode: Mode) -> bool {
        self.is_here && self.mode == mode
    }

    /// Where the bytes come from, in words that follow `reserved`.
    pub(super) fn whence(&self) -> String {
        match self.measured.way {
            Way::Executed | Way::DryRun => format!("on {}", self.name),
            Way::Replayed => format!("as replayed for {}", Measured::replayed_for(self.name)),
        }
    }

    /// What a figure at a micro-batch is worth that comes from these measurements.
    pub(super) fn provenance(&self, is_point: bool, mode: Mode) -> Provenance {
        match (self.is_here, self.mode == mode && is_point) {
            (true, true) => Provenance::Measured,
            (true, false) => Provenance::Estimated,
            (false, _) => Provenance::Transferred,
        }
    }

    /// Bytes that the memory pools hold.
    pub(super) fn reserved(&self) -> Option<Reserved> {
        Reserved::of(self.measured)
    }

    /// Bytes more, or less, at each point where gradients are added up; where that was not measured, a set of `gradients`.
    pub(super) fn added_up(&self, gradients: Bytes) -> BTreeMap<u64, f64> {
        let more = |point: &Point| {
            let single = point.reserved_bytes?;
            let accumulating = point.reserved_accumulating_bytes.unwrap_or(single + gradients);
            Some(accumulating.0 as f64 - single.0 as f64)
        };
        self.measured.batch.iter().filter_map(|(batch, point)| Some((*batch, more(point)?))).collect()
    }

    /// Bytes in use after the forward pass.
    pub(super) fn in_use(&self) -> Option<Curve> {
        self.curve(|point| Some(point.in_use_bytes?.0 as f64))
    }

    /// Seconds of one micro-batch.
    pub(super) fn micro_step(&self) -> Option<Curve> {
        Curve::through(self.micro_steps())
    }

    /// Seconds of the optimizer: the middle one of the points, as it hardly depends on the micro-batch.
    pub(super) fn optimizer(&self) -> Option<f64> {
        let mut all: Vec<f64> = self.measured.batch.values().filter_map(|point| point.optimizer_ms).collect();
        all.sort_unstable_by(f64::total_cmp);
        all.get(all.len() / 2).map(|ms| ms / 1e3)
    }

    /// The most that was found above the line through this point, as a share, unless one is `known`; and what it is a share of
    /// where `reserved` is said.
    pub(super) fn residual(&self, known: Option<f64>, point: u64, reserved: Bytes) -> (f64, Bytes) {
        let own = known.or_else(|| self.measured.batch.get(&point)?.residual);
        let share = own.or(self.measured.residual).unwrap_or(UNKNOWN_RESIDUAL);
        match self.measured.way {
            Way::DryRun => (share, reserved.max(MATTERS)),
            Way::Executed | Way::Replayed => (share, reserved),
        }
    }

    /// By what share lines between the points' times were found to err.
    pub(super) fn time_residual(&self) -> f64 {
        self.measured.time_residual.unwrap_or(0.0)
    }

    /// The device that was measured, as far as speed goes.
    pub(super) fn facts(&self) -> DeviceFacts {
        let Self { on, .. } = self;
        DeviceFacts {
            name: on.device.clone(),
            profile: Some(self.name.to_owned()),
            kind: on.kind,
            memory_total: on.memory_bytes,
            memory_available: on.memory_bytes,
            memory_provenance: Provenance::Measured,
            context: on.context_bytes.unwrap_or_default(),
            sm_count: on.sm_count,
            has_tf32: true,
            has_bf16: true,
            fp32_tflops: on.fp32_tflops,
            bandwidth_gb_s: on.bandwidth_gb_s,
            host_cores: None,
        }
    }

    /// What was measured in the same mode on other devices of the same kind.
    pub(super) fn others<'w>(&self, workload: &'w Workload) -> impl Iterator<Item = Reference<'w>> {
        let (name, kind, mode) = (self.name, self.on.kind, self.mode);
        let others = workload.measured.on.iter().filter(move |(other, on)| *other != name && on.kind == kind);
        others.filter_map(move |(name, on)| {
            on.mode.get(&mode).map(|measured| Reference { name, on, mode, measured, is_here: false })
        })
    }

    pub(super) fn micro_steps(&self) -> impl Iterator<Item = (u64, f64)> {
        let points = self.measured.batch.iter();
        points.filter_map(|(batch, point)| Some((*batch, point.micro_step_ms? / 1e3)))
    }

    fn curve(&self, figure: impl Fn(&Point) -> Option<f64>) -> Option<Curve> {
        Curve::through(self.measured.batch.iter().filter_map(|(batch, point)| Some((*batch, figure(point)?))))
    }

    /// How far apart two devices are in peak rates: the sum of the logarithms of their ratios.
    fn distance(&self, device: &DeviceFacts) -> f64 {
        let ratio = |a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) if a > 0.0 && b > 0.0 => (a / b).ln().abs(),
            _ => UNKNOWN_DISTANCE,
        };
        ratio(self.on.fp32_tflops, device.fp32_tflops) + ratio(self.on.bandwidth_gb_s, device.bandwidth_gb_s)
    }
}

/// What a prediction is raised by where no error was recorded: one page of eight, as a transformer's pools jump on an H200.
/// Not measured as a bound; others jump further.
const UNKNOWN_RESIDUAL: f64 = 0.125;

/// A device whose peak is not known is further away than any that is.
const UNKNOWN_DISTANCE: f64 = 10.0;

/// What loaded kernels take, where it was measured: as much for each multiprocessor.
pub(super) fn kernels(device: &DeviceFacts, workload: &Workload) -> Option<Bytes> {
    if device.kind == DeviceKind::Cpu {
        return None;
    }
    let measured = workload.measured.on.iter().filter_map(|(name, on)| Some((name, on, on.kernels_bytes?)));
    let (_, on, bytes) = measured.min_by_key(|(name, on, _)| !on.is_of(name, device))?;
    Some(bytes.scaled(f64::from(device.sm_count) / f64::from(on.sm_count.max(1))))
}

/// What opening the device took, where it was measured on one like it.
pub(super) fn context(device: &DeviceFacts, workload: &Workload) -> Option<Bytes> {
    let mut here = workload.measured.on.iter().filter(|(name, on)| on.is_of(name, device));
    here.find_map(|(_, on)| on.context_bytes)
}

/// The micro-batches at which something was measured on devices of the same kind.
pub(super) fn batches<'a>(device: &'a DeviceFacts, workload: &'a Workload) -> impl Iterator<Item = u64> {
    Reference::all(device, workload).flat_map(|reference| reference.measured.batch.keys().copied())
}
