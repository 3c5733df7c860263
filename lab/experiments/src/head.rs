//! The head of a language model and its loss, at once and in chunks: time and memory.

use std::time::Instant;

use anyhow::Context;
use burn::{
    nn::loss::CrossEntropyLossConfig,
    tensor::{Device, Distribution, Int, Shape, Tensor},
};
use clap::Args;
use gpu_tuned::{loss::chunked_cross_entropy, mixed::in_f32};
use hardware_tests::{
    device::{Choice, alone},
    line::print_under,
    mode::Precision,
};
use serde::Serialize;

/// Options of `head`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Tokens in a micro-batch
    #[arg(long, default_value_t = 16_384)]
    tokens: usize,
    /// Width of the model
    #[arg(long, default_value_t = 768)]
    width: usize,
    /// Tokens in the vocabulary
    #[arg(long, default_value_t = 50_257)]
    vocabulary: usize,
    /// Tokens in a chunk, one number after another; 0 for all logits at once
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1024, 2048, 4096])]
    chunks: Vec<usize>,
    /// Format of hidden values and weights
    #[arg(long, default_value = "f32")]
    precision: Precision,
    /// Forward and backward passes for each; the second half is timed
    #[arg(long, default_value_t = 20)]
    steps: usize,
}

#[derive(Serialize)]
struct Head {
    way: &'static str,
    precision: Precision,
    tokens: usize,
    width: usize,
    vocabulary: usize,
    chunk: usize,
}

/// Result for one chunk size.
#[derive(Debug, Serialize)]
struct Taken {
    /// Median time of forward and backward pass.
    seconds_per_step: f64,
    reserved_bytes: Option<u64>,
    loss: f32,
    /// Norms of the gradients of hidden values and weights.
    gradient_norms: [f32; 2],
}

/// Prints a line for each chunk size.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(arguments.precision)?;
    for &chunk in &arguments.chunks {
        let outcome = alone(&device, || arguments.take(chunk, &device));
        let Arguments { tokens, width, vocabulary, precision, .. } = *arguments;
        print_under(&Head { way: "head", precision, tokens, width, vocabulary, chunk }, &outcome)?;
    }
    Ok(())
}

impl Arguments {
    fn take(&self, chunk: usize, device: &Device) -> anyhow::Result<Taken> {
        device.seed(0);
        let normal = |shape: [usize; 2], deviation| {
            let values = Tensor::<2>::random(shape, Distribution::Normal(0.0, deviation), device);
            values.cast(self.precision.float()).autodiff().require_grad()
        };
        let hidden = normal([self.tokens, self.width], 1.0);
        let weight = normal([self.width, self.vocabulary], 0.02);
        let below = Distribution::Uniform(0.0, self.vocabulary as f64);
        let targets = Tensor::<1, Int>::random(Shape::from([self.tokens]), below, device).autodiff();
        let (mut times, mut found) = (Vec::new(), (0.0, [0.0; 2]));
        for _ in 0..self.steps {
            let begin = Instant::now();
            let loss = loss(hidden.clone(), weight.clone(), targets.clone(), chunk);
            let gradients = loss.backward();
            let norm = |tensor: &Tensor<2>| -> anyhow::Result<f32> {
                let gradient = tensor.grad(&gradients).context("BUG: both are differentiated")?;
                Ok(in_f32(gradient).square().sum().sqrt().try_into_scalar()?)
            };
            found = (loss.try_into_scalar()?, [norm(&hidden)?, norm(&weight)?]);
            times.push(begin.elapsed().as_secs_f64());
        }
        let mut later = times.split_off(times.len() / 2);
        later.sort_by(f64::total_cmp);
        Ok(Taken {
            seconds_per_step: later.get(later.len() / 2).copied().context("no steps")?,
            reserved_bytes: device.memory_pool_usage().map(|usage| usage.bytes_reserved),
            loss: found.0,
            gradient_norms: found.1,
        })
    }
}

fn loss(hidden: Tensor<2>, weight: Tensor<2>, targets: Tensor<1, Int>, chunk: usize) -> Tensor<1> {
    if chunk > 0 {
        return chunked_cross_entropy(hidden, weight, None, targets, chunk);
    }
    let logits = in_f32(hidden.matmul(weight));
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets)
}
