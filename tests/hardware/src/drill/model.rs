//! The model of a drill: an encoder over frames of numbers, like those of speech, with a class for each frame.

use std::ops::Range;
use std::sync::Arc;

use burn::{
    module::Module,
    tensor::{Device, Int, Tensor, TensorData},
};
use gpu_tuned::{
    MicroBatch, gpu_tuned,
    nn::{
        Linear, LinearConfig,
        loss::CrossEntropyLossConfig,
        transformer::{TransformerEncoder, TransformerEncoderConfig, TransformerEncoderInput},
    },
};

use super::hooks::{At, Hooks};

/// The encoder's description for `gpu-tuned`. The matrix on frames replaces an embedding. The description lacks the
/// head's bias and some thousand weights.
#[gpu_tuned(
    transformer(heads = 8, causal = false, dropout = false, positions = "none", final_norm = false, tied_head = true),
    global_batch = 512,
    target = "h200"
)]
#[derive(Clone, Debug)]
pub(super) struct Config {
    #[tuned(dim = layers, default = 4)]
    pub(super) layers: usize,
    #[tuned(dim = d_model, default = 512)]
    pub(super) d_model: usize,
    #[tuned(dim = vocab, default = 4096)]
    pub(super) classes: usize,
    #[tuned(dim = seq, default = 64)]
    pub(super) frames: usize,
    #[tuned]
    pub(super) batch_size: usize,
}

/// Numbers in a frame.
const FEATURES: usize = 128;

/// A dense layer on frames, Burn's encoder, and a head over every frame. Without dropout and batch statistics,
/// splitting a batch does not change the loss.
#[derive(Module, Debug)]
pub(super) struct Encoder {
    input: Linear,
    layers: TransformerEncoder,
    head: Linear,
}

impl Encoder {
    pub(super) fn new(config: &Config, device: &Device) -> Self {
        let encoder = TransformerEncoderConfig::new(config.d_model, 4 * config.d_model, 8, config.layers);
        let model = Self {
            input: LinearConfig::new(FEATURES, config.d_model).init(device),
            layers: encoder.with_dropout(0.0).init(device),
            head: LinearConfig::new(config.d_model, config.classes).init(device),
        };
        // Parameters are made when they are first used, and clones made before that would each make their own.
        drop(model.clone().valid());
        model
    }

    /// The mean over the samples.
    pub(super) fn loss(&self, batch: Frames) -> Tensor<1> {
        let hidden = self.layers.forward(TransformerEncoderInput::new(self.input.forward(batch.values)));
        let logits: Tensor<2> = self.head.forward(hidden).flatten(0, 1);
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, batch.classes.flatten(0, 1))
    }
}

/// Sequences, and the classes of their frames.
#[derive(Clone, Debug)]
pub(super) struct Frames {
    values: Tensor<3>,
    classes: Tensor<2, Int>,
    hooks: Arc<Hooks>,
    /// True once the batch was uploaded from host memory.
    brought: bool,
}

impl Frames {
    /// Generates sequences in host memory from a seed. Each class has its own frame, plus noise.
    pub(super) fn new(config: &Config, samples: usize, seed: u64, hooks: &Arc<Hooks>) -> Self {
        let mut noise = Noise(seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut values = Vec::with_capacity(samples * config.frames * FEATURES);
        let mut classes = Vec::with_capacity(samples * config.frames);
        for _ in 0..samples * config.frames {
            let class = noise.next() % config.classes as u64;
            let mut of_class = Noise(class.wrapping_add(1).wrapping_mul(0xD1B5_4A32_D192_ED03));
            values.extend((0..FEATURES).map(|_| of_class.unit() + 0.1 * noise.unit()));
            classes.push(class as i32);
        }
        let host = Device::flex();
        Self {
            values: Tensor::from_data(TensorData::new(values, [samples, config.frames, FEATURES]), &host),
            classes: Tensor::from_data(TensorData::new(classes, [samples, config.frames]), &host),
            hooks: Arc::clone(hooks),
            brought: false,
        }
    }

    /// Returns true once the batch was uploaded to a device.
    pub(super) fn is_brought(&self) -> bool {
        self.brought
    }
}

impl MicroBatch for Frames {
    fn len(&self) -> usize {
        MicroBatch::len(&self.values)
    }

    fn narrow(&self, samples: Range<usize>) -> Self {
        let (values, classes) =
            (MicroBatch::narrow(&self.values, samples.clone()), MicroBatch::narrow(&self.classes, samples));
        Self { values, classes, hooks: Arc::clone(&self.hooks), brought: self.brought }
    }

    fn on_device(self, device: &Device) -> Self {
        self.hooks.pass(At::Upload, self.len());
        let Self { values, classes, hooks, .. } = self;
        let (values, classes) = (MicroBatch::on_device(values, device), MicroBatch::on_device(classes, device));
        Self { values, classes, hooks, brought: true }
    }

    fn has_arrived(&self) -> bool {
        self.values.has_arrived() && self.classes.has_arrived()
    }

    fn bytes(&self, device: &Device) -> usize {
        self.values.bytes(device) + self.classes.bytes(device)
    }

    fn store(self, kept: Option<Self>) -> Option<Self> {
        let (values, classes) = kept.map(|kept| (kept.values, kept.classes)).unzip();
        Some(Self { values: self.values.store(values)?, classes: self.classes.store(classes)?, ..self })
    }
}

/// Pseudo-random numbers; Burn's depend on the device.
struct Noise(u64);

impl Noise {
    /// The next number: `SplitMix64`.
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number in -1..1.
    fn unit(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1_u64 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
mod tests {
    use burn::{module::Module, tensor::Device};
    use gpu_tuned::Tuned;

    use super::{Config, Encoder, FEATURES};

    #[test]
    fn the_description_has_about_the_parameters_of_the_encoder() {
        let config = Config::default();
        let described = config.workload().workload().parameters.trained() as usize;
        let apart = config.classes + FEATURES * config.d_model + config.d_model;
        assert_eq!(Encoder::new(&config, &Device::flex()).num_params(), described + apart);
    }
}
