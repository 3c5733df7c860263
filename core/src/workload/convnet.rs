//! Convolutional classifiers: a stem, stages of blocks, pooling, dense layers.

use serde::{Deserialize, Serialize};

use super::tensors::MOST_VALUES;
use super::{Family, ModelCosts, Product, Role, Tensors};
use crate::Bytes;
use crate::dims::{choices, schema};

schema! {
    /// The dimensions of a convolutional classifier: a stem, stages of blocks, pooling, dense layers.
    ///
    /// By default the stages after the first halve the image. Convolutions have no bias; each has a norm with two parameters a
    /// channel, and an activation. A list with a number for each stage may have one number for all.
    pub struct Convnet {
        image: u64, Count(1..=16_384), "side of the square input image in pixels";
        classes: u64, Count(1..=10_000_000), "classes";
        stages: Vec<Stage>, Stages, "stages of [channels, blocks]";
        block: Block = Block::Plain, Choice(&Block::CHOICES), "structure of a block (default plain)";
        channels: u64 = 3, Count(1..=16_384), "channels of the input image (default 3)";
        #[serde(skip_serializing_if = "Vec::is_empty")]
        strides: Vec<u64> = Vec::new(), Counts(1..=64), "strides of the stages (default 1, then 2; 2 with `max_pooling`)";
        /// Convolutions 1x1 keep theirs.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        kernels: Vec<u64> = Vec::new(), Counts(1..=64), "kernel sizes of the stages (default 3)";
        #[serde(skip_serializing_if = "Vec::is_empty")]
        expand: Vec<u64> = Vec::new(), Counts(1..=64), "widening in inverted blocks, for each stage (default 6)";
        squeeze?: u64, Count(1..=1024), "input channels for each channel of squeeze-and-excitation (default: none)";
        max_pooling: bool = false, Flag, "strides by a max pooling at the end of a stage, as in VGG (default false)";
        padding: bool = true, Flag, "convolutions keep the size of the image (default true)";
        bias: bool = false, Flag, "biases of the convolutions (default false)";
        norm: bool = true, Flag, "a norm after each convolution (default true)";
        activation: Activation = Activation::Relu, Choice(&Activation::CHOICES), "activation (default relu)";
        last_channels?: u64, Count(1..=1 << 20), "channels of a last convolution 1x1 (default: none)";
        pooled: u64 = 1, Count(1..=1024), "side of the image before the dense layers (VGG: 7; default 1)";
        #[serde(skip_serializing_if = "Vec::is_empty")]
        dense: Vec<u64> = Vec::new(), Counts(1..=1 << 20), "widths of dense layers before the classes (default: none)";
        stem_channels?: u64, Count(1..=16_384), "channels of the stem's convolution (default: as the first stage)";
        stem_kernel: u64 = 0, Count(0..=64), "kernel size of the stem's convolution (default 0: no stem)";
        /// Even factors from 4 on include a max pooling by 2.
        stem_stride: u64 = 1, Count(1..=64), "factor by which the stem shrinks the image (default 1)";
        batch_statistics: bool = false, Flag, "BatchNorm as the norm (default false)";
    }
}

choices! {
    /// Structure of a block.
    #[derive(Default)]
    pub enum Block: "block", "workload::Block" {
        /// A convolution 3x3.
        #[default]
        Plain = "plain",
        /// ResNet's basic block: two convolutions 3x3 and a shortcut, with a convolution 1x1 where the shape changes.
        Basic = "basic",
        /// ResNet's bottleneck: convolutions 1x1, 3x3 and 1x1, the first two with a quarter of the channels, and a shortcut.
        Bottleneck = "bottleneck",
        /// `MobileNet`'s: a depthwise convolution 3x3, and a convolution 1x1.
        Separable = "separable",
        /// `MobileNetV2`'s inverted residual: a convolution 1x1 that widens, a depthwise convolution 3x3, a convolution 1x1
        /// without activation, and a shortcut where the shape does not change.
        Inverted = "inverted",
    }
}

/// Blocks of one width.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "[u64; 2]", into = "[u64; 2]")]
pub struct Stage {
    /// Channels of each block's output.
    pub channels: u64,
    /// Blocks.
    pub blocks: u64,
}

choices! {
    /// An activation after convolutions.
    #[derive(Default)]
    pub enum Activation: "activation", "workload::Activation" {
        /// The positive part.
        #[default]
        Relu = "relu",
        /// The input times its sigmoid (swish).
        Silu = "silu",
    }
}

impl From<[u64; 2]> for Stage {
    fn from([channels, blocks]: [u64; 2]) -> Self {
        Self { channels, blocks }
    }
}

impl From<Stage> for [u64; 2] {
    fn from(stage: Stage) -> Self {
        [stage.channels, stage.blocks]
    }
}

/// Convolutions, and what lies between them.
#[derive(Default)]
struct Layout {
    pub convolutions: Vec<Convolution>,
    /// Values of the results of max poolings, each with an index.
    pub pooled: u64,
    /// `[channels, squeezed channels]` of each squeeze-and-excitation.
    pub squeezes: Vec<[u64; 2]>,
    /// Values that squeeze-and-excitation multiplies.
    pub excited: u64,
    /// Channels after the last convolution.
    pub width: u64,
    side: u64,
}

impl Layout {
    fn pool(&mut self, stride: u64) {
        if stride > 1 {
            self.side = self.side.div_ceil(stride);
            self.pooled += 2 * self.width * self.side * self.side;
        }
    }
}

impl Convnet {
    /// The number that a list has for a stage.
    fn for_stage(list: &[u64], index: usize) -> Option<u64> {
        list.get(index).or(list.first().filter(|_| list.len() == 1)).copied()
    }

    /// Channels of the 3x3 convolutions of a block.
    const fn inner(&self, channels: u64) -> u64 {
        if matches!(self.block, Block::Bottleneck) { channels.div_ceil(4) } else { channels }
    }

    /// A convolution with an activation.
    const fn convolution(&self, inputs: u64, outputs: u64, kernel: u64, side: u64) -> Convolution {
        let after = match self.activation {
            Activation::Relu => 2,
            Activation::Silu => 3,
        };
        Convolution { inputs, outputs, kernel, pixels: side * side, after, bias: self.bias, depthwise: false }
    }

    /// Side of an image after a convolution.
    const fn convolved(&self, side: u64, kernel: u64, stride: u64) -> u64 {
        let side = if self.padding { side } else { side.saturating_sub(kernel - 1) };
        if side == 0 { 1 } else { side.div_ceil(stride) }
    }

    fn layout(&self) -> Layout {
        let mut layout = Layout { width: self.channels, side: self.image, ..Layout::default() };
        if self.stem_kernel > 0 {
            self.add_stem(&mut layout);
        }
        for (index, stage) in self.stages.iter().enumerate() {
            self.add_stage(index, *stage, &mut layout);
        }
        if let Some(outputs) = self.last_channels {
            layout.convolutions.push(self.convolution(layout.width, outputs, 1, layout.side));
            layout.width = outputs;
        }
        layout
    }

    fn add_stem(&self, layout: &mut Layout) {
        let first = self.stages.first().map_or(self.channels, |stage| self.inner(stage.channels));
        let outputs = self.stem_channels.unwrap_or(first);
        // A stem with pooling splits its stride: ResNet has 2 for the convolution and 2 for the pooling. An odd stride is
        // the convolution's.
        let pooling = if self.stem_stride >= 4 && self.stem_stride.is_multiple_of(2) { 2 } else { 1 };
        layout.side = self.convolved(layout.side, self.stem_kernel, self.stem_stride / pooling);
        layout.convolutions.push(self.convolution(layout.width, outputs, self.stem_kernel, layout.side));
        layout.width = outputs;
        layout.pool(pooling);
    }

    fn add_stage(&self, index: usize, stage: Stage, layout: &mut Layout) {
        let usual = if index > 0 || self.max_pooling { 2 } else { 1 };
        let stride = Self::for_stage(&self.strides, index).unwrap_or(usual);
        for block in 0..stage.blocks {
            let stride = if block == 0 && !self.max_pooling { stride } else { 1 };
            self.add_block(index, stage.channels, stride, layout);
            layout.width = stage.channels;
        }
        layout.pool(if self.max_pooling { stride } else { 1 });
    }

    fn add_block(&self, index: usize, outputs: u64, stride: u64, layout: &mut Layout) {
        let kernel = Self::for_stage(&self.kernels, index).unwrap_or(3);
        let (inputs, before, inner) = (layout.width, layout.side, self.inner(outputs));
        let side = self.convolved(before, kernel, stride);
        layout.side = side;
        let main = |inputs, outputs, kernel, side| self.convolution(inputs, outputs, kernel, side);
        let depthwise = |channels| Convolution { depthwise: true, ..main(1, channels, kernel, side) };
        let all = &mut layout.convolutions;
        match self.block {
            Block::Plain => return all.push(main(inputs, outputs, kernel, side)),
            Block::Separable => return all.extend([depthwise(inputs), main(inputs, outputs, 1, side)]),
            Block::Inverted => {
                let expand = Self::for_stage(&self.expand, index).unwrap_or(6);
                let wide = inputs * expand;
                all.extend((expand > 1).then(|| main(inputs, wide, 1, before)));
                all.push(depthwise(wide));
                all.push(Convolution { after: 1, ..main(wide, outputs, 1, side) });
                if let Some(squeeze) = self.squeeze {
                    layout.squeezes.push([wide, (inputs / squeeze).max(1)]);
                    layout.excited = layout.excited.saturating_add(wide * side * side);
                }
                return;
            }
            Block::Basic => all.extend([main(inputs, outputs, kernel, side), main(outputs, outputs, kernel, side)]),
            // The 3x3 convolution is the one that halves the image, as in torchvision.
            Block::Bottleneck => all.extend([
                main(inputs, inner, 1, before),
                main(inner, inner, kernel, side),
                main(inner, outputs, 1, side),
            ]),
        }
        if before != side || inputs != outputs {
            all.push(Convolution { after: 0, ..main(inputs, outputs, 1, side) });
        }
    }
}

impl Convnet {
    const fn norm_kind(&self) -> NormKind {
        match (self.norm, self.batch_statistics) {
            (false, _) => NormKind::None,
            (true, true) => NormKind::Batch,
            (true, false) => NormKind::Other,
        }
    }

    /// Inputs and outputs of the dense layers; the last has the classes.
    fn dense_layers(&self, features: u64) -> Vec<[u64; 2]> {
        let inputs = [features].into_iter().chain(self.dense.iter().copied());
        inputs
            .zip(self.dense.iter().copied().chain([self.classes]))
            .map(|(inputs, outputs)| [inputs, outputs])
            .collect()
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let (layout, norm) = (self.layout(), self.norm_kind());
        let convolutions = &layout.convolutions;
        let sum = |values: &dyn Fn(&Convolution) -> u64| {
            convolutions.iter().map(values).fold(0, u64::saturating_add).min(MOST_VALUES)
        };
        let kept = sum(&|convolution| convolution.kept(norm));
        let checkpointed = sum(&|convolution| convolution.kept_checkpointed(norm));
        let of_convolutions: f64 = convolutions.iter().map(|convolution| convolution.multiplications()).sum();
        let input = self.channels * self.image * self.image;
        let largest = convolutions.iter().map(|convolution| convolution.values()).max().unwrap_or(0).max(input);

        let dense = self.dense_layers(layout.width * self.pooled * self.pooled);
        let mut tensors: Vec<_> = convolutions.iter().flat_map(|convolution| convolution.tensors(norm)).collect();
        for [channels, squeezed] in &layout.squeezes {
            tensors.extend([
                Tensors::kernels(1, *squeezed, *channels, 1),
                Tensors::vectors(1, *squeezed),
                Tensors::kernels(1, *channels, *squeezed, 1),
                Tensors::vectors(1, *channels),
            ]);
        }
        for (index, [inputs, outputs]) in dense.iter().enumerate() {
            let role = if index + 1 == dense.len() { Role::Head } else { Role::Dense };
            tensors.extend([Tensors::matrices(1, *inputs, *outputs, role), Tensors::vectors(1, *outputs)]);
        }
        // Inputs of the dense layers, and what their activations keep.
        let features = if self.dense.is_empty() { 0 } else { dense[0][0] };
        let hidden: u64 = self.dense.iter().sum();
        let rest = input + layout.pooled + features;
        let of_dense: f64 = dense.iter().map(|[inputs, outputs]| *inputs as f64 * *outputs as f64).sum();
        let of_squeezes: f64 = layout.squeezes.iter().map(|[wide, squeezed]| 2.0 * (wide * squeezed) as f64).sum();
        let norms: u64 = convolutions.iter().map(|convolution| convolution.outputs).sum();
        let layers = convolutions.len() + layout.squeezes.len() + self.dense.len();
        ModelCosts {
            tensors,
            buffers: if norm == NormKind::Batch { 2 * norms } else { 0 },
            kept: kept + rest + layout.excited.min(MOST_VALUES) + 2 * hidden,
            kept_checkpointed: Some(checkpointed + rest + hidden),
            largest: Some(largest),
            result: self.classes,
            input: Some(Bytes(input).times(4)),
            multiplications: of_convolutions + of_squeezes + of_dense,
            kernels: layers as u64 * Convolution::KERNELS,
            family: Family::Convnet,
            batch_statistics: norm == NormKind::Batch,
            statistics_pixels: Convolution::statistics_pixels(convolutions, norm),
            dominant_product: Convolution::dominant_product(convolutions),
            channels: Convolution::mean_channels(convolutions),
            ..ModelCosts::default()
        }
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        if self.stem_kernel == 0 && self.stem_stride != 1 {
            found.push((
                "stem_stride",
                "stem_stride without stem_kernel: a model without a stem has no stride".to_owned(),
            ));
        }
        if self.stem_kernel == 0 && self.stem_channels.is_some() {
            found.push(("stem_channels", "stem_channels without stem_kernel: give the size of its kernel".to_owned()));
        }
        let stages = self.stages.len();
        for (name, list) in [("strides", &self.strides), ("kernels", &self.kernels), ("expand", &self.expand)] {
            if list.len() > 1 && list.len() != stages {
                let message =
                    format!("{name} has {} numbers for {stages} stages: give one for all, or each", list.len());
                found.push((name, message));
            }
        }
        let inverted = [("expand", !self.expand.is_empty()), ("squeeze", self.squeeze.is_some())];
        for (name, _) in inverted.into_iter().filter(|(_, is_given)| *is_given && self.block != Block::Inverted) {
            found.push((name, format!("{name} is for inverted blocks: add block = \"inverted\"")));
        }
        let has_shortcut = matches!(self.block, Block::Basic | Block::Bottleneck | Block::Inverted);
        if !self.padding && has_shortcut {
            let message =
                "padding = false needs block = \"plain\" or \"separable\": a shortcut adds images of one size";
            found.push(("padding", message.to_owned()));
        }
        if self.batch_statistics && !self.norm {
            found.push(("norm", "norm = false and batch_statistics = true contradict each other".to_owned()));
        }
        found
    }
}

/// Shape of one convolution with its norm.
#[derive(Clone, Copy)]
pub(super) struct Convolution {
    /// Input channels of each output: 1 if depthwise.
    pub inputs: u64,
    pub outputs: u64,
    pub kernel: u64,
    /// Pixels of the output.
    pub pixels: u64,
    /// Tensors kept of what follows: the norm's output where something reads it, and the activation's own. A shortcut has
    /// none, and a convolution without an activation has the norm's output or the block's sum.
    pub after: u64,
    pub bias: bool,
    /// True if each output has one input channel.
    pub depthwise: bool,
}

/// The norm after a convolution.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum NormKind {
    /// `BatchNorm`, one operation.
    Batch,
    /// A norm composed of several operations, such as `GroupNorm`.
    Other,
    /// None.
    None,
}

impl Convolution {
    /// Kernels of a convolution with norm and activation, forward and backward. Not measured.
    pub(super) const KERNELS: u64 = 40;

    pub(super) fn tensors(self, norm: NormKind) -> impl Iterator<Item = Tensors> {
        let vectors = u64::from(self.bias) + if norm == NormKind::None { 0 } else { 2 };
        let kernels = Tensors::kernels(1, self.outputs, self.inputs, self.kernel);
        [kernels, Tensors::vectors(vectors, self.outputs)].into_iter().filter(|group| group.count > 0)
    }

    pub(super) fn multiplications(self) -> f64 {
        (self.inputs * self.kernel * self.kernel) as f64 * (self.outputs * self.pixels) as f64
    }

    /// Harmonic mean of the output channels, weighted by multiplications. Those of a depthwise convolution are separate
    /// products of one channel each.
    pub(super) fn mean_channels(all: &[Self]) -> Option<f64> {
        let of_all: f64 = all.iter().map(|convolution| convolution.multiplications()).sum();
        let channels = |convolution: &Self| if convolution.depthwise { 1.0 } else { convolution.outputs as f64 };
        let by_channels = |convolution: &Self| convolution.multiplications() / channels(convolution);
        (of_all > 0.0).then(|| of_all / all.iter().map(by_channels).sum::<f64>())
    }

    /// The matrix product of the convolution with most multiplications.
    pub(super) fn dominant_product(all: &[Self]) -> Option<Product> {
        let heaviest = all.iter().max_by(|a, b| a.multiplications().total_cmp(&b.multiplications()))?;
        Some(heaviest.product())
    }

    /// Pixels of the smallest image that a `BatchNorm` sees.
    pub(super) fn statistics_pixels(all: &[Self], norm: NormKind) -> Option<u64> {
        all.iter().map(|convolution| convolution.pixels).min().filter(|_| norm == NormKind::Batch)
    }

    pub(super) const fn values(self) -> u64 {
        self.outputs * self.pixels
    }

    /// The equivalent matrix product.
    const fn product(self) -> Product {
        Product { rows_per_sample: self.pixels, inner: self.inputs * self.kernel * self.kernel, columns: self.outputs }
    }

    /// Values kept for the backward pass, counted in Burn 0.22.1 operation by operation: `tests/models/KEPT.md`.
    ///
    /// `BatchNorm` keeps the convolution's output, the norm's and the activation's. Other norms keep a centred and a
    /// normalized tensor instead of the convolution's output. Without a norm a shortcut keeps nothing: a sum reads its output.
    pub(super) fn kept(self, norm: NormKind) -> u64 {
        match norm {
            NormKind::Batch => self.padded() + self.after * self.values(),
            NormKind::Other => (2 + self.after) * self.values(),
            NormKind::None if self.after == 0 => 0,
            NormKind::None => self.padded() + self.after.saturating_sub(1) * self.values(),
        }
    }

    /// Values kept under checkpointing: the outputs of convolutions and of `BatchNorm`.
    pub(super) fn kept_checkpointed(self, norm: NormKind) -> u64 {
        self.padded() + if norm == NormKind::Batch { self.values() } else { 0 }
    }

    /// Values of the output as CUDA allocates them. `CubeCL` 0.11.3 puts channels last and pads the bytes of a pixel.
    /// Below 512 bytes to a power of two of at least 16, else to a multiple of 512; a single channel is not padded.
    fn padded(self) -> u64 {
        let bytes = 4 * self.outputs;
        let row = if self.outputs == 1 {
            bytes
        } else if bytes < 512 {
            bytes.next_power_of_two().max(16)
        } else {
            bytes.next_multiple_of(512)
        };
        row / 4 * self.pixels
    }
}
