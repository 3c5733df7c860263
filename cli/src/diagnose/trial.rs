//! Tests of predictions.

use std::ffi::OsString;
use std::time::Duration;

use gpu_tuned_observe::diagnose::{Diagnosis, Finding, Outcome, Tested, test};
use serde::Serialize;

use super::input::{RecordingFile, read_if_there};
use super::program::{self, Ended};
use crate::error::Error;
use crate::output::note;
use crate::process::Stop;

/// A run with a finding's settings.
#[derive(Debug, Serialize)]
pub(super) struct Trial {
    /// Value of `GPU_TUNED_SET`.
    pub settings: String,
    #[serde(flatten)]
    pub tested: Tested,
    pub program: Ended,
}

/// Runs the program again for each finding that settings can change, and measures the predicted quantity.
pub(super) fn run(
    diagnosis: &Diagnosis,
    command: &[OsString],
    longest: Duration,
    stop: &Stop,
) -> Result<Vec<Trial>, Error> {
    let changeable = diagnosis.findings.iter().filter_map(|finding| Some((finding, finding.change.pins()?)));
    changeable
        .filter(|(finding, _)| finding.prediction.is_some() && !stop.is_wanted())
        .filter_map(|(finding, pins)| of(finding, pins, command, longest, stop).transpose())
        .collect()
}

fn of(
    finding: &Finding,
    settings: String,
    command: &[OsString],
    longest: Duration,
    stop: &Stop,
) -> Result<Option<Trial>, Error> {
    note(&format!("running again with {settings}, for up to {} s", longest.as_secs_f64()));
    let file = RecordingFile::new(None)?;
    let ran = program::run(command, &file.file, Some(&settings), Some(longest), stop);
    let ran = ran.and_then(|program| Ok((program, read_if_there(&file.file)?.records)));
    let (program, records) = file.done(ran)?;
    Ok(test(finding, &records).map(|tested| Trial { settings, tested, program }))
}

/// `hit: 1,250 samples/s, predicted 1,280 samples/s`.
pub(super) fn describe(tested: &Tested) -> String {
    let quantity = tested.prediction.quantity;
    let predicted = quantity.describe(tested.prediction.then);
    match (tested.outcome, tested.got) {
        (Outcome::Hit, Some(got)) => format!("hit: {}, predicted {predicted}", quantity.describe(got)),
        (Outcome::Miss, Some(got)) => format!("miss: {}, predicted {predicted}", quantity.describe(got)),
        (Outcome::WithAnother, Some(got)) => {
            format!("gone with another finding: {}, {predicted} predicted for its change alone", quantity.describe(got))
        }
        (Outcome::StillThere, _) => format!("still there: {predicted} predicted with the change"),
        _ => format!("unknown: too few records, predicted {predicted}"),
    }
}
