//! Micro-batches of models with statistics over the micro-batch (BatchNorm).

use super::candidates::Candidate;
use super::split;
use crate::Goal;
use crate::workload::Workload;

/// Samples of a micro-batch below which the error of BatchNorm grows. Source: Wu and He, "Group Normalization", 2018,
/// table 2: ResNet-50 errs on `ImageNet` by 23.6% with 32 samples on a GPU, 23.7% with 16, 24.8% with 8, 27.3% with 4.
pub const STATISTICS_FLOOR: u64 = 16;
/// Samples of a micro-batch above which the error of BatchNorm does not fall, from the same source.
pub const STATISTICS_ENOUGH: u64 = 32;

/// Fewest samples in a micro-batch among candidates that a model with batch statistics is planned from: the
/// [floor](STATISTICS_FLOOR), or the most that any candidate reaches. `None` for other models.
pub(super) fn least_samples(workload: &Workload, candidates: &[Candidate]) -> Option<u64> {
    let most = candidates.iter().map(|candidate| candidate.least).max();
    most.filter(|_| workload.batch_statistics).map(|most| most.min(STATISTICS_FLOOR))
}

/// Advice for statistics from fewer samples than the [floor](STATISTICS_FLOOR).
pub(super) fn advice(workload: &Workload, goal: &Goal, best: &Candidate) -> Option<String> {
    let least = best.least;
    if !workload.batch_statistics || least >= STATISTICS_FLOOR {
        return None;
    }
    let share = split::rank_share(goal).ok().flatten().unwrap_or(u64::MAX);
    let remedy = if share < STATISTICS_FLOOR {
        "more samples a step on each rank"
    } else {
        "a larger micro-batch, for which checkpointing, 16 bits or a larger GPU make room"
    };
    Some(format!(
        "the smallest micro-batch has size {least}, and batch statistics from fewer than {STATISTICS_FLOOR} samples raise the \
         error of BatchNorm. Use group norm, or {remedy}"
    ))
}
