//! The model trained by ranks.

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{Embedding, EmbeddingConfig, Linear, LinearConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};
use clap::ValueEnum;
use serde::Serialize;

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

#[derive(Module, Debug)]
pub(super) struct Encoder {
    tokens: Embedding,
    layers: TransformerEncoder,
    head: Linear,
}

impl Shape {
    /// Vocabulary, width, heads, layers, tokens.
    const fn dimensions(self) -> [usize; 5] {
        match self {
            Self::Transformer => [8192, 512, 8, 6, 256],
            Self::Small => [64, 32, 4, 2, 8],
        }
    }

    /// The model with random weights.
    pub(super) fn model(self, device: &Device) -> Encoder {
        let [vocabulary, width, heads, layers, _] = self.dimensions();
        Encoder {
            tokens: EmbeddingConfig::new(vocabulary, width).init(device),
            layers: TransformerEncoderConfig::new(width, 4 * width, heads, layers).with_dropout(0.0).init(device),
            head: LinearConfig::new(width, vocabulary).init(device),
        }
    }

    /// A deterministic batch of `samples` samples.
    pub(super) fn batch(self, samples: usize, device: &Device) -> Batch {
        let [vocabulary, .., tokens] = self.dimensions();
        let mut state = 0x2545_f491_4f6c_dd1d_u64;
        let mut token = || {
            // Knuth's linear congruential generator.
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % vocabulary as u64
        };
        let mut draw = || (0..samples * tokens).map(|_| i32::try_from(token()).unwrap_or_default()).collect::<Vec<_>>();
        let [inputs, targets] = [draw(), draw()].map(|values| TensorData::new(values, [samples, tokens]));
        (Tensor::from_data(inputs, device), Tensor::from_data(targets, device))
    }
}

impl Encoder {
    /// The mean loss.
    pub(super) fn loss(&self, (tokens, targets): Batch) -> Tensor<1> {
        let hidden = self.layers.forward(TransformerEncoderInput::new(self.tokens.forward(tokens)));
        let logits: Tensor<2> = self.head.forward(hidden).flatten(0, 1);
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets.flatten(0, 1))
    }

    /// All parameters, in the order of the model.
    pub(super) fn values(&self) -> Vec<f64> {
        let mut values = Values(Vec::new());
        self.visit(&mut values);
        values.0
    }

    /// The model with other values, in its own type.
    pub(super) fn with(self, values: Vec<f64>) -> Self {
        self.map(&mut Given(values.into_iter()))
    }
}

struct Values(Vec<f64>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.base().without_autodiff().into_data().iter::<f64>());
    }
}

struct Given(std::vec::IntoIter<f64>);

impl ModuleMapper for Given {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| {
            let shape = old.shape();
            let values: Vec<f64> = self.0.by_ref().take(shape.num_elements()).collect();
            Tensor::from_data(TensorData::new(values, shape), (&old.device(), old.dtype())).detach().require_grad()
        })
    }
}
