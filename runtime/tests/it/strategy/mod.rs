//! The session's steps in Burn's training loop, against Burn's own.

mod checkpoints;
mod validation;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Linear, LinearConfig};
use burn::optim::SgdConfig;
use burn::tensor::{Device, Int, Tensor, TensorData};
use burn::train::logger::FileMetricLogger;
use burn::train::metric::LossMetric;
use burn::train::{
    ClassificationOutput, ExecutionStrategy, InferenceStep, Learner, LearningResult, SupervisedTraining, TrainOutput,
    TrainStep, TrainingStrategy,
};
use gpu_tuned::recording::{Record, read};
use gpu_tuned::train::TrainerError;
use gpu_tuned::{Options, Session, gpu_tuned};

const FEATURES: usize = 6;
const CLASSES: usize = 3;

/// Optimizer steps of 32 samples, in micro-batches of 8.
#[gpu_tuned(mlp(widths = [6, 3]), global_batch = 32, target = "generic")]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn session() -> Session<Config> {
    Options::default().cpu().start(Config { batch_size: 8 }).expect("it fits")
}

type Sample = ([f32; FEATURES], i64);
type Batch = (Tensor<2>, Tensor<1, Int>);

struct Rows;

impl Batcher<Sample, Batch> for Rows {
    fn batch(&self, samples: Vec<Sample>, device: &Device) -> Batch {
        let (inputs, targets): (Vec<_>, Vec<_>) = samples.into_iter().unzip();
        let (rows, inputs) = (inputs.len(), inputs.concat());
        (
            Tensor::from_data(TensorData::new(inputs, [rows, FEATURES]), device),
            Tensor::from_data(TensorData::new(targets, [rows]), device),
        )
    }
}

/// 80 samples: two whole steps of 32 and one of 16.
fn loader(device: &Device) -> Arc<dyn DataLoader<Batch>> {
    let sample = |index: usize| {
        let row = std::array::from_fn(|column| (index * 7 + column * 3) as f32 % 11.0 / 11.0);
        (row, [0, 1, 2][index % CLASSES])
    };
    let dataset = InMemDataset::new((0..80).map(sample).collect());
    DataLoaderBuilder::new(Rows).batch_size(32).set_device(device.clone()).build(dataset)
}

#[derive(Module, Debug)]
struct Classifier {
    layer: Linear,
    /// Calls of a training step that fail for want of memory.
    #[module(skip)]
    failing: Arc<AtomicUsize>,
    /// Those of an inference step.
    #[module(skip)]
    failing_in_validation: Arc<AtomicUsize>,
    #[module(skip)]
    largest: Arc<AtomicUsize>,
}

impl Classifier {
    fn new(device: &Device) -> Self {
        let layer =
            LinearConfig::new(FEATURES, CLASSES).with_initializer(burn::nn::Initializer::Constant { value: 0.1 });
        Self {
            layer: layer.init(device),
            failing: Arc::default(),
            failing_in_validation: Arc::default(),
            largest: Arc::default(),
        }
    }

    fn classified(&self, (input, targets): Batch) -> ClassificationOutput {
        let output = self.layer.forward(input);
        let loss = CrossEntropyLossConfig::new().init(&output.device()).forward(output.clone(), targets.clone());
        ClassificationOutput::new(loss, output, targets)
    }
}

impl TrainStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> TrainOutput<ClassificationOutput> {
        self.largest.fetch_max(batch.0.dims()[0], Ordering::Relaxed);
        let item = self.classified(batch);
        fail(&self.failing);
        TrainOutput::new(self, item.loss.backward(), item)
    }
}

impl InferenceStep for Classifier {
    type Input = Batch;
    type Output = ClassificationOutput;

    fn step(&self, batch: Batch) -> ClassificationOutput {
        fail(&self.failing_in_validation);
        self.classified(batch)
    }
}

/// Has no memory while there are failures left.
fn fail(left: &AtomicUsize) {
    let fails = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    assert!(fails.is_err(), "out of device memory allocating 1024 bytes");
}

fn trained(
    model: Classifier,
    strategy: TrainingStrategy<Classifier>,
    and: impl FnOnce(SupervisedTraining<Classifier>) -> SupervisedTraining<Classifier>,
) -> LearningResult<Classifier> {
    let folder = tempfile::tempdir().expect("a folder");
    let device = Device::flex();
    let training = SupervisedTraining::new(folder.path(), loader(&device.clone().autodiff()), loader(&device))
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .with_application_logger(None)
        .with_training_strategy(strategy)
        .num_epochs(3);
    and(training).launch(Learner::new(model, SgdConfig::new().init(), 0.5))
}

fn weights(result: &LearningResult<Classifier>) -> Vec<f32> {
    result.model.layer.weight.val().into_data().iter::<f32>().collect()
}

#[test]
fn micro_batches_train_what_burns_own_loop_trains_from_whole_steps() {
    let device = session().device();
    let burns = trained(
        Classifier::new(&device),
        TrainingStrategy::Default(ExecutionStrategy::single(device.clone())),
        |training| training,
    );
    for failures in [0, 3] {
        let model = Classifier::new(&device);
        model.failing.store(failures, Ordering::Relaxed);
        let largest = model.largest.clone();
        let ours = trained(model, session().strategy().expect("one rank"), |training| training);
        assert!(ours.error.is_none(), "{:?}", ours.error);
        assert_eq!(largest.load(Ordering::Relaxed), 8);
        let apart = weights(&ours).into_iter().zip(weights(&burns)).map(|(ours, burns)| (ours - burns).abs());
        let furthest = apart.fold(0.0, f32::max);
        assert!(furthest < 1e-5, "{failures} failures: {furthest}");
    }
    assert!(weights(&burns).iter().any(|weight| (weight - 0.1).abs() > 0.05), "it learned something");
}

#[test]
fn what_never_fits_ends_training_with_the_reason() {
    let model = Classifier::new(&session().device());
    model.failing.store(usize::MAX, Ordering::Relaxed);
    let error = trained(model, session().strategy().expect("one rank"), |training| training)
        .error
        .expect("an error")
        .to_string();
    assert!(error.contains("nothing smaller"), "{error}");
}

#[test]
fn accumulating_twice_is_refused() {
    let model = Classifier::new(&session().device());
    let result = trained(model, session().strategy().expect("one rank"), |training| training.grads_accumulation(4));
    let error = result.error.expect("an error").to_string();
    assert!(error.contains("leave `grads_accumulation` out"), "{error}");
}

#[test]
fn a_recording_has_the_steps_and_burns_numbers() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let session = Options::default().cpu().record(&path).start(Config { batch_size: 8 }).expect("it fits");
    let logs = folder.path().join("logs");
    let logger = session.metric_logger(FileMetricLogger::new(&logs));
    let model = Classifier::new(&session.device());
    let result = trained(model, session.strategy().expect("one rank"), |training| training.with_metric_logger(logger));
    assert!(result.error.is_none(), "{:?}", result.error);
    drop((result, session));
    let (mut steps, mut values) = (Vec::new(), Vec::new());
    for record in read(&path).expect("a recording").records {
        match record {
            Record::Step(step) => steps.push(step),
            Record::Value(value) => values.push(value),
            _ => {}
        }
    }
    // Three epochs of 32, 32 and 16 samples.
    assert!(steps.iter().map(|step| step.step).eq(1..=9));
    assert!(steps.iter().map(|step| step.micro_batches).eq([4, 4, 2].into_iter().cycle().take(9)));
    for step in &steps {
        assert!(step.loss.is_none() && step.backward_s.is_none(), "Burn's loop knows them: {step:?}");
        assert!(step.loss_s.is_some_and(|seconds| seconds > 0.0) && step.gradient_norm > Some(0.0), "{step:?}");
    }
    let named = |name: &str| values.iter().filter(|value| value.name == name).collect::<Vec<_>>();
    assert_eq!(named("train/Loss").len(), 30, "one for each micro-batch");
    for name in ["train/epoch/Loss", "valid/epoch/Loss"] {
        let losses: Vec<_> = named(name).iter().map(|value| value.value).collect();
        assert!(losses.len() == 3 && losses[2] < losses[0], "{name}: {losses:?}");
    }
    assert!(logs.join("valid/epoch-3/Loss.log").exists(), "Burn's own logger goes on");
}

/// A plan for two ranks.
#[gpu_tuned(mlp(widths = [6, 3]), global_batch = 32, world_size = 2, target = "generic")]
#[derive(Clone, Debug)]
struct Ranks {
    #[tuned]
    batch_size: usize,
}

#[test]
fn a_step_that_ranks_share_is_not_taken_by_one_of_them_alone() {
    let session = Options::default().cpu().start(Ranks::default()).expect("it fits");
    let refused = session.trainer(Classifier::new(&session.device()), SgdConfig::new().init()).err();
    assert!(matches!(refused, Some(TrainerError::Ranks { world_size: 2 })), "{refused:?}");
    assert!(matches!(session.strategy::<Classifier>().err(), Some(TrainerError::Ranks { world_size: 2 })));
}
