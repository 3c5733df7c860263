//! Results of the library's trainer in each precision, from the same weights and over the same batches.

use std::{
    sync::mpsc::{Receiver, sync_channel},
    thread,
    time::Instant,
};

use anyhow::ensure;
use burn::{
    module::{Module, ModuleMapper, Param},
    optim::AdamWConfig,
    tensor::{DType, Device, FloatDType, Tensor},
};
use clap::{Args, ValueEnum};
use gpu_tuned::{
    mixed::Half,
    train::{Step, Trainer},
};
use hardware_tests::{
    catching::catching,
    device::{Choice, release},
    lesson::Lesson,
    line::print_under,
    network::{Batch, Dimensions, Model, Network},
    weights::seeded,
};
use serde::Serialize;

/// Batches that wait in the host's memory.
const QUEUE: usize = 4;
/// Number of validation batches.
const HELD_OUT: u64 = 16;
/// First index of validation samples.
const FIRST_HELD_OUT: u64 = 1 << 31;
/// Steps in which the learning rate rises.
const WARM_UP: usize = 50;
/// Points of a loss curve.
const POINTS: usize = 10;

/// Options of `learn`.
#[derive(Args, Clone, Debug, Serialize)]
pub(crate) struct Arguments {
    #[command(flatten)]
    #[serde(skip)]
    choice: Choice,
    /// The model
    #[arg(long)]
    model: Model,
    /// The precision; a process has one
    #[arg(long)]
    way: TrainingPrecision,
    /// Train a model of the same kind, a thousandth as large
    #[arg(long)]
    small: bool,
    /// Optimizer steps
    #[arg(long, default_value_t = 500)]
    steps: usize,
    /// Runs; their seeds are 0, 1, …
    #[arg(long, default_value_t = 1)]
    #[serde(skip)]
    seeds: u64,
    /// Samples of an optimizer step
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Samples of a micro-batch; without it, all of the step
    #[arg(long)]
    micro_batch: Option<usize>,
    /// Learning rate; without it 3e-3 for small models, 3e-4 for the transformer, and 1e-3 for others
    #[arg(long)]
    #[serde(skip)]
    rate: Option<f64>,
    /// Steps with an overflowing loss, counted from 0
    #[arg(long, value_delimiter = ',')]
    overflow: Vec<usize>,
}

/// Precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
pub(crate) enum TrainingPrecision {
    /// All in f32.
    F32,
    /// Weights in f32, the step in bf16.
    MixedBf16,
    /// Weights in f32, the step in f16, with a loss scale.
    MixedF16,
    /// Parameters, optimizer state and the step in bf16.
    Bf16Params,
}

impl TrainingPrecision {
    fn half(self) -> Option<Half> {
        match self {
            Self::MixedBf16 => Some(Half::Bf16),
            Self::MixedF16 => Some(Half::F16),
            Self::F32 | Self::Bf16Params => None,
        }
    }

    /// The default float type of the device.
    fn float(self) -> FloatDType {
        match self {
            Self::F32 => FloatDType::F32,
            Self::Bf16Params => FloatDType::BF16,
            Self::MixedBf16 | Self::MixedF16 => self.half().map_or(FloatDType::F32, Half::float),
        }
    }

    /// Initial type of weights; `None` for the device's default.
    fn weights(self) -> Option<DType> {
        (self != Self::Bf16Params).then_some(DType::F32)
    }
}

#[derive(Serialize)]
struct Head<'a> {
    run: &'static str,
    #[serde(flatten)]
    arguments: &'a Arguments,
    seed: u64,
    learning_rate: f64,
}

/// Results of a run.
#[derive(Debug, Serialize)]
struct TrainingResult {
    #[serde(flatten)]
    course: StepRecord,
    /// Mean loss over samples that were not learned from, in f32, with the weights that the optimizer changes.
    held_out: f64,
    /// Loss of a perfect model, given the source of the samples.
    entropy: f64,
    /// Taken from the device for memory pools, after the last step.
    reserved_bytes: Option<u64>,
    /// After the last step.
    loss_scale: f64,
}

/// Measurements of the steps.
#[derive(Debug, Serialize)]
struct StepRecord {
    /// Mean loss of each tenth of the steps, those left out that were not finite.
    curve: Vec<f64>,
    /// After the first steps.
    samples_per_second: f64,
    /// Time of the first step, which compiles and autotunes kernels.
    first_step_seconds: f64,
    /// Time of all steps.
    seconds: f64,
    /// Steps that were left out, as their gradients were not finite.
    skipped: Vec<usize>,
    /// In the first step, and in those in which it was another than before.
    loss_scales: Vec<(usize, f64)>,
    /// Times that memory ran out.
    rescues: usize,
    /// True if the parameters did not change at the last check.
    stalled: bool,
}

/// Prints a line for every seed.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open_in(arguments.way.float())?;
    for seed in 0..arguments.seeds {
        let outcome = catching(|| arguments.learn(seed, &device));
        let head = Head { run: "learn", arguments, seed, learning_rate: arguments.rate() };
        print_under(&head, &outcome)?;
        release(&device)?;
    }
    Ok(())
}

/// Losses and times of the steps.
#[derive(Default)]
struct Log {
    steps: Vec<Step>,
    seconds: Vec<f64>,
}

impl Arguments {
    fn rate(&self) -> f64 {
        self.rate.unwrap_or(match self.model {
            _ if self.small => 3e-3,
            Model::Transformer => 3e-4,
            _ => 1e-3,
        })
    }

    fn dimensions(&self) -> Dimensions {
        if self.small { self.model.small() } else { self.model.dimensions() }
    }

    fn learn(&self, seed: u64, device: &Device) -> anyhow::Result<TrainingResult> {
        let dimensions = self.dimensions();
        let lesson = Lesson::new(&dimensions, seed);
        let mut trainer = self.trainer(&dimensions, seed, device)?;
        let log = self.steps(&mut trainer, &lesson)?;
        let reserved_bytes = device.memory_pool_usage().map(|usage| usage.bytes_reserved);
        let held_out = held_out(trainer.master(), &lesson, self.batch, device)?;
        Ok(TrainingResult {
            course: log.course(self.batch),
            held_out,
            entropy: lesson.entropy(),
            reserved_bytes,
            loss_scale: trainer.loss_scale().value(),
        })
    }

    fn trainer(&self, dimensions: &Dimensions, seed: u64, device: &Device) -> anyhow::Result<Trainer<Network>> {
        let device = device.clone().autodiff();
        let network = seeded(dimensions, seed, self.way.weights(), &device);
        let micro_batch = self.micro_batch.unwrap_or(self.batch);
        let trainer = Trainer::new(network, AdamWConfig::new().init(), device, micro_batch);
        Ok(match self.way.half() {
            Some(half) => trainer.mixed(half)?,
            None => trainer,
        })
    }

    /// Takes all steps; another thread generates the batches, so that no step waits.
    fn steps(&self, trainer: &mut Trainer<Network>, lesson: &Lesson) -> anyhow::Result<Log> {
        let (sender, batches) = sync_channel(QUEUE);
        thread::scope(|scope| {
            scope.spawn(move || {
                let mut batches = (0..self.steps as u64).map(|index| lesson.batch(index, self.batch));
                // Sending fails only after the receiver's failure, which the receiver reports.
                batches.try_for_each(|batch| sender.send(batch).ok());
            });
            self.take(trainer, batches)
        })
    }

    #[expect(clippy::needless_pass_by_value, reason = "the sender ends when the receiver is dropped")]
    fn take(&self, trainer: &mut Trainer<Network>, batches: Receiver<Batch>) -> anyhow::Result<Log> {
        let mut log = Log::default();
        for (index, batch) in batches.iter().enumerate() {
            let begin = Instant::now();
            let rate = self.rate() * ((index + 1) as f64 / WARM_UP as f64).min(1.0);
            let overflows = self.overflow.contains(&index);
            let step = trainer.step(rate, batch, |network: &Network, batch| {
                let loss = network.loss_in_f32(batch);
                // In two factors, since neither is infinite in f32.
                if overflows { loss.mul_scalar(1e38).mul_scalar(1e38) } else { loss }
            })?;
            log.steps.push(step);
            log.seconds.push(begin.elapsed().as_secs_f64());
        }
        ensure!(log.steps.len() == self.steps, "there were {} batches", log.steps.len());
        Ok(log)
    }
}

impl Log {
    fn course(&self, batch: usize) -> StepRecord {
        let timed = &self.seconds[WARM_UP.min(self.seconds.len() / 2)..];
        let skipped = |(index, step): (usize, &Step)| (!step.applied).then_some(index);
        StepRecord {
            curve: self.curve(),
            samples_per_second: (timed.len() * batch) as f64 / timed.iter().sum::<f64>(),
            first_step_seconds: self.seconds.first().copied().unwrap_or_default(),
            seconds: self.seconds.iter().sum(),
            skipped: self.steps.iter().enumerate().filter_map(skipped).collect(),
            loss_scales: self.loss_scales(),
            rescues: self.steps.iter().map(|step| step.rescues.len()).sum(),
            stalled: self.steps.last().is_some_and(|step| step.stalled),
        }
    }

    fn loss_scales(&self) -> Vec<(usize, f64)> {
        let mut scales: Vec<_> = self.steps.iter().map(|step| step.loss_scale).enumerate().collect();
        scales.dedup_by_key(|(_, scale)| scale.to_bits());
        scales
    }

    fn curve(&self) -> Vec<f64> {
        let mean = |steps: &[Step]| {
            let finite: Vec<_> =
                steps.iter().map(|step| f64::from(step.loss)).filter(|loss| loss.is_finite()).collect();
            finite.iter().sum::<f64>() / finite.len() as f64
        };
        self.steps.chunks(self.steps.len().div_ceil(POINTS).max(1)).map(mean).collect()
    }
}

/// The mean loss over samples that were not learned from, in f32.
fn held_out(master: &Network, lesson: &Lesson, samples: usize, device: &Device) -> anyhow::Result<f64> {
    let network = master.valid().map(&mut InF32);
    let mut sum = 0.0;
    for index in 0..HELD_OUT {
        let batch = lesson.batch(FIRST_HELD_OUT + index, samples).in_float(device, DType::F32);
        let loss = network.loss_in_f32(batch);
        ensure!(loss.dtype() == DType::F32, "the loss came out as {:?}", loss.dtype());
        sum += f64::from(loss.try_into_scalar::<f32>()?);
    }
    Ok(sum / HELD_OUT as f64)
}

/// Casts parameters to f32.
struct InF32;

impl ModuleMapper for InF32 {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|tensor| tensor.cast(FloatDType::F32))
    }
}
