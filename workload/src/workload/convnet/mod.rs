mod convolution;

use serde::{Deserialize, Serialize};

pub(super) use convolution::Convolution;

use super::{Family, ModelCosts, Role, Tensors};
use crate::Bytes;
use crate::dims::{choices, schema};

schema! {
    /// The dimensions of a convolutional classifier: a stem, stages of blocks, global pooling, one dense layer.
    ///
    /// The stages after the first halve the image. Convolutions have no bias; each has a norm with two parameters a channel,
    /// and an activation.
    pub struct Convnet {
        /// Side of the square input image in pixels.
        image: u64, Count(1..=16_384), "side of the square input image in pixels";
        /// Classes.
        classes: u64, Count(1..=10_000_000), "classes";
        /// Stages of `[channels, blocks]`.
        stages: Vec<Stage>, Stages, "stages of [channels, blocks]";
        /// Structure of a block.
        block: Block = Block::Plain, Choice(&Block::CHOICES), "structure of a block (default plain)";
        /// Channels of the input image.
        channels: u64 = 3, Count(1..=16_384), "channels of the input image (default 3)";
        /// Kernel size of the stem's convolution, which has the width of the first stage's blocks; 0 for no stem.
        stem_kernel: u64 = 0, Count(0..=64), "kernel size of the stem's convolution (default 0: no stem)";
        /// Factor by which the stem shrinks the image, its pooling included.
        stem_stride: u64 = 1, Count(1..=64), "factor by which the stem shrinks the image (default 1)";
        /// True if the norms use statistics of the micro-batch (BatchNorm).
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

impl Convnet {
    /// Every convolution from the image to the pooling.
    fn convolutions(&self) -> Vec<Convolution> {
        let mut all = Vec::new();
        let mut width = self.channels;
        let mut side = self.image;
        if self.stem_kernel > 0 {
            let outputs = self.stages.first().map_or(width, |stage| self.inner(stage.channels));
            // A stem with pooling splits its stride: ResNet has 2 for the convolution and 2 for the pooling.
            let stride = if self.stem_stride >= 4 { self.stem_stride / 2 } else { self.stem_stride };
            let convolved = side.div_ceil(stride);
            all.push(Convolution {
                inputs: width,
                outputs,
                kernel: self.stem_kernel,
                pixels: convolved * convolved,
                activated: true,
            });
            width = outputs;
            side = side.div_ceil(self.stem_stride);
        }
        for (index, stage) in self.stages.iter().enumerate() {
            for block in 0..stage.blocks {
                let before = side * side;
                let halves = index > 0 && block == 0;
                side = if halves { side.div_ceil(2) } else { side };
                self.block(width, stage.channels, [before, side * side], &mut all);
                width = stage.channels;
            }
        }
        all
    }

    /// Channels of the 3x3 convolutions of a block.
    const fn inner(&self, channels: u64) -> u64 {
        if matches!(self.block, Block::Bottleneck) { channels.div_ceil(4) } else { channels }
    }

    fn block(&self, inputs: u64, outputs: u64, [before, pixels]: [u64; 2], all: &mut Vec<Convolution>) {
        let inner = self.inner(outputs);
        let main = |inputs, outputs, kernel, pixels| Convolution { inputs, outputs, kernel, pixels, activated: true };
        match self.block {
            Block::Plain => return all.push(main(inputs, outputs, 3, pixels)),
            Block::Basic => all.extend([main(inputs, outputs, 3, pixels), main(outputs, outputs, 3, pixels)]),
            // The 3x3 convolution is the one that halves the image, as in torchvision.
            Block::Bottleneck => all.extend([
                main(inputs, inner, 1, before),
                main(inner, inner, 3, pixels),
                main(inner, outputs, 1, pixels),
            ]),
        }
        if before != pixels || inputs != outputs {
            all.push(Convolution { activated: false, ..main(inputs, outputs, 1, pixels) });
        }
    }

    /// Values of the stem's pooling, and as many indices.
    fn pooled(&self) -> u64 {
        let side = self.image.div_ceil(self.stem_stride);
        let width = self.stages.first().map_or(0, |stage| self.inner(stage.channels));
        if self.stem_kernel > 0 && self.stem_stride >= 4 { 2 * width * side * side } else { 0 }
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let convolutions = self.convolutions();
        let norms = self.batch_statistics;
        let kept: u64 = convolutions.iter().map(|convolution| convolution.kept(norms)).sum();
        let checkpointed: u64 = convolutions.iter().map(|convolution| convolution.kept_checkpointed(norms)).sum();
        let of_convolutions: f64 = convolutions.iter().map(|convolution| convolution.multiplications()).sum();
        let heaviest = convolutions.iter().max_by(|a, b| a.multiplications().total_cmp(&b.multiplications()));
        let input = self.channels * self.image * self.image;
        let largest = convolutions.iter().map(|convolution| convolution.values()).max().unwrap_or(0).max(input);
        let features = self.stages.last().map_or(self.channels, |stage| stage.channels);
        let mut tensors: Vec<_> = convolutions.iter().flat_map(|convolution| convolution.tensors()).collect();
        tensors.extend([Tensors::matrices(1, features, self.classes, Role::Head), Tensors::vectors(1, self.classes)]);
        let channels: u64 = convolutions.iter().map(|convolution| convolution.outputs).sum();
        ModelCosts {
            tensors,
            buffers: if self.batch_statistics { 2 * channels } else { 0 },
            kept: kept + input + self.pooled(),
            kept_checkpointed: Some(checkpointed + input + self.pooled()),
            largest: Some(largest),
            result: self.classes,
            input: Some(Bytes(input).times(4)),
            multiplications: of_convolutions + (features * self.classes) as f64,
            kernels: convolutions.len() as u64 * Convolution::KERNELS,
            family: Family::Convnet,
            batch_statistics: self.batch_statistics,
            dominant_product: heaviest.map(|convolution| convolution.product()),
            channels: Convolution::mean_channels(&convolutions),
            ..ModelCosts::default()
        }
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let pooled = self.stem_kernel == 0 && self.stem_stride != 1;
        let message = "stem_stride without stem_kernel: a model without a stem has no stride";
        pooled.then(|| ("stem_stride", message.to_owned())).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::{Block, Convnet, Stage};

    fn resnet(block: Block, channels: [u64; 4], blocks: [u64; 4]) -> Convnet {
        Convnet {
            image: 224,
            classes: 1000,
            stages: channels.into_iter().zip(blocks).map(|(channels, blocks)| Stage { channels, blocks }).collect(),
            block,
            stem_kernel: 7,
            stem_stride: 4,
            batch_statistics: true,
            ..Convnet::default()
        }
    }

    /// Each with its published parameters, and multiplications of a forward pass: torchvision's model table.
    fn published() -> [(Convnet, u64, f64); 5] {
        let basic = |blocks| resnet(Block::Basic, [64, 128, 256, 512], blocks);
        let bottleneck = |blocks| resnet(Block::Bottleneck, [256, 512, 1024, 2048], blocks);
        [
            (basic([2, 2, 2, 2]), 11_689_512, 1.814e9),
            (basic([3, 4, 6, 3]), 21_797_672, 3.664e9),
            (bottleneck([3, 4, 6, 3]), 25_557_032, 4.089e9),
            (bottleneck([3, 4, 23, 3]), 44_549_160, 7.801e9),
            (bottleneck([3, 8, 36, 3]), 60_192_808, 11.514e9),
        ]
    }

    #[test]
    fn resnets_have_their_published_parameters() {
        for (model, parameters, _) in published() {
            assert_eq!(model.parameters(), parameters);
        }
    }

    #[test]
    fn resnets_have_their_published_multiplications() {
        for (model, _, multiplications) in published() {
            let forward = model.workload().sample.flops / 6.0;
            assert!((forward / multiplications - 1.0).abs() < 0.01, "{forward:e} against {multiplications:e}");
        }
    }

    #[test]
    fn kept_bytes_are_near_those_burn_held_on_an_h200() {
        let stages = vec![Stage { channels: 96, blocks: 8 }];
        let model = Convnet { image: 64, classes: 10, stages, batch_statistics: true, ..Convnet::default() };
        let ours = model.workload().sample.activations.mib();
        // Burn 0.22.1, bytes in use after the forward pass, for each sample.
        assert!((ours / 40.0 - 1.0).abs() < 0.01, "{ours} against 40.0 MiB");
    }
}
