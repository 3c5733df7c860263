//! What memory pools hold, where it was measured.

use super::reference::Reference;
use super::{MemoryEstimate, calibration};
use crate::device::DeviceFacts;
use crate::measured::{Curve, Mode};
use crate::workload::Workload;
use crate::{Bytes, Goal};

/// Bytes that the memory pools hold in one mode, by the micro-batch.
pub(super) struct Pools<'a> {
    pub reference: Reference<'a>,
    mode: Mode,
    reserved: Curve,
    accumulating: Curve,
    pub in_use: Option<Curve>,
    /// What other ranks keep of the optimizer's state.
    pub elsewhere: Bytes,
}

impl<'a> Pools<'a> {
    /// What was measured, on the device or on one that tells of it.
    pub(super) fn of(device: &'a DeviceFacts, workload: &'a Workload, goal: &Goal, mode: Mode) -> Option<Self> {
        let reference = Reference::for_memory(device, workload, mode)?;
        let parameters = &workload.parameters;
        let each = mode.precision.parameter_bytes();
        let ranks = if goal.shard_optimizer { goal.world_size } else { 1 };
        let state = Bytes(parameters.state(workload.optimizer)).times(each);
        Some(Self {
            mode,
            reserved: reference.reserved()?,
            accumulating: reference.reserved_accumulating(Bytes(parameters.trained()).times(each))?,
            in_use: reference.in_use(),
            elsewhere: state - Bytes(state.0.div_ceil(ranks)),
            reference,
        })
    }

    /// The derived estimate with what was measured in the place of activations, scratch and reserve. `input` is that of
    /// one micro-batch, which the measured bytes hold already.
    pub(super) fn at(&self, derived: &MemoryEstimate, input: Bytes, accumulates: bool) -> MemoryEstimate {
        let batch = derived.batch;
        let curve = if accumulates { &self.accumulating } else { &self.reserved };
        let measured = Bytes(curve.at(batch).ceil() as u64);
        let queue = derived.inputs - input;
        let pools = measured - self.elsewhere + queue;
        let lasting = derived.weights + derived.frozen_weights + derived.weight_copies + derived.optimizer_state;
        let known = lasting + derived.gradients + derived.accumulated_gradients + derived.inputs;
        let kept = self.in_use.as_ref().map_or(derived.activations, |in_use| {
            let in_use = Bytes(in_use.at(batch).ceil() as u64) - self.elsewhere;
            in_use - lasting - input
        });
        let activations = kept.min(pools - known);
        let is_point = curve.has(batch);
        let margin = if self.reference.is_exact(self.mode) && is_point {
            Bytes::ZERO
        } else {
            let (share, of) = self.reference.residual(curve.point(batch), measured);
            of.scaled(share) + Bytes(curve.next_above(batch).ceil() as u64) + calibration::SMALL_PAGES
        };
        MemoryEstimate {
            activations,
            scratch: Bytes::ZERO,
            allocator: pools - known - activations,
            margin,
            provenance: self.reference.provenance(is_point, self.mode),
            ..derived.clone()
        }
    }
}
