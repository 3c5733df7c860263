//! Windows of a daily series, as a guide to forecasting has them: 128 of thirty days in a step.

use burn::{
    data::dataloader::batcher::Batcher,
    tensor::{Device, Tensor, TensorData},
};
use gpu_tuned::gpu_tuned;
use models_tests::recurrent::{self, Recurrent};

use crate::task::Task;

const INPUTS: usize = 8;
const LAYERS: usize = 2;

/// An LSTM over each window, and one number for the day after it.
#[gpu_tuned(recurrent(inputs = 8, layers = 2, outputs = 1), global_batch = global_batch)]
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct Series {
    /// Width of the hidden state
    #[arg(long)]
    #[tuned(dim = hidden, default = 64)]
    hidden: usize,
    /// Days in a window
    #[arg(long)]
    #[tuned(dim = seq, default = 30)]
    days: usize,
    /// Windows in an optimizer step
    #[arg(long, default_value_t = 128)]
    global_batch: usize,
    /// Windows in a micro-batch
    #[arg(long)]
    #[tuned]
    batch_size: usize,
    /// Threads that cut windows
    #[arg(long)]
    #[tuned]
    num_workers: usize,
    /// Batches that are made ahead
    #[arg(long)]
    #[tuned]
    prefetch_depth: usize,
}

/// `[samples, days, inputs]` and `[samples, 1]`.
type Batch = (Tensor<3>, Tensor<2>);

/// Waves, each of its own phase.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack(usize);

impl Batcher<u64, Batch> for Stack {
    fn batch(&self, seeds: Vec<u64>, device: &Device) -> Batch {
        let wave = |seed: &u64, day: usize| (0.1 * (seed % 60) as f32 + 0.2 * day as f32).sin();
        let days = |seed| (0..self.0).flat_map(move |day| [wave(seed, day); INPUTS]);
        let inputs: Vec<f32> = seeds.iter().flat_map(days).collect();
        let targets: Vec<f32> = seeds.iter().map(|seed| wave(seed, self.0)).collect();
        let inputs = TensorData::new(inputs, [seeds.len(), self.0, INPUTS]);
        (Tensor::from_data(inputs, device), Tensor::from_data(TensorData::new(targets, [seeds.len(), 1]), device))
    }
}

impl Series {
    fn dimensions(&self) -> recurrent::Dimensions {
        recurrent::Dimensions {
            input: INPUTS,
            hidden: self.hidden,
            layers: LAYERS,
            seq: self.days,
            classes: 1,
            vocab: 0,
            every_step: false,
            gru: false,
            bidirectional: false,
        }
    }
}

impl Task for Series {
    const NAME: &'static str = "series";
    type Model = Recurrent;
    type Batch = Batch;
    type Stack = Stack;

    fn model(&self, device: &Device) -> Recurrent {
        Recurrent::new(&self.dimensions(), device)
    }

    fn stack(&self) -> Stack {
        Stack(self.days)
    }

    fn loss(&self, model: &Recurrent, (inputs, targets): Batch) -> Tensor<1> {
        (model.logits(&self.dimensions(), inputs) - targets).powi_scalar(2).mean()
    }

    fn kept(&self, (inputs, _): &Batch) -> Tensor<1> {
        let samples = inputs.dims()[0];
        Tensor::zeros([samples * self.days * self.hidden * LAYERS], &inputs.device())
    }
}
