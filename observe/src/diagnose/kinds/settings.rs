//! Settings that do not suit the device: batch, precision, TF32, checkpointing, the build's target.

use gpu_tuned_core::profile::ProfileId;
use gpu_tuned_core::{Kernels, LibraryGain, Precision, Setting, SettingValue};

use super::{Change, DiagnosisInput, Finding, Kind, Severity, WhatIf};
use crate::diagnose::finding::{bytes, percent, rate, seconds, times};
use crate::diagnose::model::{Curve, StepModel};

/// Speed-up of the device for which a larger micro-batch is worth a finding.
const WORTH_IT: f64 = 1.15;
/// Samples of a step over the global batch that are enough: the last steps of epochs may have fewer.
const REACHED: f64 = 0.9;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Better {
    /// Within the requested step.
    WithinStep(f64),
    /// Within the requested step, for a model whose batch statistics depend on the micro-batch.
    OtherStatistics(f64),
    /// Larger than the requested step.
    BeyondStep(f64),
}

impl Better {
    pub(super) fn batch(self) -> f64 {
        match self {
            Self::WithinStep(batch) | Self::OtherStatistics(batch) | Self::BeyondStep(batch) => batch,
        }
    }
}

/// Returns the micro-batch that keeps the device busy, where the run's is far below.
pub(super) fn better(input: &DiagnosisInput<'_>) -> Option<Better> {
    let (model, run, curve) = (input.model.as_ref()?, input.stats.run?, input.curve()?);
    let now = model.parts.micro_batch;
    // Within the requested step; larger where that gains nothing.
    let share = model.share_of_rank().max(run.global_batch.unwrap_or(0) as f64 / run.world_size.max(1) as f64);
    let near_best = |most: u64| curve.smallest_near_best(most, |point| point.fits).map(|point| point.batch as f64);
    let is_worth = |batch: &f64| *batch > now && curve.seconds(now) / curve.seconds(*batch) >= WORTH_IT;
    let within = if run.batch_statistics { Better::OtherStatistics } else { Better::WithinStep };
    let within = near_best(share as u64).filter(is_worth).map(within);
    within.or_else(|| near_best(u64::MAX).filter(is_worth).map(Better::BeyondStep))
}

pub(super) fn batch_too_small(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, curve) = (input.model.as_ref()?, input.curve()?);
    let better = better(input)?;
    let (now, batch) = (model.parts.micro_batch, better.batch());
    let step = model.regrouped(&curve, batch);
    let how = format!(
        "the planner expects {} a rank at {now:.0} and {} at {batch:.0} ({}), applied to the recorded step",
        rate(1.0 / curve.seconds(now)),
        rate(1.0 / curve.seconds(batch)),
        curve.provenance()
    );
    let prediction = input.predict(step, how)?;
    let severity = match prediction.severity() {
        severity if matches!(better, Better::WithinStep(_)) => severity,
        // The change makes another training run, which needs more than a tenth to be worth it.
        Severity::Critical => Severity::Warning,
        _ => Severity::Hint,
    };
    let headline = format!(
        "micro-batches of {now:.0} are far too small: the device takes samples {} as fast in those of {batch:.0}",
        times(curve.seconds(now) / curve.seconds(batch))
    );
    let finding = Finding::new(Kind::BatchTooSmall, severity, headline, larger(input, model, better)).with_evidence(
        format!("{} in micro-batches of {now:.0}, {}", rate(model.rate_now()), input.range()),
        [("samples_per_s", model.rate_now()), ("micro_batch", now), ("better_micro_batch", batch)],
    );
    Some(with_memory(input, finding).with_prediction(prediction))
}

fn larger(input: &DiagnosisInput<'_>, model: &StepModel, better: Better) -> Change {
    let (now, batch) = (model.parts.micro_batch, better.batch());
    let of_batch = format!("batch_size = {batch:.0} (was {now:.0}); the samples of an optimizer step stay the same");
    match better {
        Better::WithinStep(_) => Change::new(of_batch).set(input.regrouping(batch as u64)),
        Better::OtherStatistics(_) => {
            let what = format!("{of_batch}, and the model's batch statistics change: another training run");
            Change::new(what).set(input.regrouping(batch as u64))
        }
        Better::BeyondStep(_) => Change::new(format!(
            "global_batch = {:.0} (was {:.0}): another training run, whose learning rate has to fit it",
            batch * model.ranks,
            model.parts.samples
        )),
    }
}

/// Adds the memory that is left unused.
fn with_memory(input: &DiagnosisInput<'_>, finding: Finding) -> Finding {
    let budget = input.stats.run.and_then(|run| run.memory_budget_bytes);
    let Some((reserved, budget)) = input.stats.reserved().zip(budget) else { return finding };
    let (reserved, budget) = (reserved as f64, budget as f64);
    finding.with_evidence(
        format!("the pools reserve {} of a budget of {}", bytes(reserved), bytes(budget)),
        [("reserved_bytes", reserved), ("memory_budget_bytes", budget)],
    )
}

pub(super) fn no_accumulation(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    let (asked, taken) = (run.global_batch? as f64, model.parts.samples);
    // Steps that record no samples are those of a program with its own loop.
    if taken <= 0.0 || taken >= REACHED * asked {
        return None;
    }
    let of_rank = asked / run.world_size.max(1) as f64;
    // The trainer cuts its batch into planned micro-batches, which may be larger than the batch.
    let now = model.parts.micro_batch.max(1.0);
    let planned = run.settings.map_or(now, |settings| (settings.batch_size as f64).min(of_rank).max(now));
    let batches = (of_rank / planned).ceil().max(1.0);
    let slower = input.curve().map_or(1.0, |curve| curve.seconds(planned) / curve.seconds(now));
    let larger = asked / taken;
    let was = model.as_is();
    // The optimizer and the program's loop come once for all samples.
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
        format!("optimizer steps take {taken:.0} samples in place of {asked:.0}: it is another training run");
    let change = Change::new(format!(
        "give the trainer batches of {of_rank:.0} samples, as `session.loader` does: the trainer cuts them into \
         {batches:.0} micro-batches and accumulates"
    ))
    .set(input.change(Setting::GradientAccumulation, SettingValue::Count(batches as u64)));
    let words = format!("{taken:.0} samples in a step over all ranks, {}", input.range());
    let finding = Finding::new(Kind::NoAccumulation, Severity::Warning, headline, change);
    let figures = [("samples_per_step", taken), ("global_batch", asked)];
    Some(finding.with_evidence(words, figures).with_prediction(prediction))
}

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
const ANY: [&str; 2] = [ProfileId::GENERIC, ProfileId::NATIVE];

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

/// Least measured speed-up by the library's kernels that is worth a finding.
const LIBRARY_IS_FASTER: f64 = 1.05;

pub(super) fn no_library(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let (model, run) = (input.model.as_ref()?, input.stats.run?);
    let settings = run.settings.as_ref()?;
    let share = model.parts.share(model.device?);
    if !run.device.is_gpu || settings.kernels.is_library() || share < MATTERS {
        return None;
    }
    let busy = format!("kernels are Burn's, and the device works for {} of a step, {}", percent(share), input.range());
    let busy = (busy, [("gpu_busy_share", share)]);
    let Some(speed_up) = run.library_speed_up else {
        let gain = LibraryGain::of_family(run.family?)?;
        let headline = format!("Burn's kernels, where NVIDIA's libraries were {gain}");
        let change = Change::new(
            "import modules from `gpu_tuned::nn` in place of `burn::nn`, and set kernels = \"library\"; the results of the run \
             change by rounding, and the gain needs the library on this machine, which the command shows",
        )
        .by("cargo gpu-tuned targets --here");
        // The recorded steps do not show how much of their time is in such modules.
        return Some(Finding::new(Kind::NoLibrary, Severity::Warning, headline, change).with_evidence(busy.0, busy.1));
    };
    if speed_up < LIBRARY_IS_FASTER {
        return None;
    }
    let headline = format!("Burn's kernels, where the library's were measured {} as fast", times(speed_up));
    let how =
        format!("the device's part {} as fast, as `cargo gpu-tuned measure` found on this device", times(speed_up));
    let prediction = input.predict(model.with_faster_device(speed_up), how)?;
    let what = "kernels = \"library\"; the results of the run change by rounding";
    let change = Change::new(what).set(input.change(Setting::Kernels, SettingValue::Kernels(Kernels::Library)));
    let finding = Finding::new(Kind::NoLibrary, prediction.severity(), headline, change).with_evidence(busy.0, busy.1);
    Some(finding.with_prediction(prediction))
}

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

/// Reason that sessions of older versions record, without the features of the build.
const WITHOUT_CUDA: &str = "built without feature `cuda`";
/// Feature of programs that train on CUDA.
const CUDA: &str = "cuda";

/// Returns the features to build with, where the program trains on the CPU because `cuda` is not among them.
fn features_with_cuda(input: &DiagnosisInput<'_>) -> Option<String> {
    let run = input.stats.run.filter(|run| !run.device.is_gpu)?;
    let is_recorded = || run.fallbacks.iter().any(|reason| reason.contains(WITHOUT_CUDA));
    let has_cuda = run.features.iter().any(|feature| feature == CUDA);
    if has_cuda || (run.features.is_empty() && !is_recorded()) {
        return None;
    }
    let targets = || run.target.iter().flat_map(|target| target.split(" + ").map(str::to_owned)).collect();
    let features: Vec<String> = if run.features.is_empty() { targets() } else { run.features.clone() };
    let present = input.stats.start.iter().flat_map(|start| &start.gpus).find_map(|gpu| gpu.profile.clone());
    // A generic build is for the CPU, too.
    let is_generic = features.iter().all(|feature| feature == ProfileId::GENERIC);
    let features = if is_generic { vec![present?] } else { features };
    Some(features.into_iter().chain([CUDA.to_owned()]).collect::<Vec<_>>().join(","))
}

pub(super) fn no_cuda(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let features = features_with_cuda(input)?;
    let run = input.stats.run?;
    let target = run.target.as_deref().unwrap_or("generic");
    let what =
        "build with the feature `cuda`, for which the package has `cuda = [\"gpu-tuned/cuda\"]` under [features]";
    let change = Change::new(what).by(format!("cargo run --release --features {features}"));
    let finding = Finding::new(
        Kind::NoCuda,
        Severity::Critical,
        "built without feature `cuda`: training runs on the CPU",
        change,
    );
    Some(finding.with_evidence(format!("target {target}; device {}", run.device.name), []))
}

pub(super) fn wrong_target(input: &DiagnosisInput<'_>) -> Option<Finding> {
    let run = input.stats.run?;
    let target = run.target.as_deref().filter(|target| !ANY.contains(target))?;
    let device = &run.device;
    if device.profile.as_deref() == Some(target) || features_with_cuda(input).is_some() {
        return None;
    }
    let (severity, change) = match &device.profile {
        _ if !device.is_gpu => {
            let what = match &run.fallbacks[..] {
                [] => {
                    "train on the GPU that the build is for: is there a driver, and does CUDA_VISIBLE_DEVICES hide the GPU?"
                }
                _ => {
                    "train on the GPU that the build is for, without the reason above; the command shows which GPUs there are"
                }
            };
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
