//! The loss function holds the host up: it waits for the device, or computes on the host.

use super::{Change, DiagnosisInput, Finding, Kind, Severity};
use crate::diagnose::model::{LITTLE, LossWaits, StepModel};
use crate::diagnose::words::{percent, seconds};

/// So much waiting is worth a warning, whatever it costs today: a faster device makes it cost more.
const MUCH: f64 = 0.2;
/// The backward pass takes as long as so many forward passes.
const BACKWARD: f64 = 2.0;

pub(super) fn find(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref().filter(|_| input.stats.is_on_gpu())?;
    let (loss, waits) = (model.parts.loss?, model.loss_waits.seconds());
    let (share, computes) = (model.parts.share(waits), loss - waits);
    if share < LITTLE {
        return None;
    }
    let driver_says = model.device.filter(|_| input.stats.busy().is_some());
    let device = driver_says.unwrap_or_else(|| estimate(model, loss, computes));
    let how = format!(
        "host ({}) and device ({}) work beside each other again, in place of {}",
        seconds(model.host),
        seconds(device),
        seconds(model.parts.training())
    );
    let step = super::WhatIf { training: model.host.max(device).min(model.parts.training()), ..model.as_is() };
    let prediction = input.predict(step, how)?;
    let severity = Severity::of_gain(prediction.then / prediction.now);
    let severity = if share >= MUCH { severity.min(Severity::Warning) } else { severity };
    let finding = Finding::new(Kind::HostSync, severity, headline(model, share), change(model.loss_waits));
    Some(evidence(input, model, finding, share).with_prediction(prediction))
}

fn headline(model: &StepModel, share: f64) -> String {
    let part = percent(share);
    match model.loss_waits {
        LossWaits::Working(_) => format!("the loss function holds the host up in every step: {part} of the time"),
        _ => format!("the loss function waits for the device in every step: {part} of the time"),
    }
}

fn change(waits: LossWaits) -> Change {
    let read = "read nothing back inside the loss function: no `into_scalar`, `into_data`, `to_data` or `sync` there; the \
                trainer's step returns the loss, and metrics can be read every hundredth step";
    match waits {
        LossWaits::Working(_) => Change::new(format!("{read}; what it computes on the host is the loader's work")),
        _ => Change::new(read),
    }
}

fn evidence(input: &DiagnosisInput<'_>, model: &StepModel, finding: Finding, share: f64) -> Finding {
    let parts = &model.parts;
    let (loss, computing) = (parts.loss.unwrap_or(0.0), parts.loss_cpu.unwrap_or(f64::NAN));
    let figures = [("loss_s_per_step", loss), ("loss_cpu_s_per_step", computing), ("wait_share", share)];
    let words = match model.loss_waits {
        LossWaits::Working(waits) => format!(
            "{} of each {} step in the loss function, of which launching takes about {} (estimated by the {} of the backward \
             pass): the rest waits for the device, as CUDA does without sleeping, or computes on the host, {}",
            seconds(loss),
            seconds(parts.seconds),
            seconds(loss - waits),
            seconds(parts.backward),
            input.over()
        ),
        _ => format!(
            "{} of each {} step in the loss function, of which {} computing: the rest waits, {}",
            seconds(loss),
            seconds(parts.seconds),
            seconds(computing),
            input.over()
        ),
    };
    finding.with_evidence(words, figures)
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
