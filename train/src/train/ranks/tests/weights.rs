//! Losses with weights on ranks, and steps in which ranks differ.

use burn::tensor::{FloatDType, Tensor};

use super::RATE;
use super::threads::{Failure, TestRank, run, run_all};
use crate::loss::Loss;
use crate::micro_batch::MicroBatch;
use crate::train::tests::{Batch, Network, batch, furthest, parameters, sgd, trainer};
use crate::train::{Step, StepError};

/// Class of rows without a target.
const PADDING: i64 = 0;

/// Mean over the rows with a target, NaN without any, and their number.
fn counted(model: &Network, (input, target): Batch) -> Loss {
    let counts = target.clone().not_equal_elem(PADDING);
    let number = counts.clone().int().sum();
    let rows = counts.dims()[0];
    let row =
        |row: usize| model.loss((input.clone().slice_dim(0, row..row + 1), target.clone().slice_dim(0, row..row + 1)));
    let losses = Tensor::cat((0..rows).map(row).collect(), 0).mask_fill(counts.bool_not(), 0.0);
    (losses.sum() / number.clone().cast(FloatDType::F32), number).into()
}

/// Batch of which only so many of the last rows have targets.
fn padded(samples: usize, targets: usize) -> Batch {
    let (input, target) = batch(samples, 4);
    let padding = samples - targets;
    (input, target.clamp_min(1).slice_fill(0..padding, PADDING))
}

/// A step over the rank's part of a batch.
fn step(rank: &TestRank, batch: &Batch, loss: fn(usize, &Network, Batch) -> Loss) -> Result<(Step, Vec<f32>), Failure> {
    let mut trainer = rank.trainer(Network::new(rank.device(), false), sgd())?;
    let own = batch.narrow(rank.part(batch.len()));
    let index = rank.index();
    let step = trainer.step(RATE, own, |model, micro| loss(index, model, micro))?;
    Ok((step, parameters(trainer.model())))
}

#[test]
fn ranks_without_targets_or_samples_contribute_nothing() {
    for (samples, targets) in [(9, 9), (9, 4), (9, 2), (1, 1)] {
        let mut alone = trainer(9);
        let right = alone.step(RATE, padded(samples, targets), counted).unwrap();
        let right_parameters = parameters(alone.model());
        for (step, parameters) in
            run_all(3, 2, move |rank| step(rank, &padded(samples, targets), |_, model, micro| counted(model, micro)))
        {
            assert!(step.applied && (step.loss - right.loss).abs() < 1e-5, "{step:?}, not {right:?}");
            assert!((step.gradient_norm - right.gradient_norm).abs() < 1e-5, "{step:?}, not {right:?}");
            assert!((step.weight - targets as f64).abs() < f64::EPSILON && step.samples == samples, "{step:?}");
            assert!(furthest(&parameters, &right_parameters) < 1e-6);
        }
    }
}

#[test]
fn a_step_without_targets_on_any_rank_is_not_applied() {
    let before = parameters(trainer(1).model());
    for (step, parameters) in run_all(2, 2, |rank| step(rank, &padded(8, 0), |_, model, micro| counted(model, micro))) {
        assert!(!step.applied && step.weight == 0.0 && step.loss == 0.0, "{step:?}");
        assert_eq!(parameters, before);
    }
}

/// Errors of two ranks with this loss.
fn refused(loss: fn(usize, &Network, Batch) -> Loss) -> Vec<Failure> {
    let ranks = run(&[4, 4], 2, move |rank| {
        let mut trainer = rank.trainer(Network::new(rank.device(), false), sgd())?;
        let before = parameters(trainer.model());
        let (index, own) = (rank.index(), batch(8, 0).narrow(rank.part(8)));
        let error = trainer.step(RATE, own, |model, micro| loss(index, model, micro)).unwrap_err();
        assert_eq!(parameters(trainer.model()), before);
        Err::<(), _>(error.into())
    });
    ranks.into_iter().map(Result::unwrap_err).collect()
}

#[test]
fn a_weight_of_one_rank_that_cannot_be_used_is_an_error_on_all() {
    // Message, and true if each rank finds the error.
    type Case = (fn(usize, &Network, Batch) -> Loss, &'static str, bool);
    let cases: [Case; 3] = [
        (
            |rank, model, micro| {
                let mean = model.loss(micro);
                if rank == 1 { Loss::new(mean, 2.0) } else { mean.into() }
            },
            "some losses of the step have a weight, and others have none",
            true,
        ),
        (
            |rank, model, micro| {
                let weight = Tensor::<1>::full([1], if rank == 1 { -1.0 } else { 5.0 }, &micro.0.device());
                (model.loss(micro), weight).into()
            },
            "a weight of the loss is -",
            true,
        ),
        (
            |rank, model, micro| {
                let weight = Tensor::<1>::full([1], 2.0, &micro.0.device());
                let weight = if rank == 1 { weight.cast(FloatDType::BF16) } else { weight };
                (model.loss(micro), weight).into()
            },
            "the weight of the loss is in BF16",
            false,
        ),
    ];
    for (loss, text, is_own) in cases {
        for error in refused(loss) {
            assert!(error.to_string().contains(text), "{error}");
            assert!(!is_own || matches!(error.downcast_ref(), Some(StepError::Weight(_))), "{error}");
        }
    }
}

/// Errors of two ranks of which the second one has another learning rate, or another number of steps.
fn apart(rates: [f64; 2], steps: [u64; 2]) -> Vec<Failure> {
    let ranks = run(&[4, 4], 2, move |rank| {
        let mut trainer = rank.trainer(Network::new(rank.device(), false), sgd())?;
        trainer.stepper.steps = steps[rank.index()];
        let before = parameters(trainer.model());
        let own = batch(8, 0).narrow(rank.part(8));
        let error = trainer.step(rates[rank.index()], own, Network::loss).unwrap_err();
        assert_eq!(parameters(trainer.model()), before);
        Err::<(), _>(error.into())
    });
    ranks.into_iter().map(Result::unwrap_err).collect()
}

#[test]
fn other_learning_rates_or_steps_of_ranks_are_errors_in_the_first_step() {
    // The last bit of a rate differs.
    let close = f64::from_bits(RATE.to_bits() + 1);
    for (rates, steps, name) in [
        ([RATE, 2.0 * RATE], [0, 0], "learning rate"),
        ([RATE, close], [0, 0], "learning rate"),
        ([RATE, RATE], [0, 1], "number of the step"),
        ([RATE, RATE], [100_000, 100_001], "number of the step"),
        ([RATE, f64::NAN], [0, 0], "learning rate of step 1 is NaN"),
    ] {
        for error in apart(rates, steps) {
            assert!(error.to_string().contains(name), "{error}, without {name}");
        }
    }
}
