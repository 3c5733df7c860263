use super::calibration;
use crate::Precision;
use crate::device::DeviceFacts;
use crate::workload::Workload;

/// A roofline with derated peaks: what a step is predicted to take, for ranking only.
pub(super) struct StepTime {
    /// Seconds of each micro-batch, whatever its size.
    pub launch: f64,
    /// Seconds of each sample.
    pub sample: f64,
    /// Seconds of the optimizer.
    pub optimizer: f64,
}

impl StepTime {
    pub(super) fn of(device: &DeviceFacts, workload: &Workload, precision: Precision, checkpointing: bool) -> Self {
        let bandwidth = calibration::bandwidth(device);
        let compute_s = workload.sample.flops / calibration::flops_per_s(device, workload.family, precision);
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

    /// Samples per second of optimizer steps of `samples`, in `micro_steps` micro-batches.
    pub(super) fn samples_per_s(&self, samples: u64, micro_steps: u64) -> f64 {
        let samples = samples as f64;
        samples / (micro_steps as f64 * self.launch + samples * self.sample + self.optimizer)
    }

    /// Share of the time of `micro_steps` micro-batches, `samples` in all, in which the device computes rather than waits
    /// for launches.
    pub(super) fn utilization(&self, samples: u64, micro_steps: u64) -> f64 {
        let computing = samples as f64 * self.sample;
        computing / (computing + micro_steps as f64 * self.launch)
    }
}
