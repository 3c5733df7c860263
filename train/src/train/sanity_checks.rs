//! Warnings about a training run that differs from its plan, or depends on it.

use std::collections::HashMap;
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param, ParamId};
use burn::tensor::Tensor;
use gpu_tuned_core::plan::{STATISTICS_FLOOR, Schedule};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Provenance, grouped};
use gpu_tuned_observe::log::warn_user;

use super::batch_statistics::BatchNorms;
use super::outcome::StepError;
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
    if !workload.batch_statistics && BatchNorms::of_model(model).exist {
        undeclared_statistics(schedule).iter().for_each(|text| warn_user(text));
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
    let warning = of_other_halves(whole.0, [first, second], rounding, samples);
    warning.iter().for_each(|text| warn_user(text));
    warning.is_some()
}

/// Warning for a loss of so many samples that is not the mean of the losses of its halves, given with their weights.
fn of_other_halves(whole: f64, halves: [(f64, f64); 2], rounding: f64, samples: usize) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Provenance::{Derived, Measured};

    use gpu_tuned_core::plan::Schedule;

    use super::{StepSizeCheck, another_model, of_other_halves, undeclared_statistics};

    #[test]
    fn losses_that_are_not_the_mean_of_their_halves_are_warned_of() {
        let warning = |whole, halves| of_other_halves(whole, halves, 1e-3, 8);
        for (whole, halves) in [
            (2.5, [(2.0, 4.0), (3.0, 4.0)]),
            // By targets: 6 x 2 and 2 x 4.
            (2.5, [(2.0, 6.0), (4.0, 2.0)]),
            // Nothing in a half.
            (2.0, [(2.0, 6.0), (0.0, 0.0)]),
            (f64::NAN, [(2.0, 4.0), (3.0, 4.0)]),
            (0.0, [(0.0, 4.0), (0.0, 4.0)]),
        ] {
            assert_eq!(warning(whole, halves), None);
        }
        let sum = warning(5.0, [(2.0, 4.0), (3.0, 4.0)]).expect("a sum");
        assert!(sum.contains("is 5.0000") && sum.contains("halves is 2.5000") && sum.contains("`.mean()`"), "{sum}");
        let other = warning(6.58, [(5.64, 4.0), (5.60, 4.0)]).expect("a contrastive loss");
        assert!(other.contains("whole_batch_loss"), "{other}");
    }

    #[test]
    fn undeclared_batch_norms_are_warned_of_if_a_step_is_cut_into_small_parts() {
        let warning = |global_batch, micro_batch| {
            let (world_size, share, drop_last) = (1, None, false);
            undeclared_statistics(&Schedule { global_batch, world_size, share, micro_batch, drop_last })
        };
        assert!(warning(64, 8).is_some_and(|text| text.contains("of 8 samples")));
        for (step, micro_batch) in [(8, 8), (64, 16), (512, 128)] {
            assert_eq!(warning(step, micro_batch), None);
        }
    }

    #[test]
    fn a_measured_count_must_match_and_a_description_may_be_off_by_a_tenth() {
        for (planned, trained, reported) in [
            ((1000, Derived), 1100, None),
            ((1000, Derived), 1101, Some("mend the description")),
            ((1000, Measured), 1000, None),
            ((1000, Measured), 999, Some("cargo gpu-tuned measure")),
        ] {
            let text = another_model(planned, trained);
            assert!(text.is_some() == reported.is_some(), "{text:?}");
            assert!(text.unwrap_or_default().contains(reported.unwrap_or_default()));
        }
    }

    #[test]
    fn two_micro_batches_in_a_row_are_warned_of_once() {
        let warnings = |step, given: &[usize]| {
            let mut watched = StepSizeCheck { step, micro_batch: 16, suspicious: 0 };
            given.iter().filter_map(|samples| watched.warning(*samples)).collect::<Vec<_>>()
        };
        let reported = warnings(512, &[16, 16, 16, 16, 16]);
        assert!(
            matches!(&reported[..], [text] if text.contains("given 16 samples") && text.contains("512 make a step")),
            "{reported:?}"
        );
        // The last step of an epoch, sequences by their tokens, and a step that is one micro-batch.
        for (step, given) in [(512, &[512, 16, 512, 16][..]), (512, &[15, 17, 15, 17]), (16, &[16, 16, 16])] {
            assert!(warnings(step, given).is_empty(), "{given:?}");
        }
    }
}
