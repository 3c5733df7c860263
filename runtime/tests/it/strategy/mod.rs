//! The session's steps in Burn's training loop, against Burn's own.

mod checkpoints;
mod validation;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use burn::data::dataloader::{DataLoader, DataLoaderBuilder};
use burn::data::dataset::InMemDataset;
use burn::optim::SgdConfig;
use burn::tensor::{Device, Int, Tensor};
use burn::train::logger::FileMetricLogger;
use burn::train::metric::LossMetric;
use burn::train::{ExecutionStrategy, Learner, LearningResult, SupervisedTraining, TrainingStrategy};
use gpu_tuned::recording::{Record, read};
use gpu_tuned::train::TrainerError;
use gpu_tuned::{Options, Session};
use networks::{Classifier, Labelled, furthest, values};

type Batch = (Tensor<2>, Tensor<1, Int>);

// Optimizer steps of 32 samples, in micro-batches of 8.
config! { Config, mlp(widths = [6, 3]), global_batch = 32, target = "generic" }

fn session() -> Session<Config> {
    Options::default().cpu().start(Config { batch_size: 8 }).expect("it fits")
}

/// 80 samples: two whole steps of 32 and one of 16.
fn loader(device: &Device) -> Arc<dyn DataLoader<Batch>> {
    let dataset = InMemDataset::new((0..80).collect());
    DataLoaderBuilder::new(Labelled).batch_size(32).set_device(device.clone()).build(dataset)
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
    values(&result.model.layer.weight)
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
        let furthest = furthest(&weights(&ours), &weights(&burns));
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
    assert!(error.contains("remove `grads_accumulation`"), "{error}");
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

// A plan for two ranks.
config! { Ranks, mlp(widths = [6, 3]), global_batch = 32, world_size = 2, target = "generic" }

#[test]
fn a_step_that_ranks_share_is_not_taken_by_one_of_them_alone() {
    let session = Options::default().cpu().start(Ranks::default()).expect("it fits");
    let trainer = session.trainer(Classifier::new(&session.device()), SgdConfig::new().init());
    let refused = trainer.map(drop).expect_err("two ranks");
    assert!(matches!(refused, TrainerError::Ranks { world_size: 2 }), "{refused}");
    assert!(refused.to_string().contains("cargo gpu-tuned launch --ranks 2"), "{refused}");
    assert!(matches!(session.strategy::<Classifier>().err(), Some(TrainerError::Ranks { world_size: 2 })));
}
