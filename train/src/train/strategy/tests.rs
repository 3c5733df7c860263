//! Burn's loop in mixed precision, in a process of its own: a process has one default float type.

mod steps;

use std::path::Path;
use std::sync::{Arc, Mutex};

use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::{AdamWConfig, ModuleOptimizer, SgdConfig};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor};
use burn::train::metric::LossMetric;
use burn::train::{
    ClassificationOutput, InferenceStep, Learner, SupervisedTraining, TrainOutput, TrainStep, TrainingStrategy,
};
use gpu_tuned_core::Provenance;
use networks::{CLASSES, FEATURES, Labelled, values};

use super::{BatchCheck, PlannedSteps, differentiated};
use crate::device::default_float;
use crate::mixed::{F32State, Half, InF32, in_f32};
use crate::shape::visit_floats;
use crate::train::metrics::StepHistory;
use crate::train::recipe::Recipe;
use crate::train::tests::Weights;

const SAMPLES: usize = 80;
const STEP: usize = 32;
const WIDTH: usize = 8;

type Batch = (Tensor<2>, Tensor<1, Int>);

#[derive(Module, Debug)]
struct Classifier {
    first: Linear,
    norm: InF32<BatchNorm>,
    last: Linear,
}

impl Classifier {
    fn new(seed: u64) -> Self {
        let device = device();
        let layers = Self {
            first: LinearConfig::new(FEATURES, WIDTH).init(&device),
            norm: BatchNormConfig::new(WIDTH).init(&device).into(),
            last: LinearConfig::new(WIDTH, CLASSES).init(&device),
        };
        layers.map(&mut Weights(seed))
    }

    fn classified(&self, (input, targets): Batch) -> ClassificationOutput {
        assert_eq!([input.dtype(), self.first.weight.dtype(), self.last.weight.dtype()], [DType::BF16; 3]);
        let output = in_f32(self.last.forward(self.norm.forward(self.first.forward(input))));
        let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), targets.clone());
        ClassificationOutput::new(loss, output, targets)
    }
}

impl TrainStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        let item = self.classified(batch);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        self.classified(batch)
    }
}

fn device() -> Device {
    Device::flex().autodiff()
}

/// In bf16 mixed precision, with two micro-batches a step.
fn strategy(cuda_graphs: bool) -> TrainingStrategy<Classifier> {
    let mut recipe = Recipe::new(device(), STEP / 2);
    recipe.half = Some(Half::Bf16);
    recipe.cuda_graphs = cuda_graphs;
    TrainingStrategy::Custom(Arc::new(PlannedSteps {
        recipe,
        batch_check: BatchCheck { step: STEP, micro_batch: STEP / 2, is_specified: true },
        eval_batch: STEP as u64,
        parameters: (Classifier::new(0).num_params() as u64, Provenance::Derived),
        history: StepHistory::default(),
        first_step: Mutex::new(None),
    }))
}

/// Returns the model after some epochs, from the start or from a checkpoint in the folder. A resumed run asks for CUDA graphs,
/// and trains without: the CPU has none.
fn trained(folder: &Path, optimizer: ModuleOptimizer, epochs: usize, from: Option<usize>) -> Classifier {
    let loader = |device: Device| -> Arc<dyn DataLoader<Batch>> {
        DataLoaderBuilder::new(Labelled)
            .batch_size(STEP)
            .set_device(device)
            .build(InMemDataset::new((0..SAMPLES).collect()))
    };
    let training = SupervisedTraining::new(folder, loader(device()), loader(Device::flex()))
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .with_application_logger(None)
        .with_default_checkpointers()
        .with_training_strategy(strategy(from.is_some()))
        .num_epochs(epochs);
    let training = from.into_iter().fold(training, SupervisedTraining::checkpoint);
    // A checkpoint replaces another model.
    let model = Classifier::new(if from.is_some() { 100 } else { 7 });
    let result = training.launch(Learner::new(model, optimizer, 0.1));
    assert!(result.error.is_none(), "{:?}", result.error);
    result.model
}

/// Returns true if all values of a model are fp32.
fn is_wide(model: &Classifier) -> bool {
    visit_floats!(model, is_wide = true, bool, |param| *is_wide &= param.dtype() == DType::F32)
}

/// Checks the content of a checkpoint, and the results of runs that resume from it.
fn checkpoints() {
    // Without a state, which is not loaded where the CPU computes in 16 bits.
    let plain = || F32State::new(SgdConfig::new().build()).into();
    let [undisturbed, folder] = [(); 2].map(|()| tempfile::tempdir().unwrap());
    let right = trained(undisturbed.path(), plain(), 4, None);
    let first = trained(folder.path(), plain(), 1, None);
    let saved = Classifier::new(100).load_file(folder.path().join("checkpoint/model-1.bpk"));
    let resumed = trained(folder.path(), plain(), 4, Some(1));
    assert!([&right, &first, &saved, &resumed].into_iter().all(is_wide));
    // Running statistics are parameters of this visitor.
    assert_eq!(values(&saved), values(&first));
    assert_eq!(values(&resumed), values(&right));
    assert_ne!(values(&first), values(&right), "it learned");

    // An optimizer with a state restarts from zero, and mixes no types.
    let with_state = || F32State::new(AdamWConfig::new().build()).into();
    let folder = tempfile::tempdir().unwrap();
    let first = trained(folder.path(), with_state(), 1, None);
    let resumed = trained(folder.path(), with_state(), 2, Some(1));
    assert!(is_wide(&resumed) && values(&resumed) != values(&first));
}

#[test]
#[ignore = "started by another test, because Burn's log is one for the process"]
fn starts_with_accumulation() {
    let folder = tempfile::tempdir().unwrap();
    let loader = |device| -> Arc<dyn DataLoader<Batch>> {
        DataLoaderBuilder::new(Labelled).batch_size(STEP).set_device(device).build(InMemDataset::new(vec![0; SAMPLES]))
    };
    let training = SupervisedTraining::new(folder.path(), loader(device()), loader(Device::flex()))
        .with_training_strategy(strategy(false))
        .grads_accumulation(2);
    let result = training.launch(Learner::new(Classifier::new(7), AdamWConfig::new().init(), 0.1));
    assert!(result.error.is_some());
}

#[test]
fn an_error_that_ends_training_is_printed_beside_burns_log() {
    let output = own_process::run(&mut own_process::command(starts_with_accumulation));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(text.contains("gpu-tuned: training stopped: ") && text.contains("remove `grads_accumulation`"), "{text}");
}

#[test]
fn burns_loop_in_mixed_precision_saves_f32_and_goes_on_as_if_it_had_not_ended() {
    own_process::alone(burns_loop_in_mixed_precision_saves_f32_and_goes_on_as_if_it_had_not_ended, || {
        default_float(&Device::flex(), FloatDType::BF16).expect("nothing was computed before");
        checkpoints();
    });
}

#[derive(Module, Debug)]
struct Pair {
    first: Linear,
    second: Linear,
}

#[test]
fn every_parameter_counts_and_those_without_autodiff_do_not() {
    let layer = |device: &Device| LinearConfig::new(2, 2).with_bias(false).init(device);
    let plain = Device::flex();
    let (kept, recomputed) = (plain.clone().autodiff(), plain.clone().autodiff().gradient_checkpointing());
    let strategies = |first: &Device, second: &Device| {
        let pair = Pair { first: layer(first), second: layer(second) };
        differentiated(&pair).iter().map(Device::gradient_checkpointing_strategy).collect::<Vec<_>>()
    };
    assert_eq!(strategies(&plain, &kept), [kept.gradient_checkpointing_strategy()]);
    let both = [&kept, &recomputed].map(Device::gradient_checkpointing_strategy);
    assert!(both[0] != both[1]);
    assert_eq!(strategies(&kept, &recomputed), both);
}
