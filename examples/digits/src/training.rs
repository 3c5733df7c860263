//! The training loop: optimizer steps of the planned samples, and accuracy after each epoch.

use std::time::Instant;

use anyhow::{Context, anyhow};
use burn::{
    data::{dataloader::batcher::Batcher, dataset::Dataset},
    lr_scheduler::cosine::CosineAnnealingLrSchedulerConfig,
    module::Module,
    nn::loss::CrossEntropyLossConfig,
    optim::AdamWConfig,
    tensor::{Device, Tensor},
};
use gpu_tuned::{Session, load::evaluate, measure::Subject, mixed::in_f32};

use crate::{
    config::TrainingConfig,
    data::{Batch, Digit, DigitBatcher, Digits},
    model::Model,
};

/// Results of a training run.
#[derive(Clone, Copy, Debug)]
pub struct Outcome {
    /// Optimizer steps in one epoch.
    pub steps_per_epoch: usize,
    /// Optimizer steps in all.
    pub optimizer_steps: usize,
    /// Accuracy of the trained network on the validation images, 0 to 1.
    pub accuracy: f64,
    /// Wall-clock time of training and measuring accuracy.
    pub seconds: f64,
}

/// Trains a new network.
///
/// # Errors
///
/// If images cannot be read, a step fails, or accuracy cannot be measured.
pub fn train(session: &Session<TrainingConfig>, data: &Digits) -> anyhow::Result<Outcome> {
    let begin = Instant::now();
    let (config, device) = (session.config(), session.device());
    device.seed(config.seed);
    let images = data.train.len() as u64;
    let steps_per_epoch = session.schedule().steps_per_epoch(images) as usize;
    let optimizer_steps = steps_per_epoch * config.num_epochs;
    let mut schedule = CosineAnnealingLrSchedulerConfig::new(config.learning_rate, optimizer_steps)
        .init()
        .map_err(|message| anyhow!("invalid learning-rate schedule: {message}"))?;
    let mut trainer = session.trainer(config.model.init(&device), AdamWConfig::new().init())?;
    let loader = session.loader(data.train.clone(), DigitBatcher).shuffle(config.seed);
    let mut accuracy = 0.0;

    let mut progress = session.progress(optimizer_steps as u64).steps_per_epoch(steps_per_epoch as u64);
    for epoch in 1..=config.num_epochs {
        let mut loss_sum = 0.0;
        for batch in loader.iter() {
            let step = trainer.step(schedule.step().base(), batch.context("cannot read the images")?, loss)?;
            loss_sum += step.loss;
            progress.step(&step);
        }
        let loss = loss_sum / steps_per_epoch as f32;
        accuracy = validation_accuracy(trainer.model(), session, data).context("cannot measure accuracy")?;
        progress
            .suspend(|| eprintln!("epoch {epoch:>2}: loss {loss:.4}, validation accuracy {:.2}%", accuracy * 100.0));
    }
    Ok(Outcome { steps_per_epoch, optimizer_steps, accuracy, seconds: begin.elapsed().as_secs_f64() })
}

/// Mean over the images of a micro-batch.
pub fn loss(model: &Model, (images, labels): Batch) -> Tensor<1> {
    CrossEntropyLossConfig::new().init(&images.device()).forward(in_f32(model.forward(images)), labels)
}

/// The parts of an optimizer step that `cargo gpu-tuned measure` runs.
pub fn subject<'a>(data: &'a Digits, config: &'a TrainingConfig) -> Subject<'a, Model, Batch> {
    let images = |samples| {
        let images = (0..samples).filter_map(|index| data.train.get(index % data.train.len()).ok());
        images.collect::<Vec<Digit>>()
    };
    Subject::new(
        |device| config.model.init(device),
        || AdamWConfig::new().init(),
        move |samples, device| DigitBatcher.batch(images(samples), device),
        loss,
    )
    .host_batch(move |samples| DigitBatcher.batch(images(samples), &Device::flex()))
}

/// Accuracy of the network on the validation images.
fn validation_accuracy(model: &Model, session: &Session<TrainingConfig>, data: &Digits) -> anyhow::Result<f64> {
    let model = model.valid();
    let right = evaluate(&session.eval_loader(data.validation.clone(), DigitBatcher), |(images, labels)| {
        model.forward(images).argmax(1).flatten::<1>(0, 1).equal(labels).int()
    })?;
    Ok(right.iter::<i64>().sum::<i64>() as f64 / data.validation.len() as f64)
}
