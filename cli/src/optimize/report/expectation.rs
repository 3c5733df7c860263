//! What is to be expected of settings.

use gpu_tuned_core::plan::Remedy;
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Provenance};
use serde::Serialize;

use super::super::planned::Outcome;
use crate::plan::misfit_in_words;

/// Memory and throughput, or why there is none.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Expectation {
    pub fits: bool,
    pub memory_bytes: Option<Bytes>,
    pub available_bytes: Option<Bytes>,
    pub memory_provenance: Option<Provenance>,
    /// Over all ranks; no more than the loader prepares, where it is known how long that takes.
    pub samples_per_s: Option<f64>,
    pub samples_per_s_provenance: Option<Provenance>,
    /// Why it cannot run.
    pub problem: Option<String>,
}

impl Expectation {
    /// Of the config as it is: what would mend it is the plan.
    pub(super) fn before(outcome: &Outcome, workload: &Workload, workers: Option<u64>) -> Self {
        let mut all = Self::of(outcome, workload, workers);
        all.problem = all.problem.as_deref().map(without_remedy);
        all
    }

    pub(super) fn of(outcome: &Outcome, workload: &Workload, workers: Option<u64>) -> Self {
        let none = Self {
            fits: false,
            memory_bytes: None,
            available_bytes: None,
            memory_provenance: None,
            samples_per_s: None,
            samples_per_s_provenance: None,
            problem: None,
        };
        match outcome {
            Outcome::Plan(plan) => Self {
                fits: true,
                memory_bytes: Some(plan.memory.total()),
                available_bytes: Some(plan.memory.available),
                memory_provenance: Some(plan.memory.provenance),
                samples_per_s: Some(fed(plan.samples_per_s, plan.schedule.world_size, workload, workers)),
                samples_per_s_provenance: Some(plan.samples_per_s_provenance),
                problem: None,
            },
            Outcome::Misfit(misfit) => Self {
                memory_bytes: Some(misfit.memory.total()),
                available_bytes: Some(misfit.memory.available),
                memory_provenance: Some(misfit.memory.provenance),
                problem: Some(match misfit.remedy {
                    // Nothing is fixed but what the file cannot say, of which there is a note.
                    Remedy::Unpin => without_remedy(&misfit_in_words(misfit)),
                    _ => misfit_in_words(misfit),
                }),
                ..none
            },
            Outcome::Unsupported(why) => Self { problem: Some(why.clone()), ..none },
        }
    }

    /// How much faster than another, and the weaker of what stands behind both.
    pub(super) fn ratio_to(&self, other: &Self) -> Option<(f64, Provenance)> {
        let ratio = self.samples_per_s? / other.samples_per_s?;
        Some((ratio, self.samples_per_s_provenance?.max(other.samples_per_s_provenance?)))
    }
}

/// What is wrong, without what would mend it.
fn without_remedy(problem: &str) -> String {
    problem.split_once("; ").map_or(problem, |(what, _)| what).to_owned()
}

/// What of the device's speed is left behind the loader: without workers it waits for each sample.
fn fed(samples_per_s: f64, ranks: u64, workload: &Workload, workers: Option<u64>) -> f64 {
    let (Some(host_ms), Some(workers)) = (workload.sample.host_ms, workers) else { return samples_per_s };
    let each = samples_per_s / ranks as f64;
    let fed = if workers == 0 { 1.0 / (1.0 / each + host_ms / 1e3) } else { each.min(workers as f64 * 1e3 / host_ms) };
    fed * ranks as f64
}
