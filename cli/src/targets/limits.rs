//! What a plan has to keep to.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::largest_piece;
use gpu_tuned_core::{Bytes, Goal, Provenance};
use serde::Serialize;

/// What a plan has to keep to on one GPU.
#[derive(Serialize)]
pub(super) struct Limits {
    /// Memory that a new process could take.
    pub available: Bytes,
    /// Whether that was read off the GPU.
    pub provenance: Provenance,
    /// The share of it that is left alone, where no goal says otherwise.
    pub headroom_share: f64,
    /// The same in bytes.
    pub headroom: Bytes,
    /// What opening the GPU takes.
    pub context: Bytes,
    /// What is left for the training itself.
    pub training: Bytes,
    /// The largest tensor that can be allocated.
    pub largest_allocation: Option<Bytes>,
}

impl Limits {
    /// The limits as the planner takes them: of a GPU that was looked at, less is left alone.
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
