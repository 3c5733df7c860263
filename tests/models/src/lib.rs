//! Models in Burn of the families that gpu-tuned plans for, and their memory in training.
//!
//! `KEPT.md` has the results; the tests compare `gpu_tuned_core::workload` with these models.

pub mod convnet;
pub mod diffusion;
pub mod encoder_decoder;
pub mod llama;
#[cfg(feature = "count")]
pub mod measure;
pub mod mlp;
pub mod mobile;
pub mod recurrent;
pub mod transformer;
pub mod unet;
pub mod vgg;
pub mod vit;
pub mod work;

use std::fmt::Debug;

use burn::{
    module::Module,
    tensor::{Device, Int, Tensor},
};
use gpu_tuned::nn::{
    PaddingConfig2d,
    conv::{Conv2d, Conv2dConfig},
    loss::CrossEntropyLossConfig,
};
use gpu_tuned_core::workload::ModelSpec;

/// A model that is trained on zeros.
pub trait Network: Module {
    /// Dimensions, which core describes too.
    type Dimensions: Clone + Debug + Into<ModelSpec>;

    /// A model with random weights.
    fn new(dimensions: &Self::Dimensions, device: &Device) -> Self;

    /// The loss over some samples.
    fn loss(&self, dimensions: &Self::Dimensions, samples: usize, device: &Device) -> Tensor<1>;
}

/// Sizes as Burn has them.
fn sizes<const N: usize>(all: [u64; N]) -> [usize; N] {
    all.map(|size| size as usize)
}

/// A convolution of an odd kernel that keeps the side, but for the stride.
fn conv(channels: [usize; 2], kernel: usize, stride: usize, device: &Device) -> Conv2d {
    same(channels, kernel, stride).init(device)
}

fn same(channels: [usize; 2], kernel: usize, stride: usize) -> Conv2dConfig {
    let padding = PaddingConfig2d::Explicit(kernel / 2, kernel / 2, kernel / 2, kernel / 2);
    Conv2dConfig::new(channels, [kernel; 2]).with_stride([stride; 2]).with_padding(padding)
}

/// Mean cross entropy of logits `[rows, classes]`, all of whose targets are class 0.
pub fn cross_entropy(logits: Tensor<2>) -> Tensor<1> {
    let targets = Tensor::<1, Int>::zeros([logits.dims()[0]], &logits.device());
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets)
}
