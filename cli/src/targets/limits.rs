//! Limits of plans for one GPU.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::largest_piece;
use gpu_tuned_core::{Bytes, Goal, Provenance};
use serde::Serialize;

#[derive(Serialize)]
pub(super) struct Limits {
    /// Memory available to a new process.
    pub available: Bytes,
    pub provenance: Provenance,
    /// Default memory headroom, as a fraction.
    pub headroom_share: f64,
    pub headroom: Bytes,
    pub context: Bytes,
    pub training: Bytes,
    /// Largest tensor that can be allocated.
    pub largest_allocation: Option<Bytes>,
}

impl Limits {
    /// The planner's limits. A detected GPU has a smaller headroom.
    pub(super) fn of(facts: &DeviceFacts) -> Self {
        let kept = if facts.memory_provenance == Provenance::Measured { Goal::HEADROOM_KEPT } else { 1.0 };
        let headroom_share = Goal::default().memory_headroom * kept;
        let available = facts.memory_available;
        let headroom = available.scaled(headroom_share);
        Self {
            available,
            provenance: facts.memory_provenance,
            headroom_share,
            headroom,
            context: facts.context,
            training: available - headroom - facts.context,
            largest_allocation: largest_piece(facts),
        }
    }
}
