//! Checkpoints of Burn's training loop: those that it writes with a strategy of its own, and runs that go on from them.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use burn::module::Module;
use burn::optim::lr_scheduler::exponential::ExponentialLrSchedulerConfig;
use burn::optim::{AdamWConfig, OptimizerRecord};
use burn::tensor::Device;
use burn::train::metric::LossMetric;
use burn::train::metric::store::{Aggregate, Direction, Split};
use burn::train::{
    ExecutionStrategy, Learner, LearningResult, MetricEarlyStoppingStrategy, StoppingCondition, SupervisedTraining,
    TrainStep, TrainingStrategy,
};
use gpu_tuned::Options;
use networks::Classifier;

use super::{Config, loader};

/// One with the parameters of `other` and their identifiers, which records have.
fn replica(other: &Classifier) -> Classifier {
    Classifier::new(&other.layer.weight.val().device()).load_record(other.clone().into_record())
}

/// Trains for at most so many epochs with checkpoints in `folder`. The learning rate falls with every step.
fn trained(
    folder: &Path,
    model: Classifier,
    strategy: TrainingStrategy<Classifier>,
    epochs: usize,
    and: impl FnOnce(SupervisedTraining<Classifier>) -> SupervisedTraining<Classifier>,
) -> LearningResult<Classifier> {
    let device = Device::flex();
    let training = SupervisedTraining::new(folder, loader(&device.clone().autodiff()), loader(&device))
        .metric_train_numeric(LossMetric::new())
        .metric_valid_numeric(LossMetric::new())
        .with_application_logger(None)
        .with_default_checkpointers()
        .with_training_strategy(strategy)
        .num_epochs(epochs);
    let rate = ExponentialLrSchedulerConfig::new(0.1, 0.9).init().expect("a rate that falls");
    let result = and(training).launch(Learner::new(model, AdamWConfig::new().init(), rate));
    assert!(result.error.is_none(), "{:?}", result.error);
    result
}

/// Micro-batches of whole steps.
fn strategy() -> TrainingStrategy<Classifier> {
    let session = Options::default().cpu().start(Config { batch_size: 32 }).expect("it fits");
    session.strategy().expect("one rank")
}

fn burns_own() -> TrainingStrategy<Classifier> {
    TrainingStrategy::Default(ExecutionStrategy::single(Device::flex().autodiff()))
}

/// Checkpoints by name. Those of optimizers are left empty: Burn writes their tensors in any order.
fn checkpoints(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    let files = fs::read_dir(folder.join("checkpoint")).expect("checkpoints").map(|file| file.expect("a file").path());
    let file = |path: PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).expect("a plain name").to_owned();
        let bytes = if name.starts_with("optim") { Vec::new() } else { fs::read(&path).expect("a checkpoint") };
        (name, bytes)
    };
    files.map(file).collect()
}

/// Model after a further step with the optimizer of a checkpoint.
fn further(folder: &Path, epoch: usize) -> Vec<f32> {
    let device = Device::flex().autodiff();
    let file = |name: &str| folder.join(format!("checkpoint/{name}-{epoch}.bpk"));
    let model = Classifier::new(&device).load_file(file("model"));
    let mut optimizer = AdamWConfig::new().init().load_record(OptimizerRecord::load(file("optim")).expect("a record"));
    let batch = loader(&device).iter().next().expect("a batch").expect("it is in memory");
    let gradients = TrainStep::step(&model, batch).grads;
    values(&optimizer.step(0.1, model, gradients))
}

fn values(model: &Classifier) -> Vec<f32> {
    networks::values(&model.layer.weight)
}

#[test]
fn stopping_early_it_leaves_the_checkpoints_that_burns_own_loop_leaves() {
    let first = Classifier::new(&Device::flex().autodiff());
    let [ours, burns] = [strategy(), burns_own()].map(|strategy| {
        let folder = tempfile::tempdir().expect("a folder");
        // The loss falls: it is highest in the first epoch.
        let stopping = MetricEarlyStoppingStrategy::new(
            &LossMetric::new(),
            Aggregate::Mean,
            Direction::Highest,
            Split::Valid,
            StoppingCondition::NoImprovementSince { n_epochs: 3 },
        );
        let result = trained(folder.path(), replica(&first), strategy, 9, |training| training.early_stopping(stopping));
        let valid = folder.path().join("valid");
        assert!(valid.join("epoch-4").exists() && !valid.join("epoch-5").exists());
        (values(&result.model), checkpoints(folder.path()), further(folder.path(), 4))
    });
    let names: Vec<_> = ours.1.keys().map(String::as_str).collect();
    let two = ["model-3.bpk", "model-4.bpk", "optim-3.bpk", "optim-4.bpk", "scheduler-3.bpk", "scheduler-4.bpk"];
    assert_eq!(names, two, "the last two, the last of which is the best");
    assert!(ours.1.keys().eq(burns.1.keys()));
    let different: Vec<_> =
        ours.1.iter().filter(|(name, bytes)| burns.1[*name] != **bytes).map(|(name, _)| name).collect();
    assert!(different.is_empty(), "{different:?}");
    assert_eq!((ours.0, ours.2), (burns.0, burns.2));
}

#[test]
fn a_run_that_goes_on_from_a_checkpoint_ends_as_one_that_was_never_ended() {
    let first = Classifier::new(&Device::flex().autodiff());
    let [undisturbed, folder] = [(); 2].map(|()| tempfile::tempdir().expect("a folder"));
    let right = trained(undisturbed.path(), replica(&first), strategy(), 4, |training| training);
    trained(folder.path(), replica(&first), strategy(), 1, |training| training);
    // Another model, which the checkpoint replaces.
    let model = Classifier::new(&Device::flex().autodiff());
    let resumed = trained(folder.path(), model, strategy(), 4, |training| training.checkpoint(1));
    assert_eq!(values(&resumed.model), values(&right.model));
    assert!(values(&right.model).iter().any(|weight| (weight - 0.1).abs() > 0.05), "it learned something");
    let [right, resumed] = [undisturbed.path(), folder.path()].map(|folder| {
        let files = checkpoints(folder);
        let last = ["model", "scheduler"].map(|name| files[&format!("{name}-4.bpk")].clone());
        (last, further(folder, 4))
    });
    assert!(resumed == right);
    let valid = folder.path().join("valid");
    assert!(valid.join("epoch-4").exists() && !valid.join("epoch-5").exists());
}
