//! Warnings about a training run that differs from its plan.

use burn::module::Module;
use gpu_tuned_core::plan::Schedule;
use gpu_tuned_core::{Provenance, grouped};
use gpu_tuned_observe::log::warn_user;

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

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Provenance::{Derived, Measured};

    use super::{StepSizeCheck, another_model};

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
