//! Optimizer steps over fewer samples than were asked for.

use gpu_tuned_core::{Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::words::seconds;

/// Last steps of epochs may have fewer.
const REACHED: f64 = 0.9;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    let (asked, taken) = (run.global_batch? as f64, model.parts.samples);
    if taken >= REACHED * asked {
        return None;
    }
    let of_rank = asked / run.world_size.max(1) as f64;
    // The trainer cuts what it is given into planned micro-batches, which may be larger than what it was given.
    let now = model.parts.micro_batch.max(1.0);
    let planned = run.settings.map_or(now, |settings| (settings.batch_size as f64).min(of_rank).max(now));
    let batches = (of_rank / planned).ceil().max(1.0);
    let slower = input.curve().map_or(1.0, |curve| curve.seconds(planned) / curve.seconds(now));
    let larger = asked / taken;
    let was = model.as_is();
    // The optimizer and the loop come once for all of it.
    let once = model.parts.update;
    let step = WhatIf {
        samples: asked,
        loader: was.loader * larger,
        serial: was.serial + model.parts.upload * (larger - 1.0),
        training: once + (was.training - once) * larger * slower,
        ..was
    };
    let how = format!(
        "{larger:.1} times the samples in micro-batches of {planned:.0}, with one update of {} for all of them",
        seconds(once)
    );
    let prediction = input.predict(step, how)?;
    let headline =
        format!("optimizer steps take {taken:.0} samples where {asked:.0} were asked for: it is another training run");
    let change = Change::new(format!(
        "give the trainer batches of {of_rank:.0} samples, as `session.loader` does: it cuts them into {batches:.0} \
         micro-batches and accumulates"
    ))
    .set(input.change(Setting::GradientAccumulation, SettingValue::Count(batches as u64)));
    let words = format!("{taken:.0} samples in a step over all ranks, {}", input.over());
    let finding = Finding::new(Kind::NoAccumulation, Severity::Warning, headline, change)
        .with_evidence(words, [("samples_per_step", taken), ("global_batch", asked)]);
    Some(finding.with_prediction(prediction))
}
