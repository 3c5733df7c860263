//! Micro-steps that are replayed as CUDA graphs, beside plain ones.

use std::time::Instant;

use anyhow::{Context, ensure};
use burn::{
    module::Module,
    tensor::{Device, Distribution, Tensor, activation::relu},
};
use clap::{Args, ValueEnum};
use gpu_tuned::{
    Kernels, MicroBatch,
    mixed::Half,
    nn::{Linear, LinearConfig},
    optim::AdamWConfig,
    train::{GraphStatus, Trainer},
};
use serde::Serialize;

use crate::{
    device::{Choice, alone, kernels},
    line::print_under,
    mode::Precision,
    network::{Batch, Fill, Model, Network},
};

const LEARNING_RATE: f64 = 1e-4;
/// Batches that steps take in turns.
const BATCHES: usize = 4;
/// Width of the perceptron.
const WIDTH: usize = 256;

/// Options of `graphs`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// The network
    #[arg(long)]
    network: Trained,
    /// Samples in a micro-batch
    #[arg(long, default_value_t = 32)]
    batch: usize,
    /// Micro-batches of an optimizer step
    #[arg(long, default_value_t = 1)]
    accumulate: usize,
    /// Steps of each run; the second half is timed
    #[arg(long, default_value_t = 60)]
    steps: usize,
    /// Format of activations, with fp32 weights
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Runs: plain and replayed ones in turns
    #[arg(long, value_delimiter = ',', default_values = ["plain", "replayed", "plain"])]
    runs: Vec<Way>,
}

/// A network by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Trained {
    Transformer,
    Convnet,
    #[value(name = "resnet")]
    ResNet,
    #[value(name = "unet")]
    UNet,
    Gpt,
    Vit,
    Lstm,
    /// The LSTM with one matrix product for the gates of a time step
    #[value(name = "joint-lstm")]
    #[serde(rename = "joint-lstm")]
    JointLstm,
    /// Four layers of width 256
    Perceptron,
}

/// Launches of micro-steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Way {
    Plain,
    Replayed,
}

#[derive(Serialize)]
struct Head {
    kernels: Kernels,
    network: Trained,
    precision: Precision,
    batch: usize,
    accumulate: usize,
    run: usize,
    way: Way,
}

/// Result of a run.
#[derive(Debug, Serialize)]
struct Taken {
    graphs: GraphStatus,
    /// Median time of a step in the second half.
    seconds_per_step: f64,
    /// Slowest step of all, with its number.
    slowest: (f64, usize),
    reserved_bytes: Option<u64>,
    in_use_bytes: Option<u64>,
    first_loss: f32,
    last_loss: f32,
    /// Steps whose losses have other bits than in the first run.
    other_bits: usize,
    /// Largest difference of a loss from the first run, relative to it.
    furthest: f32,
}

/// Prints a line for each run.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(arguments.precision)?;
    match arguments.network {
        Trained::Transformer => arguments.run_model(Model::Transformer, &device),
        Trained::Convnet => arguments.run_model(Model::Convnet, &device),
        Trained::ResNet => arguments.run_model(Model::ResNet, &device),
        Trained::UNet => arguments.run_model(Model::UNet, &device),
        Trained::Gpt => arguments.run_model(Model::Gpt, &device),
        Trained::Vit => arguments.run_model(Model::Vit, &device),
        Trained::Lstm => arguments.run_model(Model::Lstm, &device),
        Trained::JointLstm => arguments.run_with(Model::Lstm, &device, &Network::joint_loss),
        Trained::Perceptron => {
            let batch = |samples| {
                let rows = Tensor::random([samples, WIDTH], Distribution::Normal(0.0, 1.0), &device);
                (rows.clone(), rows.slice_dim(1, 0..1))
            };
            let loss = |model: &Perceptron, (rows, targets): (Tensor<2>, Tensor<2>)| model.loss(rows, targets);
            arguments.run_all(&device, &batch, &Perceptron::new, &loss)
        }
    }
}

impl Arguments {
    fn run_model(&self, model: Model, device: &Device) -> anyhow::Result<()> {
        self.run_with(model, device, &Network::loss_in_f32)
    }

    fn run_with(
        &self,
        model: Model,
        device: &Device,
        loss: &(dyn Fn(&Network, Batch) -> Tensor<1> + Sync),
    ) -> anyhow::Result<()> {
        let batch = |samples| model.batch(samples, Fill::Random, device);
        self.run_all(device, &batch, &|device| model.network(device), loss)
    }

    fn run_all<M: Module, B: MicroBatch>(
        &self,
        device: &Device,
        batch: &(dyn Fn(usize) -> B + Sync),
        network: &(dyn Fn(&Device) -> M + Sync),
        loss: &(dyn Fn(&M, B) -> Tensor<1> + Sync),
    ) -> anyhow::Result<()> {
        let mut first: Option<Vec<f32>> = None;
        for (run, &way) in self.runs.iter().enumerate() {
            let outcome = alone(device, || self.take(way, device, batch, network, loss)).map(|(mut taken, losses)| {
                let first = &*first.get_or_insert_with(|| losses.clone());
                let pairs = || first.iter().zip(&losses);
                taken.other_bits = pairs().filter(|(a, b)| a.to_bits() != b.to_bits()).count();
                taken.furthest = pairs().map(|(a, b)| ((a - b) / a).abs()).fold(0.0, f32::max);
                taken
            });
            let Self { network, precision, batch, accumulate, .. } = *self;
            let kernels = kernels();
            print_under(&Head { kernels, network, precision, batch, accumulate, run, way }, &outcome)?;
        }
        Ok(())
    }

    fn take<M: Module, B: MicroBatch>(
        &self,
        way: Way,
        device: &Device,
        batch: &dyn Fn(usize) -> B,
        network: &dyn Fn(&Device) -> M,
        loss: &(dyn Fn(&M, B) -> Tensor<1> + Sync),
    ) -> anyhow::Result<(Taken, Vec<f32>)> {
        device.seed(0);
        let batches: Vec<B> = (0..BATCHES).map(|_| batch(self.batch * self.accumulate)).collect();
        let training = device.clone().autodiff();
        device.seed(0);
        let mut trainer = Trainer::new(network(&training), AdamWConfig::new().init(), training, self.batch);
        if self.precision == Precision::Bf16 {
            trainer = trainer.mixed(Half::Bf16)?;
        }
        if way == Way::Replayed {
            trainer = trainer.cuda_graphs();
        }
        let (mut losses, mut times) = (Vec::new(), Vec::new());
        for step in 0..self.steps {
            let begin = Instant::now();
            let step = trainer.step(LEARNING_RATE, batches[step % BATCHES].clone(), loss)?;
            times.push(begin.elapsed().as_secs_f64());
            ensure!(step.rescues.is_empty() && step.applied, "the step was not taken as planned");
            losses.push(step.loss);
        }
        let usage = device.memory_pool_usage();
        let slowest = times.iter().copied().zip(0..).max_by(|(a, _), (b, _)| a.total_cmp(b)).context("no steps")?;
        let mut later = times.split_off(times.len() / 2);
        later.sort_by(f64::total_cmp);
        let taken = Taken {
            graphs: trainer.graph_status(),
            seconds_per_step: later[later.len() / 2],
            slowest,
            reserved_bytes: usage.as_ref().map(|usage| usage.bytes_reserved),
            in_use_bytes: usage.map(|usage| usage.bytes_in_use),
            first_loss: losses[0],
            last_loss: losses[losses.len() - 1],
            other_bits: 0,
            furthest: 0.0,
        };
        Ok((taken, losses))
    }
}

/// Four layers without activations to store but the widths'.
#[derive(Module, Debug)]
struct Perceptron {
    layers: Vec<Linear>,
    head: Linear,
}

impl Perceptron {
    fn new(device: &Device) -> Self {
        let layer = || LinearConfig::new(WIDTH, WIDTH).init(device);
        Self { layers: (0..4).map(|_| layer()).collect(), head: LinearConfig::new(WIDTH, 1).init(device) }
    }

    fn loss(&self, rows: Tensor<2>, targets: Tensor<2>) -> Tensor<1> {
        let hidden = self.layers.iter().fold(rows, |rows, layer| relu(layer.forward(rows)));
        (self.head.forward(hidden) - targets).powi_scalar(2).mean()
    }
}
