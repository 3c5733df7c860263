//! What memory pools hold, where it was measured.

use std::collections::BTreeMap;

use super::reference::Reference;
use super::{MemoryEstimate, calibration};
use crate::device::DeviceFacts;
use crate::measured::{Curve, InPages, Mode, Reserved};
use crate::workload::Workload;
use crate::{Bytes, Goal};

/// Bytes that the memory pools hold in one mode, by the micro-batch.
pub(super) struct Pools<'a> {
    pub reference: Reference<'a>,
    mode: Mode,
    reserved: Reserved,
    added_up: AddedUp,
    pub in_use: Option<Curve>,
    /// What other ranks keep of the optimizer's state.
    pub elsewhere: Bytes,
}

/// What the memory pools hold in steps of one micro-batch size.
pub(super) struct Held {
    pub bytes: Bytes,
    /// Whether it was measured at this micro-batch, and is no line's.
    pub is_point: bool,
    /// Whether this micro-batch is larger than every point.
    pub is_beyond: bool,
    /// The fewest pages and the most that are counted on, where the line is one of what these hold.
    pub pages: Option<[InPages; 2]>,
    pub margin: Margin,
}

/// What a line may say too little.
pub(super) struct Margin {
    /// The share that was found above it, and what it is one of.
    pub residual: (f64, Bytes),
    /// What pages take where there are as many as there may be.
    pub pages: Bytes,
    /// What the line of the next point says more, or what tells of micro-batches beside.
    pub next: Bytes,
    /// What adding gradients up took at the points beside, beyond what it usually takes.
    pub added_up: Bytes,
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
            added_up: AddedUp::of(reference.added_up(Bytes(parameters.trained()).times(each))),
            in_use: reference.in_use(),
            elsewhere: state - Bytes(state.0.div_ceil(ranks)),
            reference,
        })
    }

    /// What the pools hold with this micro-batch, one or several a step.
    pub(super) fn held(&self, batch: u64, accumulates: bool) -> Held {
        let is_point = self.reserved.has(batch);
        let point = self.reserved.point(batch);
        let more = match accumulates {
            false => 0.0,
            true if is_point => self.added_up.at(point),
            true => self.added_up.usual,
        };
        let bytes = bytes(self.reserved.at(batch) + more);
        let odd = if accumulates { self.added_up.beyond_usual(point, batch) } else { 0.0 };
        Held {
            bytes,
            is_point,
            is_beyond: self.reserved.is_beyond(batch),
            pages: self.reserved.pages(batch),
            margin: Margin {
                residual: self.reference.residual(self.reserved.residual(batch), point, bytes),
                pages: self::bytes(self.reserved.open(batch)),
                next: self::bytes(self.reserved.beside_above(batch)),
                added_up: self::bytes(odd),
            },
        }
    }

    /// The derived estimate with what was measured in the place of activations, scratch and reserve. `input` is that of
    /// one micro-batch, which the measured bytes hold already.
    pub(super) fn at(&self, derived: &MemoryEstimate, input: Bytes, accumulates: bool) -> MemoryEstimate {
        let held = self.held(derived.batch, accumulates);
        let queue = derived.inputs - input;
        let pools = held.bytes - self.elsewhere + queue;
        let lasting = derived.weights + derived.frozen_weights + derived.weight_copies + derived.optimizer_state;
        let known = lasting + derived.gradients + derived.accumulated_gradients + derived.inputs;
        let kept = self.in_use.as_ref().map_or(derived.activations, |in_use| {
            let in_use = bytes(in_use.at(derived.batch)) - self.elsewhere;
            in_use - lasting - input
        });
        let activations = kept.min(pools - known);
        let is_measured = self.reference.is_exact(self.mode) && held.is_point;
        MemoryEstimate {
            activations,
            scratch: Bytes::ZERO,
            allocator: pools - known - activations,
            margin: if is_measured { Bytes::ZERO } else { held.margin.total() },
            provenance: self.reference.provenance(held.is_point, self.mode),
            ..derived.clone()
        }
    }
}

impl Margin {
    fn total(&self) -> Bytes {
        let (share, of) = self.residual;
        of.scaled(share) + self.pages + self.next + self.added_up + calibration::SMALL_PAGES
    }
}

/// Bytes more, or less, where gradients are added up. At most micro-batches it is a set of gradients or nothing, where pages
/// have room for one; at some it is a page more or one less, which tells nothing of those beside.
struct AddedUp {
    /// By the points.
    at: BTreeMap<u64, f64>,
    /// The median.
    usual: f64,
}

impl AddedUp {
    fn of(at: BTreeMap<u64, f64>) -> Self {
        let mut all: Vec<f64> = at.values().copied().collect();
        all.sort_unstable_by(f64::total_cmp);
        let middle = |index: usize| all.get(index).copied().unwrap_or(0.0);
        let usual = f64::midpoint(middle(all.len().saturating_sub(1) / 2), middle(all.len() / 2));
        Self { at, usual }
    }

    fn at(&self, point: u64) -> f64 {
        self.at.get(&point).copied().unwrap_or(self.usual)
    }

    /// What it took more than usual at the point whose line passes a micro-batch, and, beyond it, at the next one.
    fn beyond_usual(&self, point: u64, batch: u64) -> f64 {
        let next = self.at.range(point + 1..).map(|(_, more)| *more).next().filter(|_| batch > point);
        (self.at(point).max(next.unwrap_or(f64::MIN)) - self.usual).max(0.0)
    }
}

fn bytes(figure: f64) -> Bytes {
    Bytes(figure.ceil().max(0.0) as u64)
}

#[cfg(test)]
#[path = "pools_tests.rs"]
mod tests;
