//! The loss function waits for the device.

use super::{Change, Finding, Kind, Seen, Severity};
use crate::diagnose::model::{LITTLE, StepModel};
use crate::diagnose::words::{percent, seconds};

/// So much waiting is worth a warning, whatever it costs today: a faster device makes it cost more.
const MUCH: f64 = 0.2;
/// The backward pass takes as long as so many forward passes.
const BACKWARD: f64 = 2.0;

pub(super) fn find(seen: &Seen<'_>) -> Option<Finding> {
    let model = seen.model.as_ref().filter(|_| seen.picture.is_on_gpu())?;
    let (loss, computes) = (model.parts.loss?, model.parts.loss_cpu?);
    let waits = (loss - computes).max(0.0);
    let share = model.parts.share(waits);
    if model.loss_computes() || share < LITTLE {
        return None;
    }
    let driver_says = model.device.filter(|_| seen.picture.busy().is_some());
    let device = driver_says.unwrap_or_else(|| estimate(model, loss, computes));
    let how = format!(
        "host ({}) and device ({}) work beside each other again, in place of {}",
        seconds(model.host),
        seconds(device),
        seconds(model.parts.training())
    );
    let step = super::WhatIf { training: model.host.max(device).min(model.parts.training()), ..model.as_is() };
    let prediction = seen.predicts(step, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now);
    let severity = if share >= MUCH { severity.min(Severity::Warning) } else { severity };
    let headline = format!("the loss function waits for the device in every step: {} of the time", percent(share));
    let change = Change::of(
        "read nothing back inside the loss function: no `into_scalar`, `into_data`, `to_data` or `sync` there; the trainer's \
         step returns the loss, and metrics can be read every hundredth step",
    );
    let words = format!(
        "{} in the loss function, of which {} computing: the rest waits, {}",
        seconds(loss),
        seconds(computes),
        seen.over()
    );
    let finding = Finding::new(Kind::HostSync, severity, headline, change)
        .seen(words, [("loss_s_per_step", loss), ("loss_cpu_s_per_step", computes), ("wait_share", share)]);
    Some(finding.predicting(prediction))
}

/// The time in which the device works, where the driver does not say: of the forward pass what the loss function waits for,
/// and of the rest what the host waits for at the end.
fn estimate(model: &StepModel, loss: f64, computes: f64) -> f64 {
    let parts = &model.parts;
    let launching = parts.backward + parts.update;
    let drain = parts.drain.unwrap_or(0.0);
    let forward = loss - computes / 2.0;
    let rest = if parts.share(drain) >= LITTLE { launching + drain } else { launching.min(BACKWARD * forward) };
    forward + rest
}
