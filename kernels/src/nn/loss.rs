//! Losses: cross-entropy in one pass over the logits.

pub use burn::nn::loss::*;

use burn::nn::loss as burn_loss;
use burn::tensor::{DType, FloatDType, Int, Tensor};

use super::ByLibrary;
pub use super::config::CrossEntropyLossConfig;
use crate::product::target_log_probs;

/// Cross-entropy of logits or probabilities and targets.
pub type CrossEntropyLoss = ByLibrary<burn_loss::CrossEntropyLoss>;

impl CrossEntropyLoss {
    /// Mean loss of `[rows, classes]` and targets `[rows]`, in f32 for 16-bit logits as well.
    ///
    /// # Panics
    ///
    /// Panics if logits and targets differ in their rows.
    pub fn forward(&self, logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
        assert_eq!(logits.dims()[0], targets.dims()[0], "rows of logits and targets");
        if self.smoothing.is_some() || !self.logits {
            return self.0.forward(in_f32(logits), targets);
        }
        let tokens = self.pad_tokens.iter().flatten();
        let masks = tokens.map(|token| targets.clone().equal_scalar(i64::try_from(*token).unwrap_or(i64::MAX)));
        let padded = masks.reduce(Tensor::bool_or);
        let log_probs = target_log_probs(logits, targets.clone());
        let weights = self.weights.clone().map(|weights| in_f32(weights.gather(0, targets)));
        if weights.is_none() && padded.is_none() {
            return log_probs.mean().neg();
        }
        let weights = weights.unwrap_or_else(|| log_probs.ones_like());
        // The target of a padded row may be no class, and its probability no number.
        let kept = |tensor: Tensor<1>| match &padded {
            Some(padded) => tensor.mask_fill(padded.clone(), 0),
            None => tensor,
        };
        (kept(log_probs) * kept(weights.clone())).sum().neg() / kept(weights).sum()
    }
}

fn in_f32<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    match tensor.dtype() {
        DType::F16 | DType::BF16 => tensor.cast(FloatDType::F32),
        _ => tensor,
    }
}
