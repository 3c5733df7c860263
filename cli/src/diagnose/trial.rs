//! Predictions that are put to the test.

use std::ffi::OsString;
use std::time::Duration;

use gpu_tuned_observe::diagnose::{Diagnosis, Finding, Outcome, Tested, test};
use serde::Serialize;

use super::program::{self, Ended};
use super::seen::{Place, read_if_there};
use crate::error::Error;
use crate::stop::Stop;

/// A run with a finding's settings.
#[derive(Debug, Serialize)]
pub(super) struct Trial {
    /// What `GPU_TUNED_SET` was.
    pub settings: String,
    #[serde(flatten)]
    pub tested: Tested,
    /// How the program ended.
    pub program: Ended,
}

/// Runs the program again for each finding that settings change, and measures what was predicted.
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
    crate::say(&format!("note: again with {settings}, for {} s at most", longest.as_secs_f64()));
    let place = Place::new(None)?;
    let ran = program::run(command, &place.file, Some(&settings), Some(longest), stop).map_err(Error::from);
    let ran = ran.and_then(|program| Ok((program, read_if_there(&place.file)?.records)));
    let (program, records) = place.done(ran)?;
    Ok(test(finding, &records).map(|tested| Trial { settings, tested, program }))
}

/// `hit: 1,250 samples/s, predicted 1,280 samples/s`.
pub(super) fn in_words(tested: &Tested) -> String {
    let quantity = tested.prediction.quantity;
    let predicted = quantity.describe(tested.prediction.then);
    match (tested.outcome, tested.got) {
        (Outcome::Hit, Some(got)) => format!("hit: {}, predicted {predicted}", quantity.describe(got)),
        (Outcome::Miss, Some(got)) => format!("miss: {}, predicted {predicted}", quantity.describe(got)),
        (Outcome::WithAnother, Some(got)) => {
            format!("gone with another: {}, {predicted} predicted for its change alone", quantity.describe(got))
        }
        (Outcome::StillThere, _) => format!("still there: {predicted} are predicted with the change"),
        _ => format!("not known: too little was recorded, predicted {predicted}"),
    }
}
