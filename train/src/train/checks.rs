//! Checks of a training run: differences from its plan, losses that depend on it, and skipped steps.

use std::collections::HashMap;
use std::ops::Range;
use std::time::{Duration, Instant};

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use gpu_tuned_core::plan::{STATISTICS_FLOOR, Schedule};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Provenance, grouped};
use gpu_tuned_observe::log::warn_user;

use super::buffers::BatchNorms;
use super::health::LayerHealth;
use super::outcome::{Step, StepError};
use crate::device::catching;
use crate::loss::Loss;
use crate::micro_batch::MicroBatch;
use crate::mixed::{ModulePath, track_path};
use crate::shape::parameters;

/// Warns if training changes another number of parameters than was `planned`.
pub(super) fn check_parameters<M: Module>(planned: (u64, Provenance), model: &M) {
    if let Some(text) = another_model(planned, parameters(model)) {
        warn_user(&text);
    }
}

/// Warning for a model with other parameters. A description may be off by 10%, because some omit biases and norms. A
/// measured count must match.
fn another_model((planned, provenance): (u64, Provenance), trained: u64) -> Option<String> {
    let is_counted = provenance == Provenance::Measured;
    let most = if is_counted { 0 } else { planned / 10 };
    let (model, remedy) = if is_counted {
        ("measured", "measure it again, with `cargo gpu-tuned measure`")
    } else {
        ("planned", "mend the description in `#[gpu_tuned(…)]`, and measure again")
    };
    (planned.abs_diff(trained) > most).then(|| {
        format!(
            "this model has {} trained parameters, the {model} one has {}: {remedy}",
            grouped(trained),
            grouped(planned)
        )
    })
}

/// Warns of batch norms that the description does not have: their micro-batch was planned without a floor.
pub(super) fn check_statistics<M: Module>(workload: &Workload, schedule: &Schedule, model: &M) {
    if !workload.batch_statistics
        && BatchNorms::from_model(model).exist
        && let Some(text) = undeclared_statistics(schedule)
    {
        warn_user(&text);
    }
}

/// Warning for batch norms whose statistics are computed from few samples, where a step has more.
fn undeclared_statistics(schedule: &Schedule) -> Option<String> {
    let smallest = schedule.micro_batches().min()?;
    (schedule.micro_steps() > 1 && smallest < STATISTICS_FLOOR).then(|| {
        format!(
            "the model has batch norms, which its description lacks, and micro-batches of {smallest} samples: declare \
             `batch_statistics = true` in `#[gpu_tuned(…)]`, and they get {STATISTICS_FLOOR} or more where these fit"
        )
    })
}

/// Checks that no two modules have one trained parameter: optimizers update one of the copies, and a copy in 16 bits or on
/// another rank has its own gradient.
///
/// # Errors
///
/// [`StepError::Repeated`] with the paths of the first such parameter.
pub(super) fn check_repeated<M: Module>(model: &M) -> Result<(), StepError> {
    let mut trained = Trained::default();
    model.visit(&mut trained);
    trained.repeated.map_or(Ok(()), |(first, second)| Err(StepError::Repeated { first, second }))
}

/// Paths of trained parameters.
#[derive(Default)]
struct Trained {
    paths: HashMap<ParamId, String>,
    repeated: Option<(String, String)>,
    path: ModulePath,
}

impl ModuleVisitor for Trained {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad()
            && let Some(first) = self.paths.insert(param.id, self.path.path())
        {
            self.repeated.get_or_insert((first, self.path.path()));
        }
    }
}

/// Check for steps that get one micro-batch where the plan has several, as from a Burn loader that was given the tuned
/// `batch_size`.
#[derive(Clone, Copy, Debug)]
pub(super) struct StepSizeCheck {
    /// Samples of a step on this rank.
    step: u64,
    micro_batch: u64,
    /// Suspicious steps in a row. A single one may be the last step of an epoch.
    suspicious: u32,
}

impl StepSizeCheck {
    pub(super) fn new(schedule: &Schedule) -> Self {
        Self { step: schedule.samples_per_rank(), micro_batch: schedule.micro_batch, suspicious: 0 }
    }

    /// Counts a step of so many samples. Returns a warning, once.
    pub(super) fn warning(&mut self, samples: usize) -> Option<String> {
        let Self { step, micro_batch, suspicious } = *self;
        let is_part = samples as u64 == micro_batch && micro_batch < step;
        self.suspicious = if is_part { suspicious.saturating_add(1) } else { 0 };
        (self.suspicious == 2).then(|| {
            self.micro_batch = u64::MAX;
            format!(
                "optimizer steps are given {samples} samples, the planned micro-batch, where {step} make a step: another training \
                 run than was asked for. Give a step all its samples, as `session.loader` loads them, and the trainer cuts them; or \
                 ask for `global_batch = {samples}` in `#[gpu_tuned(…)]`"
            )
        })
    }
}

/// Relative difference of losses that rounding explains: in fp32, and in 16 bits.
const ROUNDING: [f64; 2] = [1e-3, 3e-2];

/// Warns if the loss of some samples is not the mean of the losses of its halves, weighted by samples or by the losses' own
/// weights. The steps of such a loss depend on the micro-batch.
///
/// Computes four forward passes without autodiff, in which neither dropout nor batch statistics play a part. A loss that
/// cannot be computed so, or that draws random numbers, is not checked. Returns true if it warned.
pub(super) fn check_halves<B: MicroBatch>(batch: &B, is_mixed: bool, loss: impl Fn(B) -> Loss) -> bool {
    let (samples, half) = (batch.len(), batch.len() / 2);
    if half == 0 {
        return false;
    }
    let read = |range: Range<usize>| -> Option<(f64, f64)> {
        let samples = range.len() as f64;
        let (mean, weight) = catching(|| loss(batch.narrow(range))).ok()?.into_parts();
        let weight = weight.map_or(Some(samples), |weight| weight.read().ok())?;
        // The mean over nothing may be NaN.
        let mean = if weight == 0.0 { 0.0 } else { mean.try_into_scalar::<f64>().ok()? };
        Some((mean, weight))
    };
    let all = [0..samples, 0..half, half..samples, 0..samples].map(|range| catching(|| read(range)).ok().flatten());
    let [Some(whole), Some(first), Some(second), Some(again)] = all else { return false };
    let rounding = ROUNDING[usize::from(is_mixed)];
    // A loss with random numbers is another one each time.
    if (again.0 - whole.0).abs() > 0.1 * rounding * whole.0.abs() {
        return false;
    }
    let warning = describe_other_halves(whole.0, [first, second], rounding, samples);
    if let Some(text) = &warning {
        warn_user(text);
    }
    warning.is_some()
}

/// Warning for a loss of so many samples that is not the mean of the losses of its halves, given with their weights.
fn describe_other_halves(whole: f64, halves: [(f64, f64); 2], rounding: f64, samples: usize) -> Option<String> {
    let sum: f64 = halves.iter().map(|(mean, weight)| mean * weight).sum();
    let weight: f64 = halves.iter().map(|(_, weight)| weight).sum();
    let expected = sum / weight;
    let (apart, largest) = ((whole - expected).abs(), whole.abs().max(expected.abs()));
    // Other warnings name losses of NaN.
    if apart.is_nan() || apart <= rounding * largest {
        return None;
    }
    let is_sum = (whole - halves[0].0 - halves[1].0).abs() <= rounding * largest;
    let remedy = if is_sum {
        "it is a sum: reduce the loss with `.mean()`, or return the sum divided by a weight, with the weight"
    } else {
        "return the loss with its weight if it is a mean over targets, or set `whole_batch_loss = true` in `#[gpu_tuned(…)]` if it \
         compares samples with each other"
    };
    Some(format!(
        "the loss of {samples} samples is {whole:.4}, and the mean of the losses of their halves is {expected:.4}, so steps depend on \
         the micro-batch; {remedy}"
    ))
}

/// Skipped steps in a row that end training.
const MAX_IN_A_ROW: u32 = 100;
/// Skipped steps before a report.
const FIRST_REPORT: u32 = 3;
/// Skipped steps before a report while a loss scale adapts: it may halve sixteen times from 65536.
const FIRST_REPORT_WITH_SCALE: u32 = 20;
/// Applied steps in a row after which skipped ones are forgotten. A loss scale grows and fails once in 2000 steps.
const FORGOTTEN_AFTER: u32 = 1000;
/// Shortest interval between two reports.
const INTERVAL: Duration = Duration::from_mins(1);

/// Counts of skipped steps.
#[derive(Clone, Debug, Default)]
pub(super) struct Skips {
    /// True while losses are multiplied by a loss scale, which skipped steps adapt.
    pub scales_loss: bool,
    in_a_row: u32,
    /// Since the last report.
    unreported: u32,
    /// Applied steps in a row.
    applied: u32,
    reported: Option<Instant>,
}

impl Skips {
    /// Returns true if the last step was skipped and a report is due.
    pub(super) fn is_due(&self) -> bool {
        let first = if self.scales_loss { FIRST_REPORT_WITH_SCALE } else { FIRST_REPORT };
        let is_quiet = self.reported.is_none_or(|reported| reported.elapsed() >= INTERVAL);
        self.in_a_row > 0 && self.unreported >= first && is_quiet
    }

    /// Warns of the steps skipped since the last report. The first gradient that is not finite is that of `cause`.
    pub(super) fn warn(&mut self, number: u64, step: &Step, cause: Option<&LayerHealth>) {
        self.reported = Some(Instant::now());
        let skipped = std::mem::take(&mut self.unreported);
        let why = match cause {
            _ if step.weight == 0.0 => "all losses have weight 0, so nothing is learned from them".to_owned(),
            Some(LayerHealth { path, nan, infinite, values, .. }) => format!(
                "gradients are not finite, first that of `{path}` ({nan} NaN and {infinite} infinite of {values} values); lower the \
                 learning rate, or look for a division by zero in the loss"
            ),
            None => "the norm of the gradients is not finite; lower the learning rate".to_owned(),
        };
        warn_user(&format!(
            "{skipped} steps were skipped since the last report, and now step {number}, with a loss of {}: {why}; training ends \
             after {MAX_IN_A_ROW} skipped steps in a row",
            step.loss
        ));
    }

    /// Counts a step that has ended.
    ///
    /// # Errors
    ///
    /// [`StepError::NotFinite`] after too many skipped steps in a row.
    pub(super) fn count(&mut self, step: &Step) -> Result<(), StepError> {
        if step.applied {
            self.applied += 1;
            self.in_a_row = 0;
            if self.applied >= FORGOTTEN_AFTER {
                self.unreported = 0;
            }
            return Ok(());
        }
        self.applied = 0;
        self.in_a_row += 1;
        self.unreported += 1;
        if self.in_a_row < MAX_IN_A_ROW { Ok(()) } else { Err(StepError::NotFinite { steps: MAX_IN_A_ROW }) }
    }
}

#[cfg(test)]
mod tests;
