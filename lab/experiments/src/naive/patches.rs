//! Patches of pictures, blurred and with noise, that a convolutional network restores.

mod picture;

use std::sync::Arc;

use burn::{
    data::{
        dataloader::batcher::Batcher,
        dataset::{Dataset, DatasetError},
    },
    module::Module,
    nn::{
        PaddingConfig2d,
        conv::{Conv2d, Conv2dConfig},
    },
    tensor::{DType, Device, Tensor, TensorData, activation::relu},
};
use gpu_tuned::{Precision, gpu_tuned, mixed::in_f32};
use rand::{RngExt, SeedableRng, rngs::StdRng};

use super::{noise::Normal, task::Task};
use picture::{Blur, Picture, View};

/// Colours of a picture.
const COLOURS: usize = 3;
/// Channels of the network.
const CHANNELS: usize = 32;
/// Residual blocks of two convolutions.
const BLOCKS: usize = 4;
/// Tensors of the network's width that a sample keeps: the input and the middle of each block, and the last result.
const KEPT: usize = 2 * BLOCKS + 1;
/// Noise of a dark pixel, and of a bright one besides, as variances.
const DARK: f32 = 4e-4;
const BRIGHT: f32 = 4e-3;

/// User-specified costs, because no model kind describes image restoration at full size.
#[gpu_tuned(declared(family = "convnet", flops_per_sample = 1.854e9), target = "h200")]
#[derive(Clone, Debug)]
pub(super) struct Config {
    #[tuned(dim = parameters, default = 75_747)]
    parameters: usize,
    #[tuned(dim = activation_bytes_per_sample, default = 4_816_896)]
    kept_bytes: usize,
    #[tuned(dim = largest_tensor_bytes_per_sample, default = 524_288)]
    largest_bytes: usize,
    #[tuned(dim = input_bytes_per_sample, default = 98_304)]
    input_bytes: usize,
    #[tuned(dim = kernels_per_step, default = 150)]
    kernels: usize,
    #[tuned]
    batch_size: usize,
    #[tuned]
    gradient_accumulation: usize,
    #[tuned]
    precision: Precision,
    #[tuned]
    gradient_checkpointing: bool,
    #[tuned]
    prefetch_depth: usize,
    #[tuned]
    num_workers: usize,
}

/// Pictures, the source of samples.
#[derive(Clone)]
pub(super) struct Patches {
    pictures: Arc<Vec<Picture>>,
    /// Side of a patch, in pixels.
    side: usize,
    /// Pixels that blur reaches to each side.
    radius: usize,
    count: usize,
}

/// A patch, original and degraded, colour by colour.
#[derive(Clone, Debug)]
pub(super) struct Patch {
    clean: Vec<f32>,
    degraded: Vec<f32>,
}

impl Patches {
    /// 2^16 patches of 64 x 64; when `small`, 256 of 12 x 12.
    pub(super) fn new(small: bool) -> Self {
        if small { Self::generate([2, 64], 12, 3, 256) } else { Self::generate([16, 512], 64, 8, 1 << 16) }
    }

    fn generate([pictures, whole]: [usize; 2], side: usize, radius: usize, count: usize) -> Self {
        let painted = (0..pictures as u64).map(|seed| Picture::painted(whole, &mut StdRng::seed_from_u64(seed)));
        Self { pictures: Arc::new(painted.collect()), side, radius, count }
    }

    /// Cuts a patch with rotation, scale, mirroring and brightness; adds blur, and noise that grows with brightness.
    fn cut(&self, index: usize, noise: f32) -> Patch {
        let random = &mut StdRng::seed_from_u64(index as u64 + (1 << 32));
        let picture = &self.pictures[random.random_range(0..self.pictures.len())];
        let whole = self.side + 2 * self.radius;
        let wide = View::drawn(picture, whole, random).cut(picture);
        let blur = Blur::drawn(self.radius, random);
        let (mut clean, mut degraded) = (Vec::new(), Vec::new());
        for colour in wide.chunks_exact(whole * whole) {
            let rows = colour.chunks_exact(whole).skip(self.radius).take(self.side);
            rows.for_each(|row| clean.extend_from_slice(&row[self.radius..self.radius + self.side]));
            degraded.extend(blur.apply(colour, whole));
        }
        let mut normal = Normal::default();
        for value in &mut degraded {
            *value += noise * (DARK + BRIGHT * value.max(0.0)).sqrt() * normal.draw(random);
        }
        Patch { clean, degraded }
    }
}

impl Dataset<Patch> for Patches {
    fn get(&self, index: usize) -> Result<Patch, DatasetError> {
        Ok(self.cut(index, 1.0))
    }

    fn len(&self) -> usize {
        self.count
    }
}

/// Puts patches together.
#[derive(Clone)]
pub(super) struct Stack {
    side: usize,
    float: DType,
}

/// Degraded and original patches: `[samples, colours, side, side]` each.
type Batch = (Tensor<4>, Tensor<4>);

impl Batcher<Patch, Batch> for Stack {
    fn batch(&self, items: Vec<Patch>, device: &Device) -> Batch {
        let shape = [items.len(), COLOURS, self.side, self.side];
        let together = |of: fn(&Patch) -> &[f32]| {
            let mut all = Vec::with_capacity(shape.iter().product());
            for item in &items {
                all.extend_from_slice(of(item));
            }
            Tensor::from_data(TensorData::new(all, shape).convert_dtype(self.float), (device, self.float))
        };
        (together(|item| &item.degraded), together(|item| &item.clean))
    }
}

/// Blocks of two convolutions; their result is added to the degraded patch.
#[derive(Module, Debug)]
pub(super) struct Restorer {
    head: Conv2d,
    blocks: Vec<[Conv2d; 2]>,
    tail: Conv2d,
}

impl Restorer {
    fn new(device: &Device) -> Self {
        let conv = |channels| {
            let same = PaddingConfig2d::Explicit(1, 1, 1, 1);
            Conv2dConfig::new(channels, [3, 3]).with_padding(same).init(device)
        };
        let blocks = (0..BLOCKS).map(|_| [CHANNELS; 2].map(|channels| conv([channels; 2])));
        Self { head: conv([COLOURS, CHANNELS]), blocks: blocks.collect(), tail: conv([CHANNELS, COLOURS]) }
    }

    fn restored(&self, degraded: Tensor<4>) -> Tensor<4> {
        let mut hidden = self.head.forward(degraded.clone());
        for [first, second] in &self.blocks {
            hidden = hidden.clone() + second.forward(relu(first.forward(hidden)));
        }
        degraded + self.tail.forward(hidden)
    }
}

impl Task for Patches {
    type Config = Config;
    type Model = Restorer;
    type Item = Patch;
    type Batch = Batch;

    fn naive_batch(&self) -> usize {
        if self.side < 64 { 4 } else { 16 }
    }

    fn batch_sizes(&self) -> Vec<usize> {
        if self.side < 64 { vec![4, 16] } else { vec![16, 256, 1024] }
    }

    fn config(&self) -> Config {
        let pixels = self.side * self.side;
        Config {
            kept_bytes: 4 * pixels * (KEPT * CHANNELS + 2 * COLOURS),
            largest_bytes: 4 * pixels * CHANNELS,
            input_bytes: 4 * pixels * 2 * COLOURS,
            ..Config::default()
        }
    }

    fn model(&self, device: &Device) -> Restorer {
        Restorer::new(device)
    }

    fn samples(&self) -> impl Dataset<Patch> + 'static {
        self.clone()
    }

    fn batcher(&self, float: DType) -> impl Batcher<Patch, Batch> + 'static {
        Stack { side: self.side, float }
    }

    fn loss(model: &Restorer, (degraded, clean): Batch) -> Tensor<1> {
        (in_f32(model.restored(degraded)) - in_f32(clean)).powi_scalar(2).mean()
    }
}

#[cfg(test)]
mod tests {
    use burn::{
        data::dataset::Dataset,
        module::Module,
        tensor::{Device, Tensor},
    };
    use gpu_tuned::Tuned;

    use super::{BLOCKS, CHANNELS, COLOURS, Config, Patches, Restorer, Task};

    #[test]
    fn patches_are_blurred_and_have_noise_of_their_own() {
        let patches = Patches::new(true);
        let (with, without) = (patches.cut(7, 1.0), patches.cut(7, 0.0));
        assert_eq!(with.clean, without.clean);
        assert_eq!(with.degraded, patches.get(7).unwrap().degraded);
        let mean = |values: &[f32]| values.iter().sum::<f32>() / values.len() as f32;
        let apart: Vec<f32> =
            with.degraded.iter().zip(&without.degraded).map(|(one, other)| (one - other).powi(2)).collect();
        // The mean variance is that of the mean brightness.
        let right = super::DARK + super::BRIGHT * mean(&without.degraded);
        assert!((mean(&apart) / right - 1.0).abs() < 0.25, "{} of {right}", mean(&apart));
        let rough = |values: &[f32]| values.windows(2).map(|pair| (pair[1] - pair[0]).abs()).sum::<f32>();
        let all =
            |of: fn(&super::Patch) -> &Vec<f32>| (0..40).map(|index| rough(of(&patches.cut(index, 0.0)))).sum::<f32>();
        assert!(all(|patch| &patch.degraded) < 0.9 * all(|patch| &patch.clean));
        assert_ne!(patches.cut(8, 1.0).clean, with.clean);
    }

    #[test]
    fn what_is_restored_depends_on_the_noise() {
        let patches = Patches::new(true);
        let device = Device::flex();
        let network = Restorer::new(&device);
        let restored = |noise: f32| {
            let degraded = patches.cut(7, noise).degraded;
            let data = burn::tensor::TensorData::new(degraded, [1, 3, 12, 12]);
            network.restored(Tensor::from_data(data, &device)).into_data().iter::<f32>().collect::<Vec<_>>()
        };
        let (with, without) = (restored(1.0), restored(0.0));
        let apart = with.iter().zip(&without).filter(|(one, other)| (*one - *other).abs() > 1e-4).count();
        assert!(apart > with.len() * 9 / 10, "{apart} of {}", with.len());
    }

    #[test]
    fn the_description_is_that_of_the_network() {
        let full = Patches::generate([1, 512], 64, 8, 1);
        let (found, built) = (full.config().workload(), Config::default().workload());
        assert_eq!(found, built);
        let products = 64 * 64 * 9 * CHANNELS * (2 * COLOURS + 2 * BLOCKS * CHANNELS);
        assert!((found.workload().sample.flops / (6 * products) as f64 - 1.0).abs() < 1e-3);
        assert_eq!(full.model(&Device::flex()).num_params() as u64, found.workload().parameters.trained());
    }
}
