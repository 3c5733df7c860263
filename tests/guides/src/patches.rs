//! Patches of pictures, as a guide to denoising has them: sixteen of 128 x 128 in a step.

use burn::{
    data::dataloader::batcher::Batcher,
    nn::loss::CrossEntropyLossConfig,
    tensor::{Device, Int, Tensor, TensorData},
};
use gpu_tuned::gpu_tuned;
use gpu_tuned_core::workload::Block;
use models_tests::convnet::{self, Convnet};

use crate::task::Task;

const CLASSES: usize = 10;
const CHANNELS: usize = 32;
const CONVOLUTIONS: usize = 4;

macro_rules! patches {
    ($(#[$tuned:meta])+ $config:ident) => {
        $(#[$tuned])+
        #[derive(clap::Args, Clone, Debug)]
        pub(crate) struct $config {
            /// Side of a patch in pixels
            #[arg(long)]
            #[tuned(dim = image, default = 128)]
            patch: usize,
            /// Patches in an optimizer step
            #[arg(long, default_value_t = 16)]
            global_batch: usize,
            /// Patches in a micro-batch
            #[arg(long)]
            #[tuned]
            batch_size: usize,
            /// Threads that make patches
            #[arg(long)]
            #[tuned]
            num_workers: usize,
            /// Batches that are made ahead
            #[arg(long)]
            #[tuned]
            prefetch_depth: usize,
        }
    };
}

patches! {
    /// With group norms, so that a step can be split freely.
    #[gpu_tuned(convnet(classes = 10, stages = [[32, 4]]), global_batch = global_batch)]
    Patches
}

patches! {
    /// With batch norms, as most networks have them.
    #[gpu_tuned(convnet(classes = 10, stages = [[32, 4]], batch_statistics = true), global_batch = global_batch)]
    BatchNormed
}

/// `[samples, 3, side, side]` and `[samples]`.
type Batch = (Tensor<4>, Tensor<1, Int>);

/// Grey patches, a shade for each class.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stack(usize);

impl Batcher<u64, Batch> for Stack {
    fn batch(&self, seeds: Vec<u64>, device: &Device) -> Batch {
        let class = |seed: &u64| (seed % CLASSES as u64) as i32;
        let values = 3 * self.0 * self.0;
        let mut pixels = Vec::with_capacity(seeds.len() * values);
        for seed in &seeds {
            pixels.resize(pixels.len() + values, class(seed) as f32 / CLASSES as f32 - 0.5);
        }
        let classes: Vec<i32> = seeds.iter().map(class).collect();
        let pixels = TensorData::new(pixels, [seeds.len(), 3, self.0, self.0]);
        (Tensor::from_data(pixels, device), Tensor::from_data(TensorData::new(classes, [seeds.len()]), device))
    }
}

macro_rules! task {
    ($config:ident, $name:literal, group_norm: $group_norm:literal) => {
        impl Task for $config {
            const NAME: &'static str = $name;
            type Model = Convnet;
            type Batch = Batch;
            type Stack = Stack;

            fn model(&self, device: &Device) -> Convnet {
                Convnet::new(&dimensions(self.patch, $group_norm), device)
            }

            fn stack(&self) -> Stack {
                Stack(self.patch)
            }

            fn loss(&self, model: &Convnet, (pixels, classes): Batch) -> Tensor<1> {
                let logits = model.logits(pixels);
                CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, classes)
            }

            fn kept(&self, (pixels, _): &Batch) -> Tensor<1> {
                let samples = pixels.dims()[0];
                Tensor::zeros([samples * CHANNELS * self.patch * self.patch], &pixels.device())
            }
        }
    };
}

task!(Patches, "patches", group_norm: true);
task!(BatchNormed, "batch_normed", group_norm: false);

fn dimensions(image: usize, group_norm: bool) -> convnet::Dimensions {
    let (stages, kind) = (vec![[CHANNELS, CONVOLUTIONS]], Block::Plain);
    convnet::Dimensions { image, stages, classes: CLASSES, kind, group_norm, stem: false }
}
