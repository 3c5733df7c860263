//! Three small models with data that they can learn; their losses are in f32.

use burn::module::Module;
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::pool::{AdaptiveAvgPool2d, AdaptiveAvgPool2dConfig};
use burn::nn::transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput};
use burn::nn::{BatchNorm, BatchNormConfig, Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig, Relu};
use burn::tensor::{Device, Int, Tensor, TensorData};
use gpu_tuned::mixed::{InF32, in_f32};

pub(crate) const BATCH: usize = 16;

/// A model and what it is trained on.
pub(crate) trait Learner: Module {
    fn init(device: &Device) -> Self;
    /// The loss of a batch, shape `[1]`, f32; `seed` says which.
    fn loss(&self, seed: u64, device: &Device) -> Tensor<1>;
}

/// Numbers that look random, the same in every process.
pub(crate) struct Numbers(u64);

impl Numbers {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0xD1B5_4A32_D192_ED03)
    }

    pub(crate) fn below(&mut self, bound: i32) -> i32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as i32 % bound
    }

    /// In -1..1.
    pub(crate) fn real(&mut self) -> f32 {
        self.below(1 << 24) as f32 / (1 << 23) as f32 - 1.0
    }

    /// Mean 0, deviation 1.
    pub(crate) fn normal(&mut self) -> f64 {
        (0..12).map(|_| f64::from(self.real()) / 2.0).sum()
    }
}

const TOKENS: i32 = 16;
const LENGTH: usize = 8;
const WIDTH: usize = 32;

/// Each token is to become the sum of itself and the one before.
#[derive(Module, Debug)]
pub(crate) struct Transformer {
    tokens: Embedding,
    positions: Embedding,
    encoder: TransformerEncoder,
    head: Linear,
}

impl Learner for Transformer {
    fn init(device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(WIDTH, 2 * WIDTH, 4, 1).with_dropout(0.0).with_norm_first(true);
        Self {
            tokens: EmbeddingConfig::new(TOKENS as usize, WIDTH).init(device),
            positions: EmbeddingConfig::new(LENGTH, WIDTH).init(device),
            encoder: encoder.init(device),
            head: LinearConfig::new(WIDTH, TOKENS as usize).init(device),
        }
    }

    fn loss(&self, seed: u64, device: &Device) -> Tensor<1> {
        let mut numbers = Numbers::new(seed);
        let tokens: Vec<i32> = (0..BATCH * LENGTH).map(|_| numbers.below(TOKENS)).collect();
        let sums = tokens.iter().enumerate().map(|(index, token)| {
            let before = if index % LENGTH == 0 { 0 } else { tokens[index - 1] };
            (token + before) % TOKENS
        });
        let targets = Tensor::<1, Int>::from_data(TensorData::new(sums.collect(), [BATCH * LENGTH]), device);
        let tokens = Tensor::<2, Int>::from_data(TensorData::new(tokens, [BATCH, LENGTH]), device);
        let positions = Tensor::<1, Int>::arange(0..i64::try_from(LENGTH).unwrap(), device).unsqueeze::<2>();
        let embedded = self.tokens.forward(tokens) + self.positions.forward(positions);
        let hidden = self.encoder.forward(TransformerEncoderInput::new(embedded));
        let logits = in_f32(self.head.forward(hidden).reshape([BATCH * LENGTH, TOKENS as usize]));
        CrossEntropyLossConfig::new().init(device).forward(logits, targets)
    }
}

const SIDE: usize = 8;

/// Stripes in one of four directions, under noise, of unlike brightness.
#[derive(Module, Debug)]
pub(crate) struct Convnet {
    first: Conv2d,
    first_norm: InF32<BatchNorm>,
    second: Conv2d,
    second_norm: InF32<BatchNorm>,
    pool: AdaptiveAvgPool2d,
    head: Linear,
}

impl Learner for Convnet {
    fn init(device: &Device) -> Self {
        Self {
            first: Conv2dConfig::new([1, 8], [3, 3]).init(device),
            first_norm: BatchNormConfig::new(8).init(device).into(),
            second: Conv2dConfig::new([8, 8], [3, 3]).init(device),
            second_norm: BatchNormConfig::new(8).init(device).into(),
            pool: AdaptiveAvgPool2dConfig::new([1, 1]).init(),
            head: LinearConfig::new(8, 4).init(device),
        }
    }

    fn loss(&self, seed: u64, device: &Device) -> Tensor<1> {
        let mut numbers = Numbers::new(seed);
        let (mut images, mut labels) = (Vec::new(), Vec::new());
        for _ in 0..BATCH {
            let class = numbers.below(4);
            labels.push(class);
            for pixel in 0..SIDE * SIDE {
                let (row, column) = (pixel / SIDE, pixel % SIDE);
                let along = [row, column, row + column, row + SIDE - column][class as usize];
                images.push(if along % 4 < 2 { 1.0 } else { 0.0 } + 0.8 * numbers.real());
            }
        }
        let images = Tensor::<4>::from_data(TensorData::new(images, [BATCH, 1, SIDE, SIDE]), device);
        let labels = Tensor::<1, Int>::from_data(TensorData::new(labels, [BATCH]), device);
        CrossEntropyLossConfig::new().init(device).forward(in_f32(self.forward(images)), labels)
    }
}

impl Convnet {
    /// Logits `[samples, 4]` of images `[samples, 1, side, side]`.
    pub(crate) fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let samples = images.dims()[0];
        let hidden = Relu::new().forward(self.first_norm.forward(self.first.forward(images)));
        let hidden = Relu::new().forward(self.second_norm.forward(self.second.forward(hidden)));
        self.head.forward(self.pool.forward(hidden).reshape([samples, 8]))
    }
}

/// The mean of a sequence, and its first value.
#[derive(Module, Debug)]
pub(crate) struct Recurrent {
    lstm: Lstm,
    head: Linear,
}

impl Learner for Recurrent {
    fn init(device: &Device) -> Self {
        Self { lstm: LstmConfig::new(1, 24, true).init(device), head: LinearConfig::new(24, 1).init(device) }
    }

    fn loss(&self, seed: u64, device: &Device) -> Tensor<1> {
        let mut numbers = Numbers::new(seed);
        let values: Vec<f32> = (0..BATCH * LENGTH).map(|_| numbers.real()).collect();
        let targets = values.chunks(LENGTH).map(|row| row[0] + row.iter().sum::<f32>() / LENGTH as f32);
        let targets = Tensor::<2>::from_data(TensorData::new(targets.collect(), [BATCH, 1]), device);
        let values = Tensor::<3>::from_data(TensorData::new(values, [BATCH, LENGTH, 1]), device);
        let (_, state) = self.lstm.forward(values, None);
        (in_f32(self.head.forward(state.hidden)) - in_f32(targets)).square().mean()
    }
}
