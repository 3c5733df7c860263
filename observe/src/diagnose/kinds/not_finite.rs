//! Steps that change nothing, as their gradients are not finite.

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::words::{percent, whole};

/// A loss scale that grows until it overflows skips a step now and then, and more at first: so many are not worth a word.
const NOW_AND_THEN: f64 = 0.02;
/// So many are training that is lost.
const MUCH: f64 = 0.1;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let skipped = input.stats.steps.as_ref().ok()?.skipped;
    let share = skipped.count as f64 / skipped.of.max(1) as f64;
    let without_loss = skipped.without_loss.unwrap_or_default();
    if skipped.late_share < NOW_AND_THEN && without_loss == 0 {
        return None;
    }
    let severity = if share >= MUCH || without_loss > 0 { Severity::Critical } else { Severity::Warning };
    let headline = format!("{} of the steps change nothing: their gradients are not finite", percent(share));
    let change = Change::new(match skipped.without_loss {
        Some(0) => {
            "gradients overflow though the loss is a number: lower the learning rate, or train in `mixed_bf16`, whose range is \
             that of f32"
        }
        Some(_) => {
            "find where the loss stops being a number: a learning rate too high, a logarithm or division of nothing, samples \
             that have no number; `trainer.gradient_health` says in which parameters"
        }
        None => {
            "look at the loss, of which nothing is recorded: where it is a number, gradients overflow, and a lower learning \
             rate or `mixed_bf16` mends it; where it is none, a learning rate too high, a logarithm or division of nothing, or \
             samples that have no number"
        }
    });
    let first = skipped.first.map_or_else(String::new, |step| format!(", the first at step {step}"));
    let words = format!(
        "{} of {} steps were left out{first}; {} had a loss that is no number",
        whole(skipped.count as f64),
        whole(skipped.of as f64),
        skipped.without_loss.map_or_else(
            || "nobody knows which of them".to_owned(),
            |count| format!("{} of them", whole(count as f64))
        )
    );
    let figures = [("skipped_share", share), ("skipped_steps", skipped.count as f64)];
    Some(Finding::new(Kind::NotFinite, severity, headline, change).with_evidence(words, figures))
}
