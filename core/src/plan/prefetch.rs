//! Number of input batches that are prepared ahead.

use crate::workload::Workload;
use crate::{Bytes, Goal};

/// Batches prepared ahead: one being uploaded while one waits.
pub(super) const PREFETCH_DEPTH: u64 = 2;

/// Returns the pinned depth, else as many batches as the goal's memory allows, at most [`PREFETCH_DEPTH`].
pub(super) fn depth(workload: &Workload, goal: &Goal, batch: u64) -> u64 {
    if let Some(fixed) = goal.pins.prefetch_depth {
        return fixed;
    }
    let bytes = workload.sample.input.unwrap_or_default().times(batch);
    let budget = Bytes::from_mib(goal.prefetch_mib);
    budget.0.checked_div(bytes.0).unwrap_or(PREFETCH_DEPTH).clamp(1, PREFETCH_DEPTH)
}

/// Largest micro-batch at which [`depth`] is [`PREFETCH_DEPTH`]; `None` when it does not depend on the micro-batch.
pub(super) fn largest_at_full_depth(workload: &Workload, goal: &Goal) -> Option<u64> {
    if goal.pins.prefetch_depth.is_some() {
        return None;
    }
    let bytes = workload.sample.input.unwrap_or_default().times(PREFETCH_DEPTH);
    Bytes::from_mib(goal.prefetch_mib).0.checked_div(bytes.0)
}
