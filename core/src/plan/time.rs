//! Time of an optimizer step in one mode.

use super::baseline::BaselineMeasurement;
use super::calibration;
use super::split::Split;
use crate::Provenance;
use crate::device::DeviceFacts;
use crate::measured::{Interpolation, Mode};
use crate::workload::Workload;

/// Predicted time of an optimizer step.
///
/// Measured micro-batches take as long as measured. Without measurements a roofline that was calibrated on an H200 is scaled
/// to the device by the ratio of published rates. Between the two, the roofline is corrected by its error at a measured
/// micro-batch.
pub(super) struct StepTime<'a> {
    pub roofline: Roofline,
    pub measured: Option<MeasuredTime<'a>>,
    /// Time without checkpointing, where the mode checkpoints: an estimate of recomputing is never faster.
    plain: Option<Box<Self>>,
}

/// Seconds by rates, and the fractions of them that training reaches.
pub(super) struct Roofline {
    /// Seconds of each micro-batch, whatever its size.
    pub launch: f64,
    /// Seconds of each sample.
    pub sample: f64,
    /// Seconds of the optimizer.
    pub optimizer: f64,
}

/// Measured seconds, and the roofline of the measured device.
pub(super) struct MeasuredTime<'a> {
    pub baseline: BaselineMeasurement<'a>,
    mode: Mode,
    pub micro_step: Interpolation,
    pub optimizer: f64,
    there: Roofline,
}

impl<'a> StepTime<'a> {
    pub(super) fn new(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Self {
        let measured = MeasuredTime::new(device, workload, mode);
        let plain = Mode { checkpointing: false, ..mode };
        let plain = (mode.checkpointing && measured.is_some()).then(|| Box::new(Self::new(device, workload, plain)));
        Self { roofline: Roofline::new(device, workload, mode), measured, plain }
    }

    /// Samples per second of one rank that splits its steps in this way.
    pub(super) fn samples_per_s(&self, split: Split) -> f64 {
        split.samples as f64 / (self.micro_steps(split) + self.optimizer())
    }

    /// Fraction of the time of the micro-batches in which the device computes at its highest measured rate, rather than
    /// waits for launches.
    pub(super) fn utilization(&self, split: Split) -> f64 {
        let sample = match &self.measured {
            Some(measured) => measured.micro_step.least_per_sample() * self.roofline.sample / measured.there.sample,
            None => self.roofline.sample,
        };
        (split.samples as f64 * sample / self.micro_steps(split)).min(1.0)
    }

    /// Provenance of the time of micro-batches of this size.
    pub(super) fn provenance(&self, batch: u64) -> Provenance {
        let provenance =
            |measured: &MeasuredTime<'_>| measured.baseline.provenance(measured.micro_step.has(batch), measured.mode);
        self.measured.as_ref().map_or(Provenance::Derived, provenance)
    }

    /// Largest leave-one-out underestimate of the measured times, where the time at this size is interpolated.
    pub(super) fn doubt(&self, batch: u64) -> f64 {
        let is_estimate = self.provenance(batch) == Provenance::Estimated;
        let measured = self.measured.as_ref().filter(|_| is_estimate);
        measured.and_then(|measured| measured.micro_step.largest_underestimate()).unwrap_or(0.0)
    }

    /// Describes where the times come from and their error elsewhere, when another device was measured.
    pub(super) fn transfer(&self, device: &DeviceFacts, workload: &Workload) -> Option<String> {
        let measured = self.measured.as_ref().filter(|measured| !measured.baseline.is_here())?;
        let name = measured.baseline.name;
        Some(match measured.worst_elsewhere(device, workload) {
            Some((other, error)) => {
                format!("times scaled from {name}, which miss {other} by {:.0}%", error * 100.0)
            }
            None => format!("times scaled from {name}, the only device measured"),
        })
    }

    /// Seconds of all micro-batches of a step.
    fn micro_steps(&self, Split { batch, samples }: Split) -> f64 {
        let rest = samples % batch;
        let rest = if rest == 0 { 0.0 } else { self.micro_step(rest) };
        (samples / batch) as f64 * self.micro_step(batch) + rest
    }

    /// Seconds of one micro-batch.
    pub(super) fn micro_step(&self, batch: u64) -> f64 {
        let here = self.roofline.micro_step(batch);
        let seconds = self.measured.as_ref().map_or(here, |measured| {
            // Below the measured sizes launches dominate, which lines do not predict.
            let known = measured.micro_step.first().max(batch);
            let seconds = measured.micro_step.at(known);
            let is_known = measured.is_exact() && known == batch;
            if is_known { seconds } else { seconds * here / measured.there.micro_step(known) }
        });
        let is_measured = |measured: &MeasuredTime<'_>| measured.is_exact() && measured.micro_step.has(batch);
        let plain = self.plain.as_ref().filter(|_| !self.measured.as_ref().is_some_and(is_measured));
        plain.map_or(seconds, |plain| seconds.max(plain.micro_step(batch)))
    }

    /// Seconds of the optimizer.
    pub(super) fn optimizer(&self) -> f64 {
        let here = self.roofline.optimizer;
        self.measured.as_ref().map_or(here, |measured| {
            if measured.is_exact() { measured.optimizer } else { measured.optimizer * here / measured.there.optimizer }
        })
    }
}

impl Roofline {
    fn new(device: &DeviceFacts, workload: &Workload, mode: Mode) -> Self {
        let Mode { precision, checkpointing, .. } = mode;
        let compute_s = workload.sample.flops / calibration::flops_per_s(device, workload, precision);
        let moved = workload.sample.activations.0 as f64 * precision.activation_scale() * calibration::ACTIVATION_TRIPS;
        let sample_s = compute_s.max(moved / calibration::sample_bandwidth(device));
        let slowdown = if checkpointing { calibration::CHECKPOINTING_SLOWDOWN } else { 1.0 };
        // Reads weights, gradients and state; writes weights and state.
        let (trained, state) = (workload.parameters.trained(), workload.parameters.state(workload.optimizer));
        let touched = (3.0 * trained as f64 + 2.0 * state as f64) * precision.parameter_bytes() as f64;
        Self {
            launch: workload.kernels as f64 * calibration::launch_s(device.kind) * slowdown,
            sample: sample_s * calibration::slowdown(device, mode) * slowdown,
            optimizer: touched / calibration::optimizer_bandwidth(device),
        }
    }

    fn micro_step(&self, batch: u64) -> f64 {
        self.launch + batch as f64 * self.sample
    }
}

impl<'a> MeasuredTime<'a> {
    fn new(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let baseline = BaselineMeasurement::for_time(device, workload, mode)?;
        let there = Roofline::new(&baseline.facts(device), workload, baseline.mode);
        let micro_step = baseline.micro_step()?;
        Some(Self { mode, micro_step, optimizer: baseline.optimizer().unwrap_or(there.optimizer), there, baseline })
    }

    fn is_exact(&self) -> bool {
        self.baseline.is_exact(self.mode)
    }

    /// The measured device at which these times err most, with the relative error.
    fn worst_elsewhere<'w>(&self, device: &DeviceFacts, workload: &'w Workload) -> Option<(&'w str, f64)> {
        let errors = self.baseline.others(workload).filter_map(|other| {
            let roofline = Roofline::new(&other.facts(device), workload, other.mode);
            let error = |(batch, seconds): (u64, f64)| {
                let there = self.there.micro_step(batch);
                (self.micro_step.at(batch) * roofline.micro_step(batch) / there / seconds - 1.0).abs()
            };
            Some((other.name, other.micro_steps().map(error).reduce(f64::max)?))
        });
        errors.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}
