//! The models that are measured.

use burn::{
    module::Module,
    tensor::{Device, Distribution, Int, Shape, Tensor, TensorData},
};
use clap::ValueEnum;
use gpu_tuned::mixed::in_f32;
use gpu_tuned::nn::loss::CrossEntropyLossConfig;
use gpu_tuned_core::workload::{self, Block, Stage};
use models_tests::{
    Network as _,
    convnet::{self, Convnet},
    mobile::Mobile,
    recurrent::{self, Recurrent},
    unet::{self, UNet},
};
use serde::Serialize;

use crate::encoder::{Encoder, EncoderDimensions};
use crate::vit::{Vit, VitDimensions};

/// Classes of images and series.
pub const CLASSES: usize = 10;

/// Dimensions of the transformer.
const ENCODER: EncoderDimensions = EncoderDimensions { layers: 6, d_model: 512, heads: 8, vocab: 8192, tokens: 256 };
const GPT: EncoderDimensions = EncoderDimensions { layers: 6, d_model: 384, heads: 6, vocab: 50_257, tokens: 256 };
const SMALL_ENCODER: EncoderDimensions = EncoderDimensions { layers: 2, d_model: 64, heads: 4, vocab: 128, tokens: 32 };

/// The dimensions of a network.
#[derive(Clone, Debug)]
pub enum Dimensions {
    /// Dimensions of [`Network::Transformer`]
    Encoder(EncoderDimensions),
    /// Dimensions of [`Network::Convnet`]
    Convnet(convnet::Dimensions),
    /// Dimensions of [`Network::Depthwise`]
    Depthwise(workload::Convnet),
    /// Dimensions of [`Network::Lstm`]
    Lstm,
    /// Dimensions of [`Network::UNet`]
    UNet(unet::Dimensions),
    /// Dimensions of [`Network::Vit`]
    Vit(VitDimensions),
}

impl Dimensions {
    /// A network with random weights.
    pub fn network(&self, device: &Device) -> Network {
        match self {
            Self::Encoder(dimensions) => Network::Transformer(Encoder::new(dimensions, device)),
            Self::Convnet(dimensions) => Network::Convnet(Convnet::new(dimensions, device)),
            Self::Depthwise(dimensions) => Network::Depthwise(Mobile::new(dimensions, device)),
            Self::Lstm => Network::Lstm(Recurrent::new(&SEQUENCES, device)),
            Self::UNet(dimensions) => Network::UNet(UNet::new(dimensions, device)),
            Self::Vit(dimensions) => Network::Vit(Vit::new(dimensions, device)),
        }
    }
}

/// A model by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Model {
    /// Six layers of width 512, eight heads, 256 tokens of a vocabulary of 8192, a head over every token
    Transformer,
    /// Six layers of width 384, six heads, 256 tokens of a vocabulary of 50,257, a head over every token
    Gpt,
    /// Eight convolutions of 96 channels on 64x64 images
    Convnet,
    /// ResNet-18 without its stem on 32x32 images
    #[value(name = "resnet")]
    ResNet,
    /// Nine residual blocks of 64 to 256 channels on 64x64 images
    Residual,
    /// Nine depthwise blocks of 64 to 256 channels on 64x64 images
    Depthwise,
    /// Three layers of width 256 over 60 steps
    Lstm,
    /// Widths of 32 to 256 on images of 128x128, two classes of a pixel
    #[value(name = "unet")]
    UNet,
    /// A vision transformer: four layers of width 256, four heads, 144 patches of 8x8 pixels
    Vit,
}

/// A model with its weights.
#[expect(clippy::large_enum_variant, reason = "there is one at a time")]
#[derive(Module, Debug)]
pub enum Network {
    /// [`Model::Transformer`]
    Transformer(Encoder),
    /// [`Model::Convnet`], [`Model::ResNet`] and [`Model::Residual`]
    Convnet(Convnet),
    /// [`Model::Depthwise`]
    Depthwise(Mobile),
    /// [`Model::Lstm`]
    Lstm(Recurrent),
    /// [`Model::UNet`]
    UNet(UNet),
    /// [`Model::Vit`]
    Vit(Vit),
}

/// A micro-batch on the device.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Inputs of the model.
    pub samples: Samples,
    /// Target classes, the same number for every sample.
    pub targets: Tensor<1, Int>,
}

/// Inputs of a model.
#[derive(Clone, Debug)]
pub enum Samples {
    /// `[samples, tokens]`
    Tokens(Tensor<2, Int>),
    /// `[samples, channels, side, side]`
    Images(Tensor<4>),
    /// `[samples, steps, inputs]`
    Sequences(Tensor<3>),
}

/// Content of a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// Zeros that come from the host, as a loader's do.
    Uploaded,
    /// Noise, since products of zeros take less power, and so less time, than those of training.
    Random,
}

impl Fill {
    fn floats<const D: usize>(self, shape: [usize; D], device: &Device) -> Tensor<D> {
        match self {
            Self::Uploaded => Tensor::from_data(TensorData::zeros::<f32, _>(shape), device),
            Self::Random => Tensor::random(shape, Distribution::Normal(0.0, 1.0), device),
        }
    }

    fn below<const D: usize>(self, limit: usize, shape: [usize; D], device: &Device) -> Tensor<D, Int> {
        match self {
            Self::Uploaded => Tensor::from_data(TensorData::zeros::<i32, _>(shape), device),
            Self::Random => Tensor::random(Shape::from(shape), Distribution::Uniform(0.0, limit as f64), device),
        }
    }
}

impl Model {
    /// The name in options, output and locks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Transformer => "transformer",
            Self::Gpt => "gpt",
            Self::Convnet => "convnet",
            Self::ResNet => "resnet",
            Self::Residual => "residual",
            Self::Depthwise => "depthwise",
            Self::Lstm => "lstm",
            Self::UNet => "unet",
            Self::Vit => "vit",
        }
    }

    /// The model with random weights.
    pub fn network(self, device: &Device) -> Network {
        self.dimensions().network(device)
    }

    /// The dimensions that the model is measured with.
    pub fn dimensions(self) -> Dimensions {
        match self {
            Self::Transformer => Dimensions::Encoder(ENCODER),
            Self::Gpt => Dimensions::Encoder(GPT),
            Self::Convnet | Self::ResNet | Self::Residual => Dimensions::Convnet(self.images()),
            Self::Depthwise => Dimensions::Depthwise(depthwise(SIDE, DEPTHWISE)),
            Self::Lstm => Dimensions::Lstm,
            Self::UNet => Dimensions::UNet(PIXELS),
            Self::Vit => Dimensions::Vit(PATCHES),
        }
    }

    /// A micro-batch of `samples` samples.
    pub fn batch(self, samples: usize, fill: Fill, device: &Device) -> Batch {
        let classes = |limit, rows| fill.below(limit, [rows], device);
        let (samples, targets) = match self {
            Self::Transformer | Self::Gpt => {
                let EncoderDimensions { vocab, tokens: length, .. } = if self == Self::Gpt { GPT } else { ENCODER };
                let tokens = fill.below(vocab, [samples, length], device);
                (Samples::Tokens(tokens), classes(vocab, samples * length))
            }
            Self::Convnet | Self::ResNet | Self::Residual | Self::Depthwise => {
                let side = if self == Self::Depthwise { SIDE } else { self.images().image };
                (Samples::Images(fill.floats([samples, 3, side, side], device)), classes(CLASSES, samples))
            }
            Self::Lstm => {
                let sequences = fill.floats([samples, SEQUENCES.seq, SEQUENCES.input], device);
                (Samples::Sequences(sequences), classes(CLASSES, samples))
            }
            Self::UNet => {
                let unet::Dimensions { image, channels, classes: of_pixel, .. } = PIXELS;
                let images = fill.floats([samples, channels, image, image], device);
                (Samples::Images(images), classes(of_pixel, samples * image * image))
            }
            Self::Vit => {
                let images = fill.floats([samples, 3, PATCHES.image, PATCHES.image], device);
                (Samples::Images(images), classes(CLASSES, samples))
            }
        };
        Batch { samples, targets }
    }

    /// A network of the same kind, small enough for a CPU to train in seconds.
    pub fn small(self) -> Dimensions {
        match self {
            Self::Transformer | Self::Gpt => Dimensions::Encoder(SMALL_ENCODER),
            Self::Depthwise => Dimensions::Depthwise(depthwise(16, &[(16, 1), (32, 1)])),
            Self::Convnet | Self::ResNet | Self::Residual => {
                let small = convnet::Dimensions { image: 16, stages: vec![[16, 2], [32, 2]], ..self.images() };
                Dimensions::Convnet(small)
            }
            Self::Lstm => Dimensions::Lstm,
            Self::UNet => Dimensions::UNet(unet::Dimensions { image: 16, base: 8, depth: 2, ..PIXELS }),
            Self::Vit => Dimensions::Vit(VitDimensions { image: 16, patch: 4, layers: 2, d_model: 32, heads: 2 }),
        }
    }

    fn images(self) -> convnet::Dimensions {
        let (image, stages, kind) = match self {
            Self::ResNet => (32, vec![[64, 2], [128, 2], [256, 2], [512, 2]], Block::Basic),
            Self::Residual => (SIDE, vec![[64, 3], [128, 3], [256, 3]], Block::Basic),
            _ => (SIDE, vec![[96, 8]], Block::Plain),
        };
        convnet::Dimensions { image, stages, classes: CLASSES, kind, group_norm: false, stem: false }
    }
}

/// Side of most images.
const SIDE: usize = 64;

/// Channels and blocks of the depthwise network.
const DEPTHWISE: &[(u64, u64)] = &[(64, 3), (128, 3), (256, 3)];

/// `MobileNet`'s separable convolutions, in stages of channels and blocks.
fn depthwise(image: usize, stages: &[(u64, u64)]) -> workload::Convnet {
    let (first, last) = (stages[0].0, stages[stages.len() - 1].0);
    workload::Convnet {
        image: image as u64,
        classes: CLASSES as u64,
        stages: stages.iter().map(|&(channels, blocks)| Stage::from([channels, blocks])).collect(),
        block: Block::Separable,
        kernels: vec![3],
        stem_kernel: 3,
        stem_stride: 2,
        stem_channels: Some(first),
        last_channels: Some(last),
        batch_statistics: true,
        ..workload::Convnet::default()
    }
}

/// Dimensions of the LSTM.
pub const SEQUENCES: recurrent::Dimensions = recurrent::Dimensions {
    input: 64,
    hidden: 256,
    layers: 3,
    seq: 60,
    classes: CLASSES,
    vocab: 0,
    every_step: false,
    gru: false,
    bidirectional: false,
};

const PATCHES: VitDimensions = VitDimensions { image: 96, patch: 8, layers: 4, d_model: 256, heads: 4 };

const PIXELS: unet::Dimensions =
    unet::Dimensions { image: 128, channels: 3, base: 32, depth: 3, classes: 2, group_norm: true };

impl Network {
    /// The mean loss over a micro-batch.
    pub fn loss(&self, batch: Batch) -> Tensor<1> {
        let logits = self.logits(batch.samples);
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, batch.targets)
    }

    /// The loss, with 16-bit logits widened to fp32 first, as in mixed precision.
    pub fn loss_in_f32(&self, batch: Batch) -> Tensor<1> {
        let logits = self.logits(batch.samples);
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, batch.targets)
    }

    /// The loss in fp32, with one matrix product for the gates of an LSTM.
    pub fn joint_loss(&self, batch: Batch) -> Tensor<1> {
        let (Self::Lstm(lstm), Samples::Sequences(sequences)) = (self, &batch.samples) else {
            return self.loss_in_f32(batch);
        };
        let logits = in_f32(lstm.joint_logits(&SEQUENCES, sequences.clone()));
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, batch.targets)
    }

    fn logits(&self, samples: Samples) -> Tensor<2> {
        match (self, samples) {
            (Self::Transformer(encoder), Samples::Tokens(tokens)) => encoder.logits(tokens),
            (Self::Convnet(convnet), Samples::Images(images)) => convnet.logits(images),
            (Self::Depthwise(mobile), Samples::Images(images)) => mobile.logits(&depthwise(SIDE, DEPTHWISE), images),
            (Self::Lstm(lstm), Samples::Sequences(sequences)) => lstm.logits(&SEQUENCES, sequences),
            (Self::UNet(unet), Samples::Images(images)) => unet.logits(images),
            (Self::Vit(vit), Samples::Images(images)) => vit.logits(images),
            _ => unreachable!("BUG: a batch belongs to its model"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use burn::{module::Module, tensor::Device};
    use gpu_tuned::{lock::LockFile, measure::shape};

    use super::Model;

    #[test]
    fn the_models_are_those_that_results_were_measured_with() {
        let measured = |device: &str| {
            let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("results").join(device).join("gpu-tuned.lock");
            LockFile::new(lock).read().expect("a lock").expect("it is there").workload
        };
        let on_h200 = [Model::Transformer, Model::Convnet];
        let on_h100 = [Model::ResNet, Model::Lstm];
        for (device, models) in [("h200", on_h200), ("h100-sxm5-80gb", on_h100)] {
            let measured = measured(device);
            for model in models {
                let name = model.name();
                assert_eq!(shape(&model.network(&Device::flex())), measured[name].measured.shape, "{name}");
            }
        }
    }

    #[test]
    fn models_have_the_parameters_of_those_known() {
        let parameters = |model: Model| model.network(&Device::flex()).num_params();
        assert!((27_250_000..27_350_000).contains(&parameters(Model::Transformer)));
        // ResNet-18 for CIFAR-10 is published with 11,173,962 parameters and a 3x3 stem, which is missing here. The
        // first block takes the image, and has a shortcut. Burn also counts the running statistics of 4800 channels.
        let (stem, narrower, shortcut) = (3 * 9 * 64 + 2 * 64, 61 * 9 * 64, 3 * 64 + 2 * 64);
        // A linear layer over patches, positions, layers of attention, feed-forward layers and two norms, a norm, a head.
        let width = 256;
        let linear = |inputs: usize, outputs: usize| inputs * outputs + outputs;
        let layer = 4 * linear(width, width) + linear(width, 4 * width) + linear(4 * width, width) + 4 * width;
        let vit = linear(3 * 8 * 8, width) + 144 * width + 4 * layer + 2 * width + linear(width, 10);
        assert_eq!((vit, parameters(Model::Vit)), (3_248_394, vit));
        // Two convolutions without bias and two norms at each level, down and up; a transposed convolution before each level up.
        let convs = |inputs: usize, outputs: usize| 9 * (inputs + outputs) * outputs + 4 * outputs;
        let down = convs(3, 32) + convs(32, 64) + convs(64, 128) + convs(128, 256);
        let up = |width: usize| linear(2 * width * 4, width) + convs(2 * width, width);
        let unet = down + up(128) + up(64) + up(32) + linear(32, 2);
        assert_eq!((unet, parameters(Model::UNet)), (1_927_042, unet));
        assert_eq!(parameters(Model::ResNet), 11_173_962 - stem - narrower + shortcut + 2 * 4800);
    }
}
