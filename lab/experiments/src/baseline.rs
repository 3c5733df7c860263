//! A plain Burn loop, or this library with given settings: speed, and loss after the same samples.

use std::time::Instant;

use anyhow::{Context, ensure};
use burn::{
    optim::{AdamWConfig as BurnAdamWConfig, GradientsParams, ModuleOptimizer},
    tensor::{DType, Device, Tensor},
};
use clap::Args;
use gpu_tuned::{
    MicroBatch, Options, Precision, Tuned, kernels::set_deterministic, optim::AdamWConfig, train::GraphStatus,
};
use hardware_tests::{
    catching::catching,
    described::WithConfig,
    device::Choice,
    lesson::Lesson,
    line::print_under,
    mode,
    network::{Batch, Model, Network},
    weights::seeded,
};
use rand::{SeedableRng, rngs::StdRng, seq::SliceRandom};
use serde::Serialize;

use crate::STARTED;

/// Timed parts of a run.
const WINDOWS: usize = 5;
/// Points of a loss curve.
const POINTS: usize = 10;
/// Most samples on the device; steps take them in turns.
const MOST_SAMPLES: usize = 4096;
/// Seed of the samples, and that of weights and order without another.
const SEED: u64 = 0;

/// Options of `baseline`.
#[derive(Args, Clone, Debug, Serialize)]
pub(crate) struct Arguments {
    #[command(flatten)]
    #[serde(flatten)]
    choice: Choice,
    /// The model
    #[arg(long)]
    model: Model,
    /// Name of the run in the output
    #[arg(long)]
    way: String,
    /// Train in a plain Burn loop in f32, without this library
    #[arg(long, conflicts_with_all = ["precision", "micro_batch", "cuda_graphs"])]
    plain: bool,
    /// The precision
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Samples of an optimizer step
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Samples of a micro-batch; without it, all of the step
    #[arg(long)]
    micro_batch: Option<usize>,
    /// Replay micro-steps as CUDA graphs
    #[arg(long)]
    cuda_graphs: bool,
    /// Gradients of embeddings by Burn's kernels, which add in a fixed order
    #[arg(long)]
    deterministic: bool,
    /// Samples of all steps; the second half is timed
    #[arg(long, default_value_t = 12_800)]
    samples: usize,
    /// Learning rate
    #[arg(long, default_value_t = 3e-4)]
    rate: f64,
    /// Seed of the weights, and of the order of the steps' samples
    #[arg(long, default_value_t = SEED)]
    seed: u64,
}

/// Result of a run.
#[derive(Debug, Serialize)]
pub(crate) struct Trained {
    graphs: GraphStatus,
    /// Median of the timed windows.
    samples_per_second: f64,
    /// Slowest window.
    lowest: f64,
    /// Fastest window.
    highest: f64,
    /// Time of the first step, which compiles and autotunes kernels.
    first_step_seconds: f64,
    /// Time from the start of the program to the end of the first step.
    until_first_step_seconds: f64,
    /// Mean loss of each tenth of the steps.
    curve: Vec<f64>,
    /// Mean loss of the last tenth.
    loss: f64,
    reserved_bytes: Option<u64>,
}

/// Loss of a step.
enum Loss {
    Read(f32),
    OnDevice(Box<Tensor<1>>),
}

impl Loss {
    fn read(self) -> anyhow::Result<f64> {
        Ok(f64::from(match self {
            Self::Read(loss) => loss,
            Self::OnDevice(loss) => loss.try_into_scalar::<f32>()?,
        }))
    }
}

#[derive(Serialize)]
struct Head<'a> {
    run: &'static str,
    #[serde(flatten)]
    arguments: &'a Arguments,
}

/// Prints one line.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let micro_batch = arguments.micro_batch.unwrap_or(arguments.batch);
    let arguments = Arguments { micro_batch: Some(micro_batch), ..arguments.clone() };
    let trained = || {
        if arguments.plain { arguments.untuned() } else { arguments.model.with_config(arguments.precision, &arguments) }
    };
    print_under(&Head { run: "baseline", arguments: &arguments }, &catching(trained))
}

/// The session's trainer. Each step is a part of the global batch of the config.
impl WithConfig for &Arguments {
    type Output = anyhow::Result<Trained>;

    fn run<C: Tuned>(self, config: C) -> Self::Output {
        let session = self.options().start(config)?;
        self.choice.check_kernels()?;
        set_deterministic(self.deterministic);
        let mut trainer = session.trainer(self.network(&session.device()), AdamWConfig::new().init())?;
        let trained = self.time(&session.inner_device(), |batch| {
            let step = trainer.step(self.rate, batch, |network: &Network, batch| network.loss_in_f32(batch))?;
            ensure!(step.rescues.is_empty() && step.applied, "the step was not taken as planned");
            Ok(Loss::Read(step.loss))
        })?;
        Ok(Trained { graphs: trainer.graph_status(), ..trained })
    }
}

impl Arguments {
    /// Options of a session with the given settings.
    fn options(&self) -> Options {
        let mut pins = self.choice.pins();
        pins.batch_size = self.micro_batch.map(|samples| samples as u64);
        pins.gradient_checkpointing = Some(false);
        pins.cuda_graphs = Some(self.cuda_graphs);
        self.choice.options().set(pins)
    }

    /// The loop of Burn's book. No step waits for the loss.
    fn untuned(&self) -> anyhow::Result<Trained> {
        let device = self.choice.open(mode::Precision::F32)?;
        let mut model = Some(self.network(&device.clone().autodiff()));
        let mut optimizer: ModuleOptimizer = BurnAdamWConfig::new().init();
        self.time(&device, |batch| {
            let network = model.take().context("BUG: it was put back")?;
            let loss = network.loss(batch);
            let value = loss.clone().inner();
            let gradients = GradientsParams::from_grads(loss.backward(), &network);
            model = Some(optimizer.step(self.rate, network, gradients));
            Ok(Loss::OnDevice(Box::new(value)))
        })
    }

    fn network(&self, device: &Device) -> Network {
        let weights = (self.precision != Precision::Bf16Params).then_some(DType::F32);
        seeded(&self.model.dimensions(), self.seed, weights, device)
    }

    /// Batches on the device: the same for all seeds, in an order by the seed.
    fn batches(&self, device: &Device) -> Vec<Batch> {
        let samples = self.samples.min(MOST_SAMPLES).max(self.batch) / self.batch * self.batch;
        let all = Lesson::new(&self.model.dimensions(), SEED).batch(0, samples);
        let mut firsts: Vec<usize> = (0..samples).step_by(self.batch).collect();
        if self.seed != SEED {
            firsts.shuffle(&mut StdRng::seed_from_u64(self.seed));
        }
        firsts.into_iter().map(|first| all.narrow(first..first + self.batch).on_device(device)).collect()
    }

    fn time(&self, device: &Device, mut step: impl FnMut(Batch) -> anyhow::Result<Loss>) -> anyhow::Result<Trained> {
        let batches = self.batches(device);
        device.sync()?;
        let steps = self.samples / self.batch;
        let each = steps / 2 / WINDOWS;
        ensure!(each > 0, "{} samples are {steps} steps, at least {} are needed", self.samples, 2 * WINDOWS);
        let mut losses = Vec::with_capacity(steps);
        let mut take = |steps: usize| -> anyhow::Result<f64> {
            let begin = Instant::now();
            for _ in 0..steps {
                losses.push(step(batches[losses.len() % batches.len()].clone())?);
            }
            device.sync()?;
            Ok(begin.elapsed().as_secs_f64())
        };
        let first_step_seconds = take(1)?;
        let until_first_step_seconds = STARTED.elapsed().as_secs_f64();
        take(steps - 1 - WINDOWS * each)?;
        let windows: anyhow::Result<Vec<f64>> = (0..WINDOWS).map(|_| take(each)).collect();
        let mut rates: Vec<f64> = windows?.iter().map(|seconds| (each * self.batch) as f64 / seconds).collect();
        rates.sort_by(f64::total_cmp);
        let losses: anyhow::Result<Vec<f64>> = losses.into_iter().map(Loss::read).collect();
        let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
        let curve: Vec<f64> = losses?.chunks(steps.div_ceil(POINTS)).map(mean).collect();
        let loss = *curve.last().context("BUG: there are steps")?;
        ensure!(loss.is_finite(), "the loss is {loss}");
        Ok(Trained {
            graphs: GraphStatus::Off,
            samples_per_second: rates[WINDOWS / 2],
            lowest: rates[0],
            highest: rates[WINDOWS - 1],
            first_step_seconds,
            until_first_step_seconds,
            curve,
            loss,
            reserved_bytes: device.memory_pool_usage().map(|usage| usage.bytes_reserved),
        })
    }
}
