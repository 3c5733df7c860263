//! The program's own loop between steps.

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::model::WhatIf;
use crate::diagnose::words::{percent, seconds};

/// So much of a step is worth a word.
const MUCH: f64 = 0.1;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref()?;
    let outside = model.parts.outside;
    let share = model.parts.share(outside);
    if share < MUCH {
        return None;
    }
    let was = model.as_is();
    let step = WhatIf { serial: was.serial - outside, ..was };
    let how = format!("the step without the {} between steps", seconds(outside));
    let prediction = input.predict(step, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now);
    let headline =
        format!("the device idles between steps: the program's own loop takes {} of the time", percent(share));
    let change = Change::new(
        "do it every hundredth step, or in another thread: logging, metrics that are read back, copies of the model, files",
    );
    let words = format!(
        "{} of each {} step outside the trainer and the loader, {}",
        seconds(outside),
        seconds(model.parts.seconds),
        input.over()
    );
    let finding = Finding::new(Kind::SlowLoop, severity, headline, change)
        .with_evidence(words, [("outside_s_per_step", outside), ("step_s", model.parts.seconds)]);
    Some(finding.with_prediction(prediction))
}
