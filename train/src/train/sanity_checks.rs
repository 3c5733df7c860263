//! Warnings about a training run that differs from its plan, or depends on it.

use burn::module::Module;
use burn::optim::GradientsParams;
use gpu_tuned_core::plan::Schedule;
use gpu_tuned_core::{Provenance, grouped};
use gpu_tuned_observe::log::warn_user;

use super::gradients::copied_all;
use crate::mixed::{Factor, add, global_norm};
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

/// Relative difference of gradients that rounding explains: in fp32, and in 16 bits.
const ROUNDING: [f64; 2] = [1e-4, 3e-2];

/// Warning for a loss whose gradients over some samples are not the mean of those over their halves, so that its steps depend
/// on the micro-batch. `whole`, `again` and `halves` are the gradients of these samples in one micro-batch, once more, and in two.
///
/// `None` for a loss with random numbers, whose gradients differ from call to call, and for gradients that cannot be read.
pub(super) fn of_other_halves<M: Module>(
    model: &M,
    samples: usize,
    is_half: bool,
    [whole, again, halves]: [GradientsParams; 3],
) -> Option<String> {
    let less = |sum: GradientsParams, gradients: &GradientsParams, factor: f64| {
        add(sum, copied_all(gradients, model), model, &Factor::Number(-factor), true).ok()
    };
    let norm = |gradients: &GradientsParams| global_norm(gradients, model)?.try_into_scalar::<f64>().ok();
    let largest = norm(&whole)?.max(norm(&halves)?);
    let rounding = ROUNDING[usize::from(is_half)] * largest;
    let apart = norm(&less(copied_all(&whole, model), &halves, 1.0)?)?;
    let is_random = norm(&less(again, &whole, 1.0)?)? > 0.1 * rounding;
    // Other warnings name gradients of NaN.
    if is_random || apart.is_nan() || apart <= rounding {
        return None;
    }
    let is_sum = norm(&less(whole, &halves, 2.0)?)? <= rounding;
    let remedy = if is_sum {
        "it is a sum: reduce the loss with `.mean()`, or return the sum divided by a weight, with the weight"
    } else {
        "return the loss with its weight if it is a mean over targets, or set `whole_batch_loss = true` in `#[gpu_tuned(…)]` if it \
         compares samples with each other"
    };
    Some(format!(
        "the gradients of {samples} samples differ by {:.2}% from the mean over their halves, so steps depend on the micro-batch; \
         {remedy}",
        100.0 * apart / largest
    ))
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Provenance::{Derived, Measured};

    use burn::optim::GradientsParams;
    use burn::tensor::{Device, Tensor};

    use super::{StepSizeCheck, another_model, of_other_halves};
    use crate::micro_batch::MicroBatch;
    use crate::train::tests::{Batch, Network, batch};

    #[test]
    fn gradients_that_are_not_the_mean_over_halves_are_warned_of() {
        let device = Device::flex().autodiff();
        let model = Network::new(&device, false);
        let warning = |loss: &dyn Fn(Batch) -> Tensor<1>| {
            let batch = batch(8, 0).on_device(&device);
            let of = |loss: Tensor<1>| GradientsParams::from_grads(loss.backward(), &model);
            let [whole, again] = [0, 1].map(|_| of(loss(batch.clone())));
            let halves = of((loss(batch.narrow(0..4)) + loss(batch.narrow(4..8))) / 2.0);
            of_other_halves(&model, 8, false, [whole, again, halves])
        };
        assert_eq!(warning(&|batch| model.loss(batch)), None);
        let sum = warning(&|batch| model.loss(batch.clone()) * batch.len() as f64).expect("a sum");
        assert!(sum.contains("differ by 50.00%") && sum.contains("`.mean()`"), "{sum}");
        let other = warning(&|batch| model.loss(batch).square()).expect("a square of a mean");
        assert!(other.contains("whole_batch_loss"), "{other}");
        let random =
            |batch: Batch| model.loss(batch) * Tensor::random([1], burn::tensor::Distribution::Default, &device);
        assert_eq!(warning(&random), None, "another factor in each call");
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
