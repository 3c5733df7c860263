//! What is told where a program trains something else than what was planned.

use burn::module::Module;
use gpu_tuned_core::{Provenance, grouped};

use crate::measure::parameters;
use crate::session::Session;
use crate::tuned::Tuned;
use gpu_tuned_observe::log;

/// Tells, if training changes other parameters than those that were `planned` for.
pub(super) fn tell_of_another_model<M: Module>(planned: (u64, Provenance), model: &M) {
    if let Some(text) = another_model(planned, parameters(model)) {
        log::warn_user(&text);
    }
}

/// A description may be off by a tenth, as biases and norms are left out of some; what was counted may not.
fn another_model((planned, provenance): (u64, Provenance), trained: u64) -> Option<String> {
    let is_counted = provenance == Provenance::Measured;
    let most = if is_counted { 0 } else { planned / 10 };
    let (model, remedy) = if is_counted {
        ("that was measured", "measure it again, with `cargo gpu-tuned measure`")
    } else {
        ("that is planned for", "mend the description in `#[gpu_tuned(…)]`, and measure again")
    };
    (planned.abs_diff(trained) > most).then(|| {
        format!(
            "the model {model} is one in which training changes {} parameters, and in this one it changes {}: {remedy}",
            grouped(planned),
            grouped(trained)
        )
    })
}

/// Whether steps are given the micro-batches of larger ones: as Burn's loaders cut them, where the tuned `batch_size` is
/// taken for the batch.
#[derive(Clone, Copy, Debug)]
pub(super) struct PartialSteps {
    step: u64,
    micro_batch: u64,
    /// In a row; one may be the last step of an epoch.
    seen: u32,
}

impl PartialSteps {
    pub(super) fn of<C: Tuned>(session: &Session<C>) -> Self {
        let schedule = session.schedule();
        Self { step: schedule.samples_per_rank(), micro_batch: schedule.micro_batch, seen: 0 }
    }

    /// What there is to tell of a step over so many samples, once.
    pub(super) fn doubt(&mut self, samples: usize) -> Option<String> {
        let Self { step, micro_batch, seen } = *self;
        let is_part = samples as u64 == micro_batch && micro_batch < step;
        self.seen = if is_part { seen.saturating_add(1) } else { 0 };
        (self.seen == 2).then(|| {
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

    use super::{PartialSteps, another_model};

    #[test]
    fn what_was_counted_is_another_model_by_one_parameter_and_what_was_described_by_a_tenth() {
        for (planned, trained, told) in [
            ((1000, Derived), 1100, None),
            ((1000, Derived), 1101, Some("mend the description")),
            ((1000, Measured), 1000, None),
            ((1000, Measured), 999, Some("cargo gpu-tuned measure")),
        ] {
            let text = another_model(planned, trained);
            assert!(text.is_some() == told.is_some(), "{text:?}");
            assert!(text.unwrap_or_default().contains(told.unwrap_or_default()));
        }
    }

    #[test]
    fn two_micro_batches_in_a_row_are_doubtful_and_told_of_once() {
        let doubts = |step, given: &[usize]| {
            let mut watched = PartialSteps { step, micro_batch: 16, seen: 0 };
            given.iter().filter_map(|samples| watched.doubt(*samples)).collect::<Vec<_>>()
        };
        let told = doubts(512, &[16, 16, 16, 16, 16]);
        assert!(
            matches!(&told[..], [text] if text.contains("given 16 samples") && text.contains("512 make a step")),
            "{told:?}"
        );
        // The last step of an epoch, sequences by their tokens, and a step that is one micro-batch.
        for (step, given) in [(512, &[512, 16, 512, 16][..]), (512, &[15, 17, 15, 17]), (16, &[16, 16, 16])] {
            assert!(doubts(step, given).is_empty(), "{given:?}");
        }
    }
}
