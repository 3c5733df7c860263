//! Steps in which the device waits for the host or for another rank, and steps that are skipped.

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::finding::{percent, seconds, whole};
use crate::diagnose::model::{LITTLE, LossWait, StepModel};

/// Factor of the micro-batch that halves the launches.
const LARGER: f64 = 2.0;
/// Part of a step that training takes, at least, for its launches to matter.
const MOSTLY_TRAINING: f64 = 0.5;
/// Part of a step for which waiting is worth a warning, whatever it costs now: a faster device makes it cost more.
const MUCH_WAITING: f64 = 0.2;
/// Part of a step for which the program's own loop is worth a finding.
const MUCH_LOOP: f64 = 0.1;
/// Time of the backward pass over that of the forward pass.
const BACKWARD: f64 = 2.0;

pub(super) fn host_bound(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref().filter(|model| model.is_host_bound())?;
    let training = model.parts.training();
    if model.parts.share(training) < MOSTLY_TRAINING {
        return None;
    }
    let run = input.stats.run?;
    let accumulates = model.parts.micro_batches > 1.5 && !run.batch_statistics;
    let batch = (model.parts.micro_batch * LARGER).round();
    let device = model.device?;
    let was = model.as_is();
    // As many launches for twice the samples. The device may take twice as long.
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
                    `fusion`, combined matrix products, shorter loops over time";
        (step, Change::new(what))
    };
    let how = format!(
        "launching takes {} a step whatever the batch; the device works for {} of them and takes up to twice that",
        seconds(training),
        seconds(device)
    );
    let prediction = input.predict(step, how)?;
    let severity = prediction.severity().max(Severity::Warning);
    let headline = format!(
        "launching limits training: the device idles {} of the time while the host prepares its work",
        percent(1.0 - device / model.parts.seconds)
    );
    let words = format!(
        "the host works {} of each {} step, and waits {} for the device at its end, {}",
        seconds(model.host),
        seconds(model.parts.seconds),
        seconds(model.parts.drain.unwrap_or(0.0)),
        input.range()
    );
    let figures = [("host_s_per_step", model.host), ("device_s_per_step", device), ("step_s", model.parts.seconds)];
    let finding = Finding::new(Kind::HostBound, severity, headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

pub(super) fn slow_loop(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref()?;
    let outside = model.parts.outside;
    let share = model.parts.share(outside);
    if share < MUCH_LOOP {
        return None;
    }
    let was = model.as_is();
    let how = format!("the step without the {} between steps", seconds(outside));
    let prediction = input.predict(WhatIf { serial: was.serial - outside, ..was }, how)?;
    let headline =
        format!("the device idles between steps: the program's own loop takes {} of the time", percent(share));
    let change = Change::new(
        "do it every hundredth step, or in another thread: logging, metrics that are read back, copies of the model, files",
    );
    let words = format!(
        "{} of each {} step outside the trainer and the loader, {}",
        seconds(outside),
        seconds(model.parts.seconds),
        input.range()
    );
    let finding = Finding::new(Kind::SlowLoop, prediction.severity(), headline, change);
    let figures = [("outside_s_per_step", outside), ("step_s", model.parts.seconds)];
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

pub(super) fn loss_sync(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let model = input.model.as_ref().filter(|_| input.stats.is_on_gpu())?;
    let (loss, waits) = (model.parts.loss?, model.loss_wait.seconds());
    let (share, computes) = (model.parts.share(waits), loss - waits);
    if share < LITTLE {
        return None;
    }
    let reported = model.device.filter(|_| input.stats.busy().is_some());
    let device = reported.unwrap_or_else(|| estimated_device(model, loss, computes));
    let how = format!(
        "host ({}) and device ({}) work beside each other again, in place of {}",
        seconds(model.host),
        seconds(device),
        seconds(model.parts.training())
    );
    let step = WhatIf { training: model.host.max(device).min(model.parts.training()), ..model.as_is() };
    let prediction = input.predict(step, how)?;
    let severity = prediction.severity();
    let severity = if share >= MUCH_WAITING { severity.min(Severity::Warning) } else { severity };
    let does = if let LossWait::Working(_) = model.loss_wait { "blocks the host" } else { "waits for the device" };
    let headline = format!("the loss function {does} in every step: {} of the time", percent(share));
    let read = "read nothing back inside the loss function: no `into_scalar`, `into_data`, `to_data` or `sync` there; the \
                trainer's step returns the loss, and metrics can be read every hundredth step";
    let change = match model.loss_wait {
        LossWait::Working(_) => Change::new(format!("{read}; move what it computes on the host to the loader")),
        _ => Change::new(read),
    };
    let finding = Finding::new(Kind::HostSync, severity, headline, change);
    Some(with_loss_times(input, model, finding, share).with_prediction(prediction))
}

fn with_loss_times(input: &DiagnosisInput<'_>, model: &StepModel, finding: Finding, share: f64) -> Finding {
    let parts = &model.parts;
    let (loss, computing) = (parts.loss.unwrap_or(0.0), parts.loss_cpu.unwrap_or(f64::NAN));
    let figures = [("loss_s_per_step", loss), ("loss_cpu_s_per_step", computing), ("wait_share", share)];
    let rest = match model.loss_wait {
        LossWait::Working(waits) => format!(
            "of which launching takes about {} (estimated from the {} of the backward pass): the rest waits for the device, \
             as CUDA does without sleeping, or computes on the host",
            seconds(loss - waits),
            seconds(parts.backward)
        ),
        _ => format!("of which {} computing: the rest waits", seconds(computing)),
    };
    let (loss, step) = (seconds(loss), seconds(parts.seconds));
    finding
        .with_evidence(format!("{loss} of each {step} step in the loss function, {rest}, {}", input.range()), figures)
}

/// Estimates the time in which the device works, where the driver does not report it: of the forward pass the wait of the
/// loss function, and of the rest the wait at the end of the step.
fn estimated_device(model: &StepModel, loss: f64, computes: f64) -> f64 {
    let parts = &model.parts;
    let launching = parts.backward + parts.update;
    let drain = parts.drain.unwrap_or(0.0);
    let forward = loss - computes / 2.0;
    let rest = if parts.share(drain) >= LITTLE { launching + drain } else { launching.min(BACKWARD * forward) };
    forward + rest
}

/// Time over that of the other ranks that is worth a finding.
const SLOWER: f64 = 1.1;

pub(super) fn slow_rank(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, steps) = (input.model.as_ref()?, input.stats.steps.as_ref().ok()?);
    let slow = steps.slowest_rank.as_ref()?;
    if slow.slowness < SLOWER {
        return None;
    }
    let headline = format!(
        "rank {} on {} takes {:.2} times as long as the others for its part of a step, and they wait for it",
        slow.rank, slow.host, slow.slowness
    );
    let change = Change::new(
        "compare its GPU with the others': clocks, temperature, PCIe link, other processes, and its loader; unequal GPUs share a \
         step by their speed with `unequal = true`",
    )
    .by("cargo gpu-tuned monitor");
    let saved = (slow.share_of_steps * (slow.seconds - slow.others_s)).min(model.parts.seconds);
    let was = model.as_is();
    // The wait is part of the exchange, or of training on the slow rank itself.
    let serial = (was.serial - saved).max(0.0);
    let training = was.training - (saved - (was.serial - serial));
    let prediction = input.predict(
        WhatIf { serial, training, ..was },
        format!("a step without {} of waiting: all ranks as fast as the median of the others", seconds(saved)),
    )?;
    let words = format!(
        "{} instead of {}, and the slowest rank in {} of {}",
        seconds(slow.seconds),
        seconds(slow.others_s),
        percent(slow.share_of_steps),
        input.range()
    );
    let figures = [
        ("rank", slow.rank as f64),
        ("rank_s_per_step", slow.seconds),
        ("other_ranks_s_per_step", slow.others_s),
        ("slowest_share_of_steps", slow.share_of_steps),
    ];
    let finding = Finding::new(Kind::SlowRank, prediction.severity(), headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(Some(prediction)))
}

/// Part of the later steps that a growing loss scale may skip.
const NOW_AND_THEN: f64 = 0.02;
/// Part of all steps that is much lost training.
const MUCH: f64 = 0.1;

pub(super) fn not_finite(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let skipped = input.stats.steps.as_ref().ok()?.skipped;
    let share = skipped.count as f64 / skipped.of.max(1) as f64;
    let without_loss = skipped.without_loss.unwrap_or_default();
    if skipped.late_share < NOW_AND_THEN && without_loss == 0 {
        return None;
    }
    let severity = if share >= MUCH || without_loss > 0 { Severity::Critical } else { Severity::Warning };
    let headline = format!("{} of the steps are skipped: their gradients are not finite", percent(share));
    let change = Change::new(match skipped.without_loss {
        Some(0) => {
            "gradients overflow though the loss is finite: lower the learning rate, or train in `mixed_bf16`, which has the \
             range of fp32"
        }
        Some(_) => {
            "find where the loss stops being finite: a learning rate too high, a logarithm or division of zero, samples with \
             NaN; `trainer.gradient_health` names the parameters"
        }
        None => {
            "check the loss, which is not recorded. If it is finite, gradients overflow: lower the learning rate, or train in \
             `mixed_bf16`. If not: a learning rate too high, a logarithm or division of zero, or samples with NaN"
        }
    });
    let first = skipped.first.map_or_else(String::new, |step| format!(", the first at step {step}"));
    let losses = skipped.without_loss.map_or_else(
        || "their losses are not recorded".to_owned(),
        |count| format!("{} of them had no finite loss", whole(count as f64)),
    );
    let words =
        format!("{} of {} steps were skipped{first}; {losses}", whole(skipped.count as f64), whole(skipped.of as f64));
    let figures = [("skipped_share", share), ("skipped_steps", skipped.count as f64)];
    Some(Finding::new(Kind::NotFinite, severity, headline, change).with_evidence(words, figures))
}
