//! Whether predictions came true.

use gpu_tuned_core::recording::Record;
use serde::Serialize;

use super::finding::{Finding, Kind, Prediction, Quantity};
use super::picture::Picture;
use super::{Diagnosis, diagnose};

/// A prediction beside what came.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Tested {
    /// Of which finding.
    pub kind: Kind,
    /// What was predicted.
    pub prediction: Prediction,
    /// What came; `None` where the later run does not say.
    pub got: Option<f64>,
    /// What that is.
    pub outcome: Outcome,
}

/// What comes of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Within a quarter.
    Hit,
    /// Further off.
    Miss,
    /// The finding is still there: the change was not made.
    StillThere,
    /// The later run does not say.
    Unknown,
}

/// What a recording has of a quantity, measured as the prediction's own recording was: without warm-up and pauses.
pub fn measured(quantity: Quantity, records: &[Record]) -> Option<f64> {
    let steps = Picture::of(records).steps.ok()?;
    match quantity {
        Quantity::SamplesPerS => Some(steps.samples_per_s()),
        Quantity::MemoryBytes => steps.memory.iter().rev().find_map(|memory| memory.reserved).map(|held| held as f64),
        Quantity::FailsAtStep => steps.first_rescue.map(|step| step as f64),
        Quantity::FailsAfterS => None,
    }
}

/// A finding's prediction, beside a run in which its change, and nothing else, was made.
pub fn test(finding: &Finding, after: &[Record]) -> Option<Tested> {
    let prediction = finding.prediction.clone()?;
    let got = measured(prediction.quantity, after);
    let outcome = match got {
        Some(got) if prediction.is_hit_by(got) => Outcome::Hit,
        Some(_) => Outcome::Miss,
        None => Outcome::Unknown,
    };
    Some(Tested { kind: finding.kind, prediction, got, outcome })
}

/// Predictions of a diagnosis beside a later run: those whose findings are gone from it are tested. Of failures that were
/// predicted the later run is one that went on without the change.
pub fn compare(before: &Diagnosis, after: &[Record]) -> Vec<Tested> {
    let later = diagnose(after);
    let is_there = |kind: Kind| later.findings.iter().any(|finding| finding.kind == kind);
    let tested = |finding: &Finding| {
        let tested = test(finding, after)?;
        let is_failure = matches!(tested.prediction.quantity, Quantity::FailsAtStep | Quantity::FailsAfterS);
        let unchanged = !is_failure && is_there(finding.kind);
        Some(Tested { outcome: if unchanged { Outcome::StillThere } else { tested.outcome }, ..tested })
    };
    before.findings.iter().filter_map(tested).collect()
}
