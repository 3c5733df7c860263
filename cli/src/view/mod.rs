//! Plans, explanations and findings as several commands print them.

mod device;
mod explanation;
mod plan;

use gpu_tuned_observe::diagnose::{Finding, Quantity};

pub(crate) use device::memory_origin;
pub(crate) use explanation::{explanation, method};
pub(crate) use plan::{cells, heading, headings, kept_from_builds};

/// Expected effect of a change, and the reason.
pub(crate) fn expectation(finding: &Finding) -> String {
    let Some(prediction) = &finding.prediction else {
        return "the recording does not show how much this gains".to_owned();
    };
    let (now, then) = (prediction.quantity.describe(prediction.now), prediction.quantity.describe(prediction.then));
    let what = match prediction.quantity {
        Quantity::FailsAtStep => format!("without it, out of memory at {then}"),
        Quantity::FailsAfterS => format!("without it, out of memory in {then}"),
        _ if now == then => format!("{now}, as now"),
        Quantity::SamplesPerS => format!("{then} in place of {now}, {:.2} times as fast", finding.gain()),
        _ => format!("{then} in place of {now}"),
    };
    let behind = finding.behind.map_or_else(String::new, |kind| format!("; more once {kind} is fixed"));
    format!("{what}{behind}: {}", prediction.how)
}
