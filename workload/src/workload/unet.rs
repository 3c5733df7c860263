use super::convnet::{Convolution, NormKind};
use super::{Family, ModelCosts, Role, Tensors};
use crate::Bytes;
use crate::dims::schema;

schema! {
    /// The dimensions of a U-Net. Each level has two convolutions 3x3 without bias, each with norm and activation.
    /// Pooling halves the image on the way down. A transposed convolution 2x2 doubles it on the way up, and is
    /// concatenated with the level's tensor. A convolution 1x1 with bias ends the network.
    pub struct Unet {
        /// Side of the square input image in pixels.
        image: u64, Count(1..=16_384), "side of the square input image in pixels";
        /// Channels of the input image.
        channels: u64 = 3, Count(1..=16_384), "channels of the input image (default 3)";
        /// Channels of the result.
        classes: u64, Count(1..=16_384), "channels of the result";
        /// Channels of each level, from the image down.
        widths: Vec<u64>, Counts(1..=16_384), "channels of each level, such as [64, 128, 256, 512, 1024]";
        /// True if the norms use statistics of the micro-batch (BatchNorm).
        batch_statistics: bool = false, Flag, "BatchNorm as the norm (default false)";
    }
}

impl Unet {
    fn pixels(&self, level: usize) -> u64 {
        let side = self.image >> level.min(63);
        side * side
    }

    /// The convolutions with a norm: two for each level down, two for each up.
    fn convolutions(&self) -> Vec<Convolution> {
        let mut all = Vec::new();
        let mut inputs = self.channels;
        let mut double = |inputs: u64, outputs: u64, level: usize| {
            let pixels = self.pixels(level);
            for inputs in [inputs, outputs] {
                all.push(Convolution { inputs, outputs, kernel: 3, pixels, after: 2, bias: false, depthwise: false });
            }
        };
        for (level, &width) in self.widths.iter().enumerate() {
            double(inputs, width, level);
            inputs = width;
        }
        for (level, &width) in self.widths.iter().enumerate().rev().skip(1) {
            // The inputs are the upsampled tensor, with half the channels, and the tensor kept from this level.
            double(2 * width, width, level);
        }
        all
    }

    /// `(channels below, channels, level)` of each transposed convolution.
    fn ups(&self) -> impl Iterator<Item = (u64, u64, usize)> + '_ {
        self.widths.windows(2).enumerate().map(|(level, pair)| (pair[1], pair[0], level))
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let convolutions = self.convolutions();
        let norm = if self.batch_statistics { NormKind::Batch } else { NormKind::Other };
        let first = self.widths.first().copied().unwrap_or(0);
        let mut tensors: Vec<_> = convolutions.iter().flat_map(|convolution| convolution.tensors(norm)).collect();
        for (below, width, _) in self.ups() {
            tensors.extend([Tensors::kernels(1, width, below, 2), Tensors::vectors(1, width)]);
        }
        tensors.push(Tensors { role: Role::Head, ..Tensors::kernels(1, self.classes, first, 1) });
        tensors.push(Tensors::vectors(1, self.classes));

        let head = self.classes * self.pixels(0);
        let kept: u64 = convolutions.iter().map(|convolution| convolution.kept(norm)).sum();
        let checkpointed: u64 = convolutions.iter().map(|convolution| convolution.kept_checkpointed(norm)).sum();
        let raised: u64 = self.ups().map(|(_, width, level)| width * self.pixels(level)).sum();
        let pooled: u64 = self.ups().map(|(_, width, level)| width * self.pixels(level + 1)).sum();
        // The image, the concatenated tensors, and pooled values with their indices: `tests/models/KEPT.md`.
        let rest = self.channels * self.pixels(0) + 2 * raised + 2 * pooled;
        let of_ups: f64 =
            self.ups().map(|(below, width, level)| (below * width) as f64 * self.pixels(level) as f64).sum();
        let of_convolutions: f64 = convolutions.iter().map(|convolution| convolution.multiplications()).sum();
        let norms: u64 = convolutions.iter().map(|convolution| convolution.outputs).sum();
        let heaviest = convolutions.iter().max_by(|a, b| a.multiplications().total_cmp(&b.multiplications()));
        ModelCosts {
            tensors,
            buffers: if self.batch_statistics { 2 * norms } else { 0 },
            kept: kept + rest + head + 2 * self.pixels(0),
            kept_checkpointed: Some(checkpointed + rest + 2 * head + 3 * self.pixels(0)),
            largest: Some((2 * first * self.pixels(0)).max(head)),
            result: head,
            input: Some(Bytes(self.channels * self.pixels(0)).times(4)),
            multiplications: of_convolutions + of_ups + (first * head) as f64,
            kernels: Convolution::KERNELS * (convolutions.len() as u64 + self.widths.len() as u64),
            family: Family::Convnet,
            batch_statistics: self.batch_statistics,
            dominant_product: heaviest.map(|convolution| convolution.product()),
            channels: Convolution::mean_channels(&convolutions),
            ..ModelCosts::default()
        }
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let halvings = self.widths.len().saturating_sub(1);
        let deepest = self.image.trailing_zeros() as usize;
        (halvings > deepest)
            .then(|| {
                let message = format!(
                    "widths: {} levels halve the image {halvings} times, and {} only {deepest} times",
                    halvings + 1,
                    self.image
                );
                ("widths", message)
            })
            .into_iter()
            .collect()
    }
}
