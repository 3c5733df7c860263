//! A model that is not ready for 16 bits, in a program that leaves the precision to the planner.

use anyhow::Context;
use burn::{
    module::Module,
    nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig},
    optim::AdamWConfig,
    tensor::{Device, Distribution, FloatDType, Tensor},
};
use clap::Args;
use gpu_tuned::{Bytes, Precision, gpu_tuned};
use serde::Serialize;

use crate::line::say;

const WIDTH: usize = 1024;
const STEPS: usize = 3;
const LEARNING_RATE: f64 = 1e-3;

/// Options of `unready`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Memory that is allocated before the first step, in MiB; the second start has to find it free again
    #[arg(long, default_value_t = 0)]
    hold_mib: usize,
}

/// A description for which every GPU with tensor cores is planned in 16 bits.
#[gpu_tuned(
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 64,
    precision = "auto",
    target = "generic"
)]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

/// A model with running statistics outside of an `InF32`.
#[derive(Module, Debug)]
struct Network {
    layer: Linear,
    norm: BatchNorm,
}

impl Network {
    fn new(device: &Device) -> Self {
        Self { layer: LinearConfig::new(WIDTH, WIDTH).init(device), norm: BatchNormConfig::new(WIDTH / 2).init(device) }
    }

    fn loss(&self, input: Tensor<2>) -> Tensor<1> {
        let [rows, _] = input.dims();
        // Two values a channel: a batch norm refuses one, in micro-batches of one sample.
        let output: Tensor<3> = self.norm.forward(self.layer.forward(input).reshape([rows, WIDTH / 2, 2]));
        output.cast(FloatDType::F32).square().mean()
    }
}

#[derive(Debug, Serialize)]
struct Started {
    precision: Precision,
    memory_free: Option<Bytes>,
    fallbacks: Vec<String>,
}

#[derive(Debug, Serialize)]
struct Trained {
    precision: Precision,
    losses: Vec<f32>,
}

/// Prints a line for each start, and one for the steps.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let session = gpu_tuned::start(Config::default())?;
    let selection = session.selection();
    let precision = session.plan().settings.precision;
    let memory_free = selection.gpu.as_ref().and_then(|gpu| gpu.reading.memory_free);
    let fallbacks = selection.fallbacks.iter().map(ToString::to_string).collect();
    say("started", &Started { precision, memory_free, fallbacks })?;
    let device = session.device();
    let held: Vec<_> = (0..arguments.hold_mib).map(|_| Tensor::<1>::zeros([1 << 18], &device)).collect();
    device.sync()?;
    let mut trainer = session.trainer(Network::new(&device), AdamWConfig::new().init())?;
    let step = |_| -> anyhow::Result<f32> {
        let input = Tensor::random([64, WIDTH], Distribution::Normal(0.0, 1.0), &device);
        Ok(trainer.step(LEARNING_RATE, input, Network::loss).context("a step")?.loss)
    };
    let losses = (0..STEPS).map(step).collect::<anyhow::Result<_>>()?;
    drop(held);
    say("trained", &Trained { precision, losses })
}
