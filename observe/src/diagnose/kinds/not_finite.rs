//! Steps that are skipped because their gradients are not finite.

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::words::{percent, whole};

/// Part of the later steps that a growing loss scale may skip.
const NOW_AND_THEN: f64 = 0.02;
/// Part of all steps that is much lost training.
const MUCH: f64 = 0.1;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let skipped = input.stats.steps.as_ref().ok()?.skipped;
    let share = skipped.count as f64 / skipped.of.max(1) as f64;
    let without_loss = skipped.without_loss.unwrap_or_default();
    if skipped.late_share < NOW_AND_THEN && without_loss == 0 {
        return None;
    }
    let severity = if share >= MUCH || without_loss > 0 { Severity::Critical } else { Severity::Warning };
    let headline = format!("{} of the steps are skipped: their gradients are not finite", percent(share));
    let change = Change::new(match skipped.without_loss {
        Some(0) => {
            "gradients overflow though the loss is finite: lower the learning rate, or train in `mixed_bf16`, which has the \
             range of fp32"
        }
        Some(_) => {
            "find where the loss stops being finite: a learning rate too high, a logarithm or division of zero, samples with \
             NaN; `trainer.gradient_health` names the parameters"
        }
        None => {
            "check the loss, which is not recorded. If it is finite, gradients overflow: lower the learning rate, or train in \
             `mixed_bf16`. If not: a learning rate too high, a logarithm or division of zero, or samples with NaN"
        }
    });
    let first = skipped.first.map_or_else(String::new, |step| format!(", the first at step {step}"));
    let losses = skipped.without_loss.map_or_else(
        || "their losses are not recorded".to_owned(),
        |count| format!("{} of them had no finite loss", whole(count as f64)),
    );
    let words =
        format!("{} of {} steps were skipped{first}; {losses}", whole(skipped.count as f64), whole(skipped.of as f64));
    let figures = [("skipped_share", share), ("skipped_steps", skipped.count as f64)];
    Some(Finding::new(Kind::NotFinite, severity, headline, change).with_evidence(words, figures))
}
