//! The training loop: gradients of micro-batches are added up until an optimizer step is complete.

use std::time::Instant;

use burn::{
    data::{
        dataloader::DataLoaderBuilder,
        dataset::{Dataset, DatasetError},
    },
    lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig,
    module::Module,
    nn::loss::CrossEntropyLossConfig,
    optim::{AdamWConfig, GradientsAccumulator, GradientsParams, ModuleOptimizer},
    tensor::{Device, Int, Tensor, TensorReadError},
};
use gpu_tuned::measure::Subject;
use indicatif::ProgressBar;

use crate::{
    config::TrainingConfig,
    data::{DigitBatcher, Digits, HostBatch},
    model::Model,
    steps::{Step, Steps},
};

/// Why a training run stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// The micro-batches hold no samples.
    #[error("one optimizer step needs at least one sample")]
    EmptyStep,
    /// Burn takes no such learning rate or number of steps.
    #[error("no learning-rate schedule: {0}")]
    Schedule(String),
    /// Images could not be read.
    #[error("cannot read the images")]
    Data(#[from] DatasetError),
    /// A result could not be read from the device. An earlier failure, as of memory, shows here first.
    #[error("cannot read a result from the device")]
    Device(#[from] TensorReadError),
}

/// What a training run did.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Optimizer steps in one epoch.
    pub steps_per_epoch: usize,
    /// Optimizer steps in all.
    pub optimizer_steps: usize,
    /// Share of the held-out images that the trained network reads correctly, 0 to 1.
    pub accuracy: f64,
    /// Wall-clock time of training and measuring accuracy.
    pub seconds: f64,
}

/// Trains a new network; every optimizer step is split into micro-batches of the given sizes, in samples.
///
/// # Errors
///
/// See [`TrainingError`].
pub fn train(
    data: &Digits,
    config: &TrainingConfig,
    micro_batches: &[usize],
    device: &Device,
    bar: &ProgressBar,
) -> Result<Outcome, TrainingError> {
    let begin = Instant::now();
    let (device, plain_device) = (device.clone().autodiff(), device.clone().inner());
    device.seed(config.seed);
    let steps = Steps::new(data.train.clone(), micro_batches, config.num_workers).ok_or(TrainingError::EmptyStep)?;
    let optimizer_steps = steps.per_epoch() * config.num_epochs;
    let mut schedule = CosineAnnealingLrSchedulerConfig::new(config.learning_rate, optimizer_steps)
        .init()
        .map_err(TrainingError::Schedule)?;
    let mut optimizer = AdamWConfig::new().init();
    let mut model = config.model.init(&device);
    let mut accuracy = 0.0;

    bar.set_length((data.train.len() * config.num_epochs) as u64);
    for epoch in 1..=config.num_epochs {
        let mut loss_sum = Tensor::<1>::zeros([1], &plain_device);
        for (index, step) in steps.epoch(epoch_seed(config.seed, epoch)).enumerate() {
            bar.set_prefix(format!("epoch {epoch}/{}, step {}/{}", config.num_epochs, index + 1, steps.per_epoch()));
            let step = step?;
            let loss;
            (model, loss) = optimize(model, &mut optimizer, schedule.step().base(), &step, &device);
            loss_sum = loss_sum + loss;
            bar.inc(step.samples() as u64);
        }
        // The only reads of an epoch: between them the device runs ahead of the host.
        let loss = loss_sum.try_into_scalar::<f32>()? / steps.per_epoch() as f32;
        accuracy = evaluate(&model, data, config, &plain_device)?;
        bar.set_message(format!("loss {loss:.4}"));
        bar.suspend(|| eprintln!("epoch {epoch:>2}: loss {loss:.4}, held-out accuracy {:.2}%", accuracy * 100.0));
    }
    Ok(Outcome {
        steps_per_epoch: steps.per_epoch(),
        optimizer_steps,
        accuracy,
        seconds: begin.elapsed().as_secs_f64(),
    })
}

/// Takes one optimizer step, and returns the loss, a mean over all of the step's samples, still on the device.
///
/// Burn's accumulator adds gradients up. Each micro-batch counts by its share of the samples, so that the sum is the
/// gradient of the mean over the whole step, however it is split.
pub fn optimize(
    model: Model,
    optimizer: &mut ModuleOptimizer,
    learning_rate: f64,
    step: &Step,
    device: &Device,
) -> (Model, Tensor<1>) {
    let mut accumulator = GradientsAccumulator::new();
    let mut step_loss = Tensor::zeros([1], &device.clone().inner());
    for batch in &step.micro_batches {
        let (images, labels) = batch.to_device(device);
        let share = batch.len() as f64 / step.samples() as f64;
        let loss = loss(&model, images, labels) * share;
        step_loss = step_loss + loss.clone().inner();
        accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
    }
    (optimizer.step(learning_rate, model, accumulator.grads()), step_loss)
}

fn loss(model: &Model, images: Tensor<4>, labels: Tensor<1, Int>) -> Tensor<1> {
    CrossEntropyLossConfig::new().init(&images.device()).forward(model.forward(images), labels)
}

/// What `cargo gpu-tuned measure` measures: the parts of an optimizer step.
pub fn subject<'a>(data: &'a Digits, config: &'a TrainingConfig) -> Subject<'a, Model, (Tensor<4>, Tensor<1, Int>)> {
    let prepare = |samples| {
        let images = (0..samples).filter_map(|index| data.train.get(index % data.train.len()).ok());
        HostBatch::new(&images.collect::<Vec<_>>())
    };
    Subject::new(
        |device| config.model.init(device),
        || AdamWConfig::new().init(),
        move |samples, device| prepare(samples).to_device(device),
        |model, (images, labels)| loss(model, images, labels),
    )
    .host_batch(prepare)
}

/// The seed of one epoch's order, another one for every epoch.
fn epoch_seed(seed: u64, epoch: usize) -> u64 {
    seed ^ (epoch as u64) << 32
}

/// The share of held-out images that the network reads correctly.
fn evaluate(model: &Model, data: &Digits, config: &TrainingConfig, device: &Device) -> Result<f64, TrainingError> {
    let model = model.valid();
    let loader = DataLoaderBuilder::new(DigitBatcher)
        .batch_size(config.eval_batch_size)
        .num_workers(config.num_workers)
        .set_device(device.clone())
        .build(data.held_out.clone());
    let mut correct = Tensor::<1, Int>::zeros([1], device);
    for batch in loader.iter() {
        let (images, labels) = batch?.to_device(device);
        let guesses = model.forward(images).argmax(1).flatten(0, 1);
        correct = correct + guesses.equal(labels).int().sum();
    }
    Ok(correct.try_into_scalar::<i64>()? as f64 / loader.num_items() as f64)
}
