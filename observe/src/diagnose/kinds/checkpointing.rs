//! Activations are recomputed that would fit.

use gpu_tuned_core::{Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::curve::Curve;
use crate::diagnose::words::bytes;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    run.settings.as_ref().filter(|settings| settings.gradient_checkpointing)?;
    let (with, without) = (Curve::of(run, true)?, Curve::of(run, false)?);
    let batch = model.parts.micro_batch;
    let kept = run.expected.iter().filter(|point| !point.checkpointing && point.batch as f64 >= batch && point.fits);
    let kept = kept.min_by_key(|point| point.batch)?;
    let faster = with.seconds(batch) / without.seconds(batch);
    let was = model.as_is();
    let training = if model.is_host_bound() { was.training } else { was.training / faster };
    let how =
        format!("the planner expects a micro-batch of {batch:.0} to take {faster:.2} times as long with checkpointing");
    let prediction = input.predict(WhatIf { training, ..was }, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now);
    let change = Change::new("gradient_checkpointing = false")
        .set(input.change(Setting::GradientCheckpointing, SettingValue::Flag(false)));
    let headline = "activations are recomputed that would fit: checkpointing costs time for nothing";
    let needs = kept.memory_bytes as f64;
    let finding = Finding::new(Kind::NeedlessCheckpointing, severity, headline, change);
    let finding = match run.memory_budget_bytes {
        Some(budget) => finding.with_evidence(
            format!(
                "without it {} of {} are taken in micro-batches of {}",
                bytes(needs),
                bytes(budget as f64),
                kept.batch
            ),
            [("memory_bytes", needs), ("memory_budget_bytes", budget as f64)],
        ),
        None => finding.with_evidence(
            format!("without it {} are taken in micro-batches of {}", bytes(needs), kept.batch),
            [("memory_bytes", needs)],
        ),
    };
    Some(finding.with_prediction(prediction))
}
