//! The program's own loop between steps.

use super::{Change, Finding, Kind, Seen, Severity};
use crate::diagnose::model::WhatIf;
use crate::diagnose::words::{percent, seconds};

/// So much of a step is worth a word.
const MUCH: f64 = 0.1;

pub(super) fn find(seen: &Seen<'_>) -> Option<Finding> {
    let model = seen.model.as_ref()?;
    let outside = model.parts.outside;
    let share = model.parts.share(outside);
    if share < MUCH {
        return None;
    }
    let was = model.as_is();
    let step = WhatIf { serial: was.serial - outside, ..was };
    let how = format!("the step without the {} between steps", seconds(outside));
    let prediction = seen.predicts(step, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now);
    let headline =
        format!("the device idles between steps: the program's own loop takes {} of the time", percent(share));
    let change = Change::of(
        "do it every hundredth step, or in another thread: logging, metrics that are read back, copies of the model, files",
    );
    let words = format!(
        "{} of each {} step outside the trainer and the loader, {}",
        seconds(outside),
        seconds(model.parts.seconds),
        seen.over()
    );
    let finding = Finding::new(Kind::SlowLoop, severity, headline, change)
        .seen(words, [("outside_s_per_step", outside), ("step_s", model.parts.seconds)]);
    Some(finding.predicting(prediction))
}
