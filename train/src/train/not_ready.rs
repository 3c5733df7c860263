//! Models that are not ready for the planned 16 bits.

use super::outcome::StepError;
use super::stepper::Stepper;
use crate::mixed::MixedError;

/// Handler of a model that is not ready for 16 bits: gets the reason and the edit to make, before the first step is
/// applied, and ends the process. Without a handler, the reason is an error.
#[derive(Clone, Copy, Debug, Default)]
pub struct NotReady(pub Option<fn(&str) -> !>);

impl NotReady {
    /// Calls the handler; returns without one.
    pub fn report(self, reason: &MixedError) {
        if let Self(Some(handler)) = self {
            handler(&reason.to_string())
        }
    }
}

impl Stepper {
    /// Returns why the model is not ready for 16 bits, if the error is that of a first step.
    pub(super) fn unready<'e>(&self, error: &'e StepError) -> Option<&'e MixedError> {
        match error {
            StepError::Mixed(mixed) if self.steps == 0 => Some(mixed),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
    use burn::optim::SgdConfig;
    use burn::tensor::{DType, Device, Tensor};

    use super::NotReady;
    use crate::mixed::{Half, MixedError};
    use crate::train::outcome::StepError;
    use crate::train::recipe::Recipe;
    use crate::train::trainer::Trainer;

    fn in_bf16(not_ready: NotReady) -> Recipe {
        let mut recipe = Recipe::new(Device::flex().autodiff(), 4).when_not_ready(not_ready);
        recipe.half = Some(Half::Bf16);
        recipe
    }

    #[test]
    fn statistics_in_16_bits_are_handled_before_the_first_step_or_are_an_error() {
        let trainer = |not_ready| {
            let recipe = in_bf16(not_ready);
            let model: BatchNorm = BatchNormConfig::new(2).init(&recipe.device);
            let trainer = Trainer::with_stepper(model, SgdConfig::new().init(), recipe.stepper());
            trainer.in_precision_of(&recipe).map(drop)
        };
        let error = trainer(NotReady::default()).expect_err("it has statistics");
        let handled = catch_unwind(AssertUnwindSafe(|| trainer(NotReady(Some(|reason| panic!("{reason}"))))));
        let reason = handled.expect_err("the handler panics");
        assert_eq!(reason.downcast_ref(), Some(&error.to_string()));
    }

    #[test]
    fn mixed_types_are_handled_in_the_first_step_only() {
        let recipe = in_bf16(NotReady::default());
        let model: Linear = LinearConfig::new(2, 1).init(&recipe.device);
        let mut stepper = recipe.stepper();
        let mixed =
            || MixedError::MixedTypes { path: "weight".to_owned(), parameter: DType::BF16, gradient: DType::F32 };
        let error = StepError::Mixed(mixed());
        assert!(stepper.unready(&error).is_some());
        assert!(stepper.unready(&StepError::Empty).is_none());
        let mut trainer = Trainer::with_stepper(model, SgdConfig::new().init(), recipe.stepper());
        let batch = Tensor::<2>::ones([4, 2], &recipe.device);
        trainer.step(0.1, batch, |model: &Linear, batch| model.forward(batch).mean()).expect("a step");
        std::mem::swap(&mut stepper, &mut trainer.stepper);
        assert!(stepper.unready(&error).is_none());
    }
}
