//! Predictions compared with a later run.

use crate::recording::Record;
use serde::Serialize;

use super::finding::{Finding, Prediction, Quantity};
use super::kind::Kind;
use super::run_stats::RunStats;
use super::{Diagnosis, diagnose};

/// A prediction and its measured outcome.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Tested {
    /// The kind of the finding.
    pub kind: Kind,
    /// The prediction.
    pub prediction: Prediction,
    /// The measured amount; `None` if the later run did not record it.
    pub got: Option<f64>,
    /// The outcome.
    pub outcome: Outcome,
}

/// The outcome of a prediction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Outcome {
    /// Within a quarter.
    Hit,
    /// Not within a quarter.
    Miss,
    /// The finding is still there: the change was not made.
    StillThere,
    /// The finding is gone, and so is one before it: the effect is not of one change.
    WithAnother,
    /// The later run did not record it.
    Unknown,
}

/// Measures a quantity in a recording as predictions do: without warm-up and pauses.
pub fn measured(quantity: Quantity, records: &[Record]) -> Option<f64> {
    let steps = RunStats::from_records(records).steps.ok()?;
    match quantity {
        Quantity::SamplesPerS => Some(steps.samples_per_s()),
        Quantity::MemoryBytes => {
            steps.memory.iter().rev().find_map(|memory| memory.reserved).map(|reserved| reserved as f64)
        }
        Quantity::FailsAtStep => steps.first_rescue.map(|step| step as f64),
        Quantity::FailsAfterS => None,
    }
}

/// Compares a finding's prediction with a run in which its change alone was made.
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

/// Compares the predictions of a diagnosis with a later run. Findings that are gone are tested; of several, the first, as
/// its change comes first. A predicted failure is compared with a run that went on without the change.
pub fn compare(before: &Diagnosis, after: &[Record]) -> Vec<Tested> {
    let later = diagnose(after);
    let is_there = |kind: Kind| later.findings.iter().any(|finding| finding.kind == kind);
    // Quantities that an earlier change has moved; a finding without a prediction counts as one of speed.
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
