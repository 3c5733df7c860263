use super::calibration;
use super::reference::Reference;
use super::split::Split;
use crate::Provenance;
use crate::device::DeviceFacts;
use crate::measured::{Curve, Mode};
use crate::workload::Workload;

/// What an optimizer step is predicted to take: as long as measured, where it was; else a roofline with derated peaks, for
/// ranking only; between the two, a roofline corrected by what it missed where something was measured.
pub(super) struct StepTime<'a> {
    pub roofline: Roofline,
    pub measured: Option<Measured<'a>>,
    /// The same without checkpointing, where the mode checkpoints and was not measured here: recomputing takes no less,
    /// whatever the points say that both are carried over from.
    plain: Option<Box<Self>>,
}

/// Seconds by peaks and their share that training reaches.
pub(super) struct Roofline {
    /// Of each micro-batch, whatever its size.
    pub launch: f64,
    /// Of each sample.
    pub sample: f64,
    /// Of the optimizer.
    pub optimizer: f64,
}

/// Seconds that were measured, and what the roofline says of there.
pub(super) struct Measured<'a> {
    pub reference: Reference<'a>,
    mode: Mode,
    pub micro_step: Curve,
    pub optimizer: f64,
    there: Roofline,
}

impl<'a> StepTime<'a> {
    pub(super) fn of(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Self {
        let measured = Measured::of(device, workload, mode);
        let is_carried_over = measured.as_ref().is_some_and(|measured| !measured.is_exact());
        let plain = Mode { checkpointing: false, ..mode };
        let plain = (mode.checkpointing && is_carried_over).then(|| Box::new(Self::of(device, workload, plain)));
        Self { roofline: Roofline::of(device, workload, mode), measured, plain }
    }

    /// Samples per second of one rank that cuts its steps in this way.
    pub(super) fn samples_per_s(&self, split: Split) -> f64 {
        split.samples as f64 / (self.micro_steps(split) + self.optimizer())
    }

    /// Share of the time of the micro-batches in which the device computes as fast as it ever does, rather than waits for
    /// launches.
    pub(super) fn utilization(&self, split: Split) -> f64 {
        let sample = match &self.measured {
            Some(measured) => measured.micro_step.least_per_sample() * self.roofline.sample / measured.there.sample,
            None => self.roofline.sample,
        };
        (split.samples as f64 * sample / self.micro_steps(split)).min(1.0)
    }

    /// What stands behind the time of micro-batches of this size.
    pub(super) fn provenance(&self, batch: u64) -> Provenance {
        let of = |measured: &Measured| measured.reference.provenance(measured.micro_step.has(batch), measured.mode);
        self.measured.as_ref().map_or(Provenance::Derived, of)
    }

    /// By what share the time of micro-batches of this size was found to err, if it is an estimate between measured ones.
    pub(super) fn doubt(&self, batch: u64) -> f64 {
        let is_estimate = self.provenance(batch) == Provenance::Estimated;
        self.measured.as_ref().filter(|_| is_estimate).map_or(0.0, |measured| measured.reference.time_residual())
    }

    /// In words where the times come from and how far off they were elsewhere, when another device was measured.
    pub(super) fn transfer(&self, workload: &Workload) -> Option<String> {
        let measured = self.measured.as_ref().filter(|measured| !measured.reference.is_here())?;
        let name = measured.reference.name;
        Some(match measured.worst_elsewhere(workload) {
            Some((other, error)) => {
                format!("times carried over from {name}, which miss {other} by {:.0}%", error * 100.0)
            }
            None => format!("times carried over from {name}, the only device measured"),
        })
    }

    /// Seconds of all micro-batches of a step.
    fn micro_steps(&self, Split { batch, samples }: Split) -> f64 {
        let rest = samples % batch;
        let rest = if rest == 0 { 0.0 } else { self.micro_step(rest) };
        (samples / batch) as f64 * self.micro_step(batch) + rest
    }

    pub(super) fn micro_step(&self, batch: u64) -> f64 {
        let here = self.roofline.micro_step(batch);
        let seconds = self.measured.as_ref().map_or(here, |measured| {
            // Below what was measured launches count, and lines know nothing of them.
            let known = measured.micro_step.first().max(batch);
            let seconds = measured.micro_step.at(known);
            let is_known = measured.is_exact() && known == batch;
            if is_known { seconds } else { seconds * here / measured.there.micro_step(known) }
        });
        self.plain.as_ref().map_or(seconds, |plain| seconds.max(plain.micro_step(batch)))
    }

    pub(super) fn optimizer(&self) -> f64 {
        let here = self.roofline.optimizer;
        self.measured.as_ref().map_or(here, |measured| {
            if measured.is_exact() { measured.optimizer } else { measured.optimizer * here / measured.there.optimizer }
        })
    }
}

impl Roofline {
    fn of(device: &DeviceFacts, workload: &Workload, mode: Mode) -> Self {
        let Mode { precision, checkpointing, .. } = mode;
        let bandwidth = calibration::bandwidth(device);
        let compute_s = workload.sample.flops / calibration::flops_per_s(device, workload, precision);
        let moved = workload.sample.activations.0 as f64 * precision.activation_scale() * calibration::ACTIVATION_TRIPS;
        let slowdown = if checkpointing { calibration::CHECKPOINTING_SLOWDOWN } else { 1.0 };
        // Reads weights, gradients and state; writes weights and state.
        let (trained, state) = (workload.parameters.trained(), workload.parameters.state(workload.optimizer));
        let touched = (3.0 * trained as f64 + 2.0 * state as f64) * precision.parameter_bytes() as f64;
        Self {
            launch: workload.kernels as f64 * calibration::launch_s(device.kind) * slowdown,
            sample: compute_s.max(moved / bandwidth) * slowdown,
            optimizer: touched / bandwidth,
        }
    }

    fn micro_step(&self, batch: u64) -> f64 {
        self.launch + batch as f64 * self.sample
    }
}

impl<'a> Measured<'a> {
    fn of(device: &'a DeviceFacts, workload: &'a Workload, mode: Mode) -> Option<Self> {
        let reference = Reference::for_time(device, workload, mode)?;
        let there = Roofline::of(&reference.facts(), workload, reference.mode);
        let micro_step = reference.micro_step()?;
        Some(Self { mode, micro_step, optimizer: reference.optimizer().unwrap_or(there.optimizer), there, reference })
    }

    fn is_exact(&self) -> bool {
        self.reference.is_exact(self.mode)
    }

    /// The measured device that these times tell least of, and the largest error there.
    fn worst_elsewhere<'w>(&self, workload: &'w Workload) -> Option<(&'w str, f64)> {
        let errors = self.reference.others(workload).filter_map(|other| {
            let roofline = Roofline::of(&other.facts(), workload, other.mode);
            let error = |(batch, seconds): (u64, f64)| {
                let there = self.there.micro_step(batch);
                (self.micro_step.at(batch) * roofline.micro_step(batch) / there / seconds - 1.0).abs()
            };
            Some((other.name, other.micro_steps().map(error).reduce(f64::max)?))
        });
        errors.max_by(|a, b| a.1.total_cmp(&b.1))
    }
}
