//! The model trained by ranks.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::ops::Range;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::ValueEnum;
use gpu_tuned::nn::loss::CrossEntropyLossConfig;
use serde::Serialize;

use crate::encoder::{Encoder, EncoderDimensions};
use crate::network::ENCODER;

/// A transformer by its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Shape {
    /// Six layers of width 512, eight heads, 256 tokens of a vocabulary of 8192, a head over every token
    Transformer,
    /// Two layers of width 32, to be tried on a CPU
    Small,
}

/// Tokens, and the ones to be found.
pub(super) type Batch = (Tensor<2, Int>, Tensor<2, Int>);

impl Shape {
    const fn dimensions(self) -> EncoderDimensions {
        match self {
            Self::Transformer => ENCODER,
            Self::Small => EncoderDimensions { layers: 2, d_model: 32, heads: 4, vocab: 64, tokens: 8 },
        }
    }

    /// The model with random weights.
    pub(super) fn model(self, device: &Device) -> Encoder {
        device.seed(7);
        Encoder::new(&self.dimensions(), device)
    }

    /// A part of the samples of a step, which are the same in every process.
    pub(super) fn batch(self, part: Range<usize>, step: usize, device: &Device) -> Batch {
        let EncoderDimensions { vocab, tokens, .. } = self.dimensions();
        let samples = part.len();
        let draw = |which: u64| -> Vec<i32> {
            let of_sample = |sample: usize| {
                let mut state = 0x2545_f491_4f6c_dd1d_u64 ^ ((step as u64) << 33 | (sample as u64) << 1 | which);
                (0..tokens).map(move |_| {
                    // Knuth's linear congruential generator.
                    state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    i32::try_from((state >> 33) % vocab as u64).unwrap_or_default()
                })
            };
            part.clone().flat_map(of_sample).collect()
        };
        let [inputs, targets] = [draw(0), draw(1)].map(|values| TensorData::new(values, [samples, tokens]));
        (Tensor::from_data(inputs, device), Tensor::from_data(targets, device))
    }
}

/// The mean loss.
pub(super) fn loss(encoder: &Encoder, (tokens, targets): Batch) -> Tensor<1> {
    let logits = encoder.logits(tokens);
    CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets.flatten(0, 1))
}

/// Hash of all parameters' bits, in the order of the model.
pub(super) fn hash(encoder: &Encoder) -> String {
    let mut hash = Hash(DefaultHasher::new());
    encoder.visit(&mut hash);
    format!("{:016x}", hash.0.finish())
}

struct Hash(DefaultHasher);

impl ModuleVisitor for Hash {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        param.base().without_autodiff().into_data().as_bytes().hash(&mut self.0);
    }
}
