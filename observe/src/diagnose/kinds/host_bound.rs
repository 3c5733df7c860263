//! The host launches kernels more slowly than the device works them off.

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::words::{percent, seconds};

/// Launches of two micro-batches at the price of one.
const LARGER: f64 = 2.0;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref().filter(|model| model.is_host_bound())?;
    let training = model.parts.training();
    let share = model.parts.share(training);
    // Where most of a step is something else, that comes first.
    if share < 0.5 {
        return None;
    }
    let run = input.stats.run?;
    let accumulates = model.parts.micro_batches > 1.5 && !run.batch_statistics;
    let batch = (model.parts.micro_batch * LARGER).round();
    let device = model.device?;
    let was = model.as_is();
    // As many launches for twice the samples; the device may take that much longer.
    let (step, change) = if accumulates {
        let repeated = model.launching();
        let launches = (model.share_of_rank() / batch).ceil() / model.parts.micro_batches;
        let host = training - repeated * (1.0 - launches);
        let what =
            format!("batch_size = {batch:.0}: half as many launches for the same samples; or fewer, larger operations");
        (WhatIf { training: host.max(device), ..was }, Change::new(what).set(input.regrouping(batch as u64)))
    } else {
        let step = WhatIf {
            samples: was.samples * LARGER,
            loader: was.loader * LARGER,
            training: training.max(device * LARGER),
            ..was
        };
        let what = "twice the global batch, which is another training run; or fewer, larger operations: Burn's feature \
                    `fusion`, products that are put together, shorter loops over time";
        (step, Change::new(what))
    };
    let how = format!(
        "launching takes {} a step whatever the batch; the device works for {} of them and takes up to twice that",
        seconds(training),
        seconds(device)
    );
    let prediction = input.predict(step, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now).max(Severity::Warning);
    let headline = format!(
        "launching limits training: the device idles {} of the time while the host prepares its work",
        percent(1.0 - device / model.parts.seconds)
    );
    let words = format!(
        "{} of {} steps in the host's hands, and {} waiting for the device at their end, {}",
        seconds(model.host),
        seconds(model.parts.seconds),
        seconds(model.parts.drain.unwrap_or(0.0)),
        input.over()
    );
    let finding = Finding::new(Kind::HostBound, severity, headline, change).with_evidence(
        words,
        [("host_s_per_step", model.host), ("device_s_per_step", device), ("step_s", model.parts.seconds)],
    );
    Some(finding.with_prediction(prediction))
}
