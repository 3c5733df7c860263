//! Bytes that the memory pools reserve, by measurements.

use super::baseline::BaselineMeasurement;
use super::calibration::{ACCUMULATION_EXCESS, SMALL_PAGES};
use super::estimate::MemoryEstimate;
use super::memory::{gradient_bytes, optimizer_state};
use super::simulation;
use crate::device::DeviceFacts;
use crate::measured::{Interpolation, MeasurementMethod, Mode};
use crate::workload::Workload;
use crate::{Bytes, Goal, Precision};

/// Bytes that the memory pools reserve in one mode, by the micro-batch.
pub(super) struct Pools<'a> {
    pub baseline: BaselineMeasurement<'a>,
    mode: Mode,
    single: Interpolation,
    accumulating: Interpolation,
    /// Bytes that a single step of several ranks adds, because gradients are summed in fp32.
    widened: Bytes,
    pub in_use: Option<Interpolation>,
    /// Optimizer state that other ranks keep.
    pub elsewhere: Bytes,
    /// Relative error of a simulation; 0 where steps allocated on a device.
    simulation_margin: f64,
}

/// Bytes that the memory pools reserve in steps of one micro-batch size.
pub(super) struct PoolUsage {
    pub bytes: Bytes,
    pub origin: Origin,
    /// Margin of an estimate as a fraction of the bytes.
    pub margin_share: f64,
}

/// Origin of the bytes at a micro-batch size.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
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
    /// Selects the measurements for a device and mode; `None` where memory was not measured.
    pub(super) fn new(device: &'a DeviceFacts, workload: &'a Workload, goal: &Goal, mode: Mode) -> Option<Self> {
        let baseline = BaselineMeasurement::for_memory(device, workload, mode)?;
        let parameters = &workload.parameters;
        let each = mode.precision.parameter_bytes();
        let [own, state] = optimizer_state(workload, goal, each);
        let is_simulated = baseline.measured.method == MeasurementMethod::Simulated;
        let trained = Bytes(parameters.trained());
        // Steps of one rank were measured.
        let widened = trained.times(gradient_bytes(mode.precision, goal, false) - each);
        Some(Self {
            mode,
            single: baseline.reserved()?,
            widened,
            accumulating: baseline.reserved_accumulating(trained.times(Precision::SUM_BYTES))?,
            in_use: baseline.in_use(),
            elsewhere: state - own,
            simulation_margin: if is_simulated { simulation::margin(workload.family, mode) } else { 0.0 },
            baseline,
        })
    }

    /// Returns the bytes at a micro-batch, which may be one of several in a step.
    pub(super) fn usage(&self, batch: u64, accumulates: bool) -> PoolUsage {
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

    /// Replaces activations, scratch and reserve of a derived estimate by measurements. `input` is the input of one
    /// micro-batch, which the measured bytes already contain.
    pub(super) fn apply(&self, derived: &MemoryEstimate, input: Bytes, accumulates: bool) -> MemoryEstimate {
        let usage = self.usage(derived.batch, accumulates);
        let queue = derived.inputs - input;
        let pools = usage.bytes - self.elsewhere + queue;
        let persistent = derived.persistent();
        let known = persistent + derived.gradients + derived.accumulated_gradients + derived.inputs;
        let kept = self.in_use.as_ref().map_or(derived.activations, |in_use| {
            let in_use = bytes(in_use.at(derived.batch)) - self.elsewhere;
            in_use - persistent - input
        });
        let activations = kept.min(pools - known);
        let is_measured = usage.origin == Origin::Measured;
        let is_exact = self.baseline.is_exact(self.mode) && is_measured;
        MemoryEstimate {
            activations,
            scratch: Bytes::ZERO,
            allocator: pools - known - activations,
            margin: if is_exact { Bytes::ZERO } else { usage.margin() },
            provenance: self.baseline.provenance(is_measured, self.mode),
            ..derived.clone()
        }
    }
}

impl PoolUsage {
    /// Bytes by which an estimate is raised to be an upper bound.
    fn margin(&self) -> Bytes {
        self.bytes.scaled(self.margin_share) + SMALL_PAGES
    }
}

fn bytes(figure: f64) -> Bytes {
    Bytes(figure.ceil().max(0.0) as u64)
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;
