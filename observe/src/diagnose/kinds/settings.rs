//! Settings that do not suit the device: precision, TF32, checkpointing, the build's target.

use gpu_tuned_core::{Precision, Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::curve::Curve;
use crate::diagnose::words::{bytes, percent, times};

/// Speed-up of the device by bf16 mixed precision: between the 1.09 and the 1.49 measured for a transformer and a
/// convolutional network on an H200.
const AMP_SPEED_UP: f64 = 1.27;
/// Part of a step in which the device works, at least, for its speed to matter.
const MATTERS: f64 = 0.5;
/// Tensor core activity below which tensor cores are unused.
const UNUSED: f64 = 0.01;
/// SM activity above which the GPU has work to do.
const AT_WORK: f64 = 0.5;
/// Targets that name no GPU.
const ANY: [&str; 2] = ["generic", "native"];

/// fp32 on a GPU with bf16 tensor cores.
pub(super) fn no_amp(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    let settings = run.settings.as_ref()?;
    let share = model.parts.share(model.device?);
    if !run.device.has_bf16 || !run.device.is_gpu || settings.precision != Precision::F32 || share < MATTERS {
        return None;
    }
    let how = format!(
        "the device's part {} as fast: measured 1.09 (transformer) to 1.49 (convolutions) on an H200",
        times(AMP_SPEED_UP)
    );
    let prediction = input.predict(model.with_faster_device(AMP_SPEED_UP), how)?;
    let change = Change::new(
        "precision = \"mixed_bf16\": weights stay fp32, the step computes in bf16; the arithmetic of the run changes, so \
         do not switch midway",
    )
    .set(input.change(Setting::Precision, SettingValue::Precision(Precision::MixedBf16)));
    let words = format!(
        "precision is {}, and the device works for {} of a step, {}",
        settings.precision,
        percent(share),
        input.range()
    );
    let finding = Finding::new(Kind::NoAmp, Severity::Hint, "fp32 on a GPU with bf16 tensor cores", change);
    Some(finding.with_evidence(words, [("gpu_busy_share", share)]).with_prediction(prediction))
}

/// fp32 without TF32 on a GPU that has TF32.
pub(super) fn no_tf32(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let run = input.stats.run.filter(|run| run.device.is_gpu && run.device.has_tf32)?;
    let settings = run.settings.as_ref().filter(|settings| settings.precision == Precision::F32)?;
    let tensor = input.stats.gpus.first().and_then(|gpu| gpu.mean(|sample| sample.tensor_activity_percent));
    let unused = tensor.map(|percent| percent / 100.0).filter(|share| *share < UNUSED);
    let unused = unused.filter(|_| input.stats.sm_activity().is_some_and(|share| share >= AT_WORK));
    if settings.allow_tf32 && unused.is_none() {
        return None;
    }
    let change = Change::new(
        "allow_tf32 = true, and matrix products whose sides are multiples of 8; Burn's autotuning takes TF32 where it is \
         faster",
    )
    .set(input.change(Setting::AllowTf32, SettingValue::Flag(true)));
    let allowed = format!("allow_tf32 is {}", settings.allow_tf32);
    let headline = "fp32 matrix products without the TF32 of this GPU";
    let finding = Finding::new(Kind::NoTf32, Severity::Hint, headline, change);
    Some(match unused {
        Some(share) => finding.with_evidence(
            format!("{allowed}, and tensor cores work {} of the time, {}", percent(share), input.range()),
            [("tensor_activity_share", share)],
        ),
        None => finding.with_evidence(format!("{allowed}, and precision is fp32"), []),
    })
}

/// Activation checkpointing where the activations would fit.
pub(super) fn needless_checkpointing(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    run.settings.as_ref().filter(|settings| settings.gradient_checkpointing)?;
    let (with, without) = (Curve::new(run, true)?, Curve::new(run, false)?);
    let batch = model.parts.micro_batch;
    let kept = run.expected.iter().filter(|point| !point.checkpointing && point.batch as f64 >= batch && point.fits);
    let kept = kept.min_by_key(|point| point.batch)?;
    let faster = with.seconds(batch) / without.seconds(batch);
    let was = model.as_is();
    let training = if model.is_host_bound() { was.training } else { was.training / faster };
    let how =
        format!("the planner expects a micro-batch of {batch:.0} to take {faster:.2} times as long with checkpointing");
    let prediction = input.predict(WhatIf { training, ..was }, how)?;
    let change = Change::new("gradient_checkpointing = false")
        .set(input.change(Setting::GradientCheckpointing, SettingValue::Flag(false)));
    let needed = kept.memory_bytes as f64;
    let budget = run.memory_budget_bytes.map(|budget| budget as f64);
    let of = budget.map_or_else(String::new, |budget| format!(" of {}", bytes(budget)));
    let words = format!("without it, micro-batches of {} need {}{of}", kept.batch, bytes(needed));
    let figures = [("memory_bytes", needed), ("memory_budget_bytes", budget.unwrap_or(f64::NAN))];
    let headline = "activation checkpointing is not needed: the activations would fit";
    let finding = Finding::new(Kind::NeedlessCheckpointing, prediction.severity(), headline, change);
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

/// A program that was built for another device.
pub(super) fn wrong_target(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let run = input.stats.run?;
    let target = run.target.as_deref().filter(|target| !ANY.contains(target))?;
    let device = &run.device;
    if device.profile.as_deref() == Some(target) {
        return None;
    }
    let (severity, change) = match &device.profile {
        _ if !device.is_gpu => {
            let what = "train on the GPU that the build is for: is there a driver, is the feature `cuda` enabled, is the GPU \
                        visible (CUDA_VISIBLE_DEVICES)?";
            (Severity::Critical, Change::new(what).by("cargo gpu-tuned targets --here"))
        }
        Some(profile) => {
            let what = format!(
                "build for this GPU: the feature `{profile}` in place of `{target}`; the settings were planned again at the \
                 start, except those pinned for {target}"
            );
            (Severity::Warning, Change::new(what).by(format!("cargo run --release --features {profile},cuda")))
        }
        None => {
            let what =
                "build for this GPU with `native`, or with a profile in gpu-tuned.toml, which the command prints";
            (Severity::Warning, Change::new(what).by("cargo gpu-tuned targets --here --toml"))
        }
    };
    let headline = format!("built for {target}, and runs on {}", device.name);
    let profile = device.profile.as_deref().unwrap_or("none");
    let words = format!("target {target}; device {}, profile {profile}", device.name);
    let finding = Finding::new(Kind::WrongTarget, severity, headline, change).with_evidence(words, []);
    Some(run.fallbacks.iter().take(2).fold(finding, |finding, fallback| finding.with_evidence(fallback.clone(), [])))
}
