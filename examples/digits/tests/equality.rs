//! How a step is split into micro-batches must not change what is learned.
//!
//! Plain SGD, because Adam's division by the gradient's size would hide a wrong scale.

use std::sync::Mutex;

use burn::{
    module::{Module, ModuleVisitor, Param},
    nn::loss::CrossEntropyLossConfig,
    optim::{GradientsAccumulator, GradientsParams, ModuleOptimizer, SgdConfig},
    tensor::{Device, Tensor},
};
use digits::{
    data::Digits,
    model::{Model, ModelConfig},
    steps::{Step, Steps},
    training::optimize,
};

const STEPS: usize = 20;
const LEARNING_RATE: f64 = 0.003;
const TOLERANCE: f32 = 1e-4;
const ORDER: u64 = 7;

type Optimize = fn(Model, &mut ModuleOptimizer, f64, &Step, &Device) -> (Model, Tensor<1>);

#[test]
fn equal_parts_and_ragged_parts_learn_the_same_as_one_batch() {
    let initial = initial_model();
    let whole = trained(&initial, &[64], optimize);
    assert!(difference(&parameters(&initial), &whole) > 20.0 * TOLERANCE, "training must move the parameters");

    for split in [&[16, 16, 16, 16][..], &[50, 14]] {
        let difference = difference(&whole, &trained(&initial, split, optimize));
        println!("{split:?}: parameters differ by at most {difference:e}");
        assert!(difference <= TOLERANCE, "{split:?} against [64]: parameters differ by {difference:e}");
    }
}

#[test]
fn micro_batches_that_all_count_the_same_learn_something_else() {
    let initial = initial_model();
    let whole = trained(&initial, &[64], optimize);

    for (name, unweighted) in [("sum of means", sum_of_means as Optimize), ("mean of means", mean_of_means)] {
        let difference = difference(&whole, &trained(&initial, &[50, 14], unweighted));
        println!("{name}: parameters differ by at most {difference:e}");
        assert!(difference > TOLERANCE, "{name}: the comparison does not see a wrong weight");
    }
}

#[test]
fn every_split_and_number_of_workers_gives_the_same_samples_in_the_same_order() {
    let train = Digits::load().unwrap().train;
    let epoch_labels = |split: &[usize], workers| {
        let steps = Steps::new(train.clone(), split, workers).unwrap();
        assert_eq!(steps.per_epoch(), 1437_usize.div_ceil(64));
        let steps: Vec<Step> = steps.epoch(ORDER).map(Result::unwrap).collect();
        assert_eq!(steps.last().unwrap().samples(), 1437 % 64, "the last step takes what is left");
        steps.iter().map(labels).collect::<Vec<_>>()
    };
    let whole = epoch_labels(&[64], 0);
    for (split, workers) in [(&[64][..], 3), (&[16, 16, 16, 16], 0), (&[50, 14], 1), (&[50, 14], 2)] {
        assert_eq!(epoch_labels(split, workers), whole, "{split:?} with {workers} workers");
    }
}

fn initial_model() -> Model {
    // The random numbers of a device are one sequence for the whole process, and tests run side by side.
    static DRAWING: Mutex<()> = Mutex::new(());
    let _drawing = DRAWING.lock();
    device().seed(1);
    let model = ModelConfig::new().init(&device());
    // Burn draws a parameter when it is first read.
    parameters(&model);
    model
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn labels(step: &Step) -> Vec<i64> {
    let device = Device::flex();
    let read =
        |batch: &digits::data::HostBatch| batch.to_device(&device).1.into_data().iter::<i64>().collect::<Vec<_>>();
    step.micro_batches.iter().flat_map(read).collect()
}

/// The parameters after 20 steps of plain SGD, each split as given.
fn trained(initial: &Model, split: &[usize], optimize: Optimize) -> Vec<f32> {
    let steps = Steps::new(Digits::load().unwrap().train, split, 0).unwrap();
    let mut optimizer = SgdConfig::new().init();
    let mut model = initial.clone();
    let mut taken = 0;
    for step in steps.epoch(ORDER).take(STEPS) {
        let step = step.unwrap();
        assert_eq!((step.micro_batches.len(), step.samples()), (split.len(), 64));
        (model, _) = optimize(model, &mut optimizer, LEARNING_RATE, &step, &device());
        taken += 1;
    }
    assert_eq!(taken, STEPS);
    parameters(&model)
}

/// Accumulation as it is often written: every micro-batch's own mean, added up.
fn sum_of_means(
    model: Model,
    optimizer: &mut ModuleOptimizer,
    rate: f64,
    step: &Step,
    device: &Device,
) -> (Model, Tensor<1>) {
    let mut accumulator = GradientsAccumulator::new();
    for batch in &step.micro_batches {
        let (images, labels) = batch.to_device(device);
        let loss = CrossEntropyLossConfig::new().init(device).forward(model.forward(images), labels);
        accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
    }
    (optimizer.step(rate, model, accumulator.grads()), Tensor::zeros([1], device))
}

/// The same, divided by the number of micro-batches: right for equal parts only.
fn mean_of_means(
    model: Model,
    optimizer: &mut ModuleOptimizer,
    rate: f64,
    step: &Step,
    device: &Device,
) -> (Model, Tensor<1>) {
    sum_of_means(model, optimizer, rate / step.micro_batches.len() as f64, step, device)
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
