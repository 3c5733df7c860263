//! One workload on one target.

use gpu_tuned_core::plan::{Misfit, Plan};
use gpu_tuned_core::{Bytes, grouped, three_digits};
use serde::Serialize;

/// One workload on one target.
#[derive(Serialize)]
pub(super) struct Row {
    pub workload: String,
    pub target: String,
    #[serde(flatten)]
    pub outcome: Outcome,
}

#[derive(Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Outcome {
    Plan(Box<Plan>),
    Misfit(Box<Misfit>),
    /// The target cannot do what is asked for: why not.
    Unsupported(String),
}

/// The cells of a plan.
pub(crate) fn cells(target: &str, plan: &Plan) -> Vec<String> {
    let settings = &plan.settings;
    vec![
        target.to_owned(),
        grouped(settings.batch_size),
        grouped(settings.gradient_accumulation),
        settings.precision.to_string(),
        if settings.gradient_checkpointing { "on" } else { "off" }.to_owned(),
        settings.prefetch_depth.to_string(),
        settings.num_workers.to_string(),
        plan.memory.total().to_string(),
        plan.memory.available.to_string(),
        three_digits(plan.samples_per_s),
    ]
}

/// What is missing, and what would mend it.
pub(crate) fn misfit_in_words(misfit: &Misfit) -> String {
    let missing = misfit.memory.total() - misfit.memory.budget();
    let missing = (missing > Bytes::ZERO).then(|| format!("{missing} too much at batch {}", misfit.memory.batch));
    let too_large = misfit.too_large.as_ref().map(ToString::to_string);
    let what: Vec<_> = missing.into_iter().chain(too_large).collect();
    format!("does not fit: {}; {}", what.join("; "), misfit.remedy)
}
