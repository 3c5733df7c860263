//! Whether predictions came true.

use crate::recording::Record;
use serde::Serialize;

use super::finding::{Finding, Kind, Prediction, Quantity};
use super::run_stats::RunStats;
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
    /// It is gone, and so is one before it: what came is not its change's alone.
    WithAnother,
    /// The later run does not say.
    Unknown,
}

/// What a recording has of a quantity, measured as the prediction's own recording was: without warm-up and pauses.
pub fn measured(quantity: Quantity, records: &[Record]) -> Option<f64> {
    let steps = RunStats::from_records(records).steps.ok()?;
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

/// Predictions of a diagnosis beside a later run: those whose findings are gone from it are tested; of several, the one that
/// came first, as it was to be mended first. Of failures that were predicted the later run is one that went on without the
/// change.
pub fn compare(before: &Diagnosis, after: &[Record]) -> Vec<Tested> {
    let later = diagnose(after);
    let is_there = |kind: Kind| later.findings.iter().any(|finding| finding.kind == kind);
    // The quantities that another change has moved already; of one without a prediction, the speed.
    let mut moved: Vec<Quantity> = Vec::new();
    let mut tested = |finding: &Finding| {
        let quantity = finding.prediction.as_ref().map_or(Quantity::SamplesPerS, |prediction| prediction.quantity);
        let is_gone = !is_there(finding.kind);
        let is_first = !moved.contains(&quantity);
        if is_gone {
            moved.push(quantity);
        }
        let tested = test(finding, after)?;
        let outcome = match quantity {
            Quantity::FailsAtStep | Quantity::FailsAfterS => tested.outcome,
            _ if !is_gone => Outcome::StillThere,
            _ if !is_first => Outcome::WithAnother,
            _ => tested.outcome,
        };
        Some(Tested { outcome, ..tested })
    };
    before.findings.iter().filter_map(&mut tested).collect()
}
