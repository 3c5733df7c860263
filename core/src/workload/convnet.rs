use serde::{Deserialize, Serialize};

use super::{Dim, Family, Optimizer, Product, SampleCost, Workload};
use crate::{Bytes, Provenance};

/// The dimensions of a convolutional classifier: a stem, stages of blocks, global pooling, one dense layer.
///
/// The stages after the first halve the image. A plain block is convolution, norm, activation; a residual one is
/// ResNet's basic block: two of these and a shortcut, with a 1x1 convolution where the shape changes. Convolutions are
/// 3x3 and have no bias; a norm has two parameters a channel.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Convnet {
    /// Side of the square input image in pixels.
    pub image: u64,
    /// Classes.
    pub classes: u64,
    /// Stages of `[channels, blocks]`.
    pub stages: Vec<Stage>,
    /// Channels of the input image.
    #[serde(default = "rgb")]
    pub channels: u64,
    /// Kernel size of the stem's convolution, which has the first stage's channels; 0 for no stem.
    #[serde(default)]
    pub stem_kernel: u64,
    /// Factor by which the stem shrinks the image, its pooling included.
    #[serde(default = "one")]
    pub stem_stride: u64,
    /// Whether the blocks are residual.
    #[serde(default)]
    pub residual: bool,
    /// Whether the norms use statistics of the micro-batch (BatchNorm).
    #[serde(default)]
    pub batch_statistics: bool,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: Optimizer,
}

const fn rgb() -> u64 {
    3
}

const fn one() -> u64 {
    1
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

/// Tensors kept for the backward pass for each convolution with its norm and activation, in units of its output.
///
/// Burn 0.22.1 on an H200 kept 40.0 MiB a sample for 8 blocks of 96 channels on 64x64 images: 3.33 outputs a block.
const KEPT: f64 = 3.5;
/// The same under checkpointing, which keeps the convolution's input and output; not measured.
const KEPT_CHECKPOINTED: f64 = 2.5;
/// Kernels of a convolution with norm and activation, forward and backward.
const KERNELS_PER_CONVOLUTION: u64 = 40;

/// One convolution: its shape and where it runs.
#[derive(Clone, Copy)]
struct Convolution {
    inputs: u64,
    outputs: u64,
    kernel: u64,
    /// Pixels of the output.
    pixels: u64,
}

impl Convolution {
    fn parameters(self) -> u64 {
        self.inputs * self.outputs * self.kernel * self.kernel + 2 * self.outputs
    }

    fn multiplications(self) -> f64 {
        (self.inputs * self.kernel * self.kernel) as f64 * (self.outputs * self.pixels) as f64
    }

    fn values(self) -> u64 {
        self.outputs * self.pixels
    }
}

impl Convnet {
    /// What users give.
    pub const DIMS: &[Dim] = &[
        Dim::count("image", true, "side of the square input image in pixels"),
        Dim::count("classes", true, "classes"),
        Dim { name: "stages", kind: super::DimKind::Stages, meaning: "stages of [channels, blocks]", required: true },
        Dim::count("channels", false, "channels of the input image (default 3)"),
        Dim::count("stem_kernel", false, "kernel size of the stem's convolution (default: no stem)"),
        Dim::count("stem_stride", false, "factor by which the stem shrinks the image (default 1)"),
        Dim::flag("residual", "whether the blocks are residual (default false)"),
        Dim::flag("batch_statistics", "whether the norms are BatchNorm (default false)"),
        Dim::OPTIMIZER,
    ];

    /// Every convolution from the image to the pooling.
    fn convolutions(&self) -> Vec<Convolution> {
        let mut all = Vec::new();
        let mut width = self.channels;
        let mut side = self.image;
        if self.stem_kernel > 0 {
            let outputs = self.stages.first().map_or(width, |stage| stage.channels);
            // Half of a stem's stride is its pooling's, when it has both (ResNet: convolution 2, pooling 2).
            let stride = if self.stem_stride >= 4 { self.stem_stride / 2 } else { self.stem_stride };
            let convolved = side.div_ceil(stride);
            all.push(Convolution { inputs: width, outputs, kernel: self.stem_kernel, pixels: convolved * convolved });
            width = outputs;
            side = side.div_ceil(self.stem_stride);
        }
        for (index, stage) in self.stages.iter().enumerate() {
            for block in 0..stage.blocks {
                let halves = index > 0 && block == 0;
                side = if halves { side.div_ceil(2) } else { side };
                self.block(width, stage.channels, side * side, halves, &mut all);
                width = stage.channels;
            }
        }
        all
    }

    fn block(&self, inputs: u64, outputs: u64, pixels: u64, halves: bool, all: &mut Vec<Convolution>) {
        all.push(Convolution { inputs, outputs, kernel: 3, pixels });
        if self.residual {
            all.push(Convolution { inputs: outputs, outputs, kernel: 3, pixels });
            if halves || inputs != outputs {
                all.push(Convolution { inputs, outputs, kernel: 1, pixels });
            }
        }
    }

    /// Trainable parameters.
    pub fn parameters(&self) -> u64 {
        let features = self.stages.last().map_or(self.channels, |stage| stage.channels);
        let head = features * self.classes + self.classes;
        self.convolutions().iter().map(|convolution| convolution.parameters()).sum::<u64>() + head
    }

    /// What one training step costs.
    pub fn workload(&self) -> Workload {
        let convolutions = self.convolutions();
        let values: u64 = convolutions.iter().map(|convolution| convolution.values()).sum();
        let multiplications: f64 = convolutions.iter().map(|convolution| convolution.multiplications()).sum();
        let heaviest = convolutions.iter().max_by(|a, b| a.multiplications().total_cmp(&b.multiplications()));
        let input = self.channels * self.image * self.image;
        let largest = convolutions.iter().map(|convolution| convolution.values()).max().unwrap_or(0).max(input);
        Workload {
            parameters: self.parameters(),
            optimizer: self.optimizer,
            sample: SampleCost {
                activations: Bytes(values).times(4).scaled(KEPT),
                checkpointed_activations: Some(Bytes(values).times(4).scaled(KEPT_CHECKPOINTED)),
                largest_tensor: Some(Bytes(largest).times(4)),
                input: Some(Bytes(input).times(4)),
                // Two operations a multiplication; the backward pass costs twice the forward.
                flops: 6.0 * multiplications,
            },
            kernels: convolutions.len() as u64 * KERNELS_PER_CONVOLUTION,
            family: Family::Convnet,
            batch_statistics: self.batch_statistics,
            dominant_product: heaviest.map(|convolution| Product {
                rows_per_sample: convolution.pixels,
                inner: convolution.inputs * convolution.kernel * convolution.kernel,
                columns: convolution.outputs,
            }),
            provenance: Provenance::Derived,
        }
    }

    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        // Sizes beyond these are slips; they would also overflow the sums above.
        let bounded = [
            ("image", self.image, 1..=65_536),
            ("classes", self.classes, 1..=10_000_000),
            ("channels", self.channels, 1..=65_536),
            ("stem_kernel", self.stem_kernel, 0..=64),
            ("stem_stride", self.stem_stride, 1..=64),
        ];
        let mut found: Vec<_> = bounded
            .into_iter()
            .filter(|(_, value, range)| !range.contains(value))
            .map(|(name, value, range)| {
                (name, format!("{name} = {value} is out of range, expected {} to {}", range.start(), range.end()))
            })
            .collect();
        let fits = |stage: &Stage| (1..=65_536).contains(&stage.channels) && (1..=1_000).contains(&stage.blocks);
        if self.stages.is_empty() || self.stages.len() > 64 || !self.stages.iter().all(fits) {
            found.push((
                "stages",
                "stages: expected 1 to 64 of [channels, blocks], with at most 65536 channels and 1000 blocks"
                    .to_owned(),
            ));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::{Convnet, Stage};
    use crate::workload::Optimizer;

    fn resnet(blocks: [u64; 4]) -> Convnet {
        let stages = [64, 128, 256, 512].into_iter().zip(blocks).map(|(channels, blocks)| Stage { channels, blocks });
        Convnet {
            image: 224,
            classes: 1000,
            stages: stages.collect(),
            channels: 3,
            stem_kernel: 7,
            stem_stride: 4,
            residual: true,
            batch_statistics: true,
            optimizer: Optimizer::Momentum,
        }
    }

    #[test]
    fn resnets_have_their_published_parameters() {
        // torchvision's model table.
        assert_eq!(resnet([2, 2, 2, 2]).parameters(), 11_689_512);
        assert_eq!(resnet([3, 4, 6, 3]).parameters(), 21_797_672);
    }

    #[test]
    fn resnets_have_their_published_multiplications() {
        // torchvision's model table: 1.814 and 3.664 x 10^9 multiplications a forward pass.
        for (model, published) in [(resnet([2, 2, 2, 2]), 1.814e9), (resnet([3, 4, 6, 3]), 3.664e9)] {
            let forward = model.workload().sample.flops / 6.0;
            assert!((forward / published - 1.0).abs() < 0.01, "{forward:e} against {published:e}");
        }
    }

    #[test]
    fn kept_bytes_are_near_those_burn_held_on_an_h200() {
        let stages = vec![Stage { channels: 96, blocks: 8 }];
        let model = Convnet {
            image: 64,
            classes: 10,
            stages,
            stem_kernel: 0,
            stem_stride: 1,
            residual: false,
            ..resnet([1; 4])
        };
        let ours = model.workload().sample.activations.mib();
        // Burn 0.22.1, bytes in use after the forward pass, for each sample.
        assert!((ours / 40.0 - 1.0).abs() < 0.06, "{ours} against 40.0 MiB");
    }
}
