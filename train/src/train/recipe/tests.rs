use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Tensor};

use super::{NotReady, Recipe};
use crate::mixed::Half;
use crate::train::trainer::Trainer;

fn in_bf16(not_ready: NotReady) -> Recipe {
    let mut recipe = Recipe::new(Device::flex().autodiff(), 4).when_not_ready(not_ready);
    recipe.half = Some(Half::Bf16);
    recipe
}

#[test]
fn a_model_that_is_not_ready_is_handled_before_the_first_step_of_the_process_only() {
    own_process::alone(a_model_that_is_not_ready_is_handled_before_the_first_step_of_the_process_only, drill);
}

fn drill() {
    let trainer = |not_ready| {
        let recipe = in_bf16(not_ready);
        let model: BatchNorm = BatchNormConfig::new(2).init(&recipe.stepper.device);
        Trainer::from_recipe(model, SgdConfig::new().init(), &recipe).map(drop)
    };
    let error = trainer(NotReady::default()).expect_err("it has statistics");
    let handled = || catch_unwind(AssertUnwindSafe(|| trainer(NotReady(Some(|reason| panic!("{reason}"))))));
    let reason = handled().expect_err("the handler panics");
    assert_eq!(reason.downcast_ref(), Some(&error.to_string()));

    // A first trainer has learned something that a second one must not throw away.
    let recipe = in_bf16(NotReady::default());
    let model: Linear = LinearConfig::new(2, 1).init(&recipe.stepper.device);
    let mut first = Trainer::with_stepper(model, SgdConfig::new().init(), recipe.stepper());
    let batch = Tensor::<2>::ones([4, 2], &recipe.stepper.device);
    first.step(0.1, batch, |model: &Linear, batch| model.forward(batch).mean()).expect("a step");
    let late = handled().expect("no handler is called");
    assert_eq!(late.expect_err("it has statistics").to_string(), error.to_string());
}
