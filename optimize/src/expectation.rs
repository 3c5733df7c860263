//! Expected memory and throughput of settings.

use gpu_tuned_core::plan::Remedy;
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Provenance};
use serde::Serialize;

use crate::task::Outcome;

/// Expected memory and throughput, or the reason why there is none.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Expectation {
    /// True if the training fits the device.
    pub fits: bool,
    /// Memory needed.
    pub memory_bytes: Option<Bytes>,
    /// Memory available.
    pub available_bytes: Option<Bytes>,
    /// Provenance of the memory needed.
    pub memory_provenance: Option<Provenance>,
    /// Samples per second over all ranks, bounded by the loader where its speed is measured or given.
    pub samples_per_s: Option<f64>,
    /// Provenance of the throughput.
    pub samples_per_s_provenance: Option<Provenance>,
    /// Reason why the training cannot run.
    pub problem: Option<String>,
}

impl Expectation {
    /// The config as it is, whose remedy is the plan.
    pub(crate) fn before(outcome: &Outcome, workload: &Workload, workers: Option<u64>) -> Self {
        let mut all = Self::new(outcome, workload, workers);
        all.problem = all.problem.as_deref().map(without_remedy);
        all
    }

    pub(crate) fn new(outcome: &Outcome, workload: &Workload, workers: Option<u64>) -> Self {
        match outcome {
            Outcome::Plan(plan) => Self {
                fits: true,
                memory_bytes: Some(plan.memory.total()),
                available_bytes: Some(plan.memory.available),
                memory_provenance: Some(plan.memory.provenance),
                samples_per_s: Some(bounded(plan.samples_per_s, plan.schedule.world_size, workload, workers)),
                samples_per_s_provenance: Some(plan.samples_per_s_provenance),
                problem: None,
            },
            Outcome::Misfit(misfit) => Self {
                memory_bytes: Some(misfit.memory.total()),
                available_bytes: Some(misfit.memory.available),
                memory_provenance: Some(misfit.memory.provenance),
                problem: Some(match misfit.remedy {
                    // The only pins are of settings that the file cannot express: a note covers these.
                    Remedy::Unpin => without_remedy(&misfit.in_one_line()),
                    _ => misfit.in_one_line(),
                }),
                ..Self::default()
            },
            Outcome::Unsupported(why) => Self { problem: Some(why.clone()), ..Self::default() },
        }
    }

    /// Throughput relative to another expectation, with the weaker provenance.
    pub fn ratio_to(&self, other: &Self) -> Option<(f64, Provenance)> {
        let ratio = self.samples_per_s? / other.samples_per_s?;
        Some((ratio, self.samples_per_s_provenance?.max(other.samples_per_s_provenance?)))
    }
}

fn without_remedy(problem: &str) -> String {
    problem.split_once("; ").map_or(problem, |(what, _)| what).to_owned()
}

/// Throughput behind the loader; without workers each sample is prepared between steps.
fn bounded(samples_per_s: f64, ranks: u64, workload: &Workload, workers: Option<u64>) -> f64 {
    let (Some(host_ms), Some(workers)) = (workload.sample.host_ms, workers) else { return samples_per_s };
    let each = samples_per_s / ranks as f64;
    let fed = if workers == 0 { 1.0 / (1.0 / each + host_ms / 1e3) } else { each.min(workers as f64 * 1e3 / host_ms) };
    fed * ranks as f64
}
