//! Splitting a step into micro-batches must not change the results.
//!
//! Plain SGD, because Adam's division by the gradient's size would hide a wrong scale.

use burn::{
    data::{dataloader::batcher::Batcher, dataset::Dataset},
    module::{Module, ModuleVisitor, Param},
    optim::SgdConfig,
    tensor::{Device, Tensor},
};
use digits::{
    data::{Digit, DigitBatcher, Digits},
    model::{Model, ModelConfig},
    training::loss,
};
use gpu_tuned::train::Trainer;

const STEPS: usize = 20;
const STEP_SAMPLES: usize = 64;
const LEARNING_RATE: f64 = 0.003;
const TOLERANCE: f32 = 1e-4;

#[test]
fn equal_parts_and_ragged_parts_learn_the_same_as_one_batch() {
    device().seed(1);
    let initial = ModelConfig::new().with_blocks(2).init(&device());
    // Burn draws a parameter when it is first read.
    let before = parameters(&initial);
    let whole = trained(&initial, STEP_SAMPLES);
    assert!(difference(&before, &whole) > 20.0 * TOLERANCE, "training must move the parameters");

    for micro_batch in [16, 50] {
        let difference = difference(&whole, &trained(&initial, micro_batch));
        println!("{micro_batch}: parameters differ by at most {difference:e}");
        assert!(difference <= TOLERANCE, "micro-batches of {micro_batch}: parameters differ by {difference:e}");
    }
}

fn device() -> Device {
    Device::flex().autodiff()
}

/// The parameters after 20 steps of plain SGD, in such micro-batches.
fn trained(initial: &Model, micro_batch: usize) -> Vec<f32> {
    let images = Digits::load().unwrap().train;
    let mut trainer = Trainer::new(initial.clone(), SgdConfig::new().init(), device(), micro_batch);
    for step in 0..STEPS {
        let of_step: Vec<Digit> =
            (0..STEP_SAMPLES).map(|index| images.get(step * STEP_SAMPLES + index).unwrap()).collect();
        let batch = DigitBatcher.batch(of_step, &Device::flex());
        let taken = trainer.step(LEARNING_RATE, batch, loss).unwrap();
        assert_eq!((taken.samples, taken.micro_batches), (STEP_SAMPLES, STEP_SAMPLES.div_ceil(micro_batch)));
    }
    parameters(trainer.model())
}

fn parameters(model: &Model) -> Vec<f32> {
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    assert!(values.0.iter().all(|value| value.is_finite()), "a comparison of NaN would find no difference");
    values.0
}

fn difference(left: &[f32], right: &[f32]) -> f32 {
    assert_eq!(left.len(), right.len());
    left.iter().zip(right).map(|(left, right)| (left - right).abs()).fold(0.0, f32::max)
}

struct Values(Vec<f32>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().iter::<f32>());
    }
}
