//! Models in Burn of the families that gpu-tuned plans for, and their memory in training.
//!
//! `KEPT.md` has the results; the tests compare `gpu_tuned_core::workload` with these models.

pub mod convnet;
pub mod diffusion;
pub mod encoder_decoder;
pub mod experts;
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

use burn::{
    nn::loss::CrossEntropyLossConfig,
    tensor::{Int, Tensor},
};
use gpu_tuned_core::workload::Stage;

/// Stages of channels and blocks, as core describes them.
fn stages(all: &[[usize; 2]]) -> Vec<Stage> {
    all.iter().map(|stage| Stage::from(stage.map(|count| count as u64))).collect()
}

/// Mean cross entropy of logits `[rows, classes]`, all of whose targets are class 0.
pub fn cross_entropy(logits: Tensor<2>) -> Tensor<1> {
    let targets = Tensor::<1, Int>::zeros([logits.dims()[0]], &logits.device());
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets)
}
