mod diffusion;

use super::convnet::{Convolution, NormKind};
use super::{Family, ModelCosts, Role, Tensors};
use crate::Bytes;
use crate::dims::schema;

schema! {
    /// The dimensions of a U-Net. Each level has two convolutions 3x3 without bias, each with norm and activation.
    /// Pooling halves the image on the way down. A transposed convolution 2x2 doubles it on the way up, and is
    /// concatenated with the level's tensor. A convolution 1x1 with bias ends the network.
    ///
    /// With `blocks` it is the U-Net of a diffusion model, as in diffusers. Residual blocks have GroupNorm, `SiLU` and a time embedding.
    /// Some levels and the middle have attention. Convolutions with bias shrink and enlarge the image.
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
        /// Residual blocks of each level on the way down, one more on the way up; none when absent.
        blocks?: u64, Count(1..=1_000), "residual blocks of each level of a diffusion model (default: none)";
        /// Levels with attention after each residual block; the image's is 1. The middle always has attention.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        attention: Vec<u64> = Vec::new(), Counts(1..=64),
            "levels with attention after their residual blocks, from 1 (default: none)";
        /// Attention heads.
        heads: u64 = 1, Count(1..=1024), "attention heads (default 1)";
        /// Width of a context, such as a text, that transformer blocks attend to in place of attention alone.
        context?: u64, Count(1..=1 << 24), "width of a context to attend to (Stable Diffusion 1: 768; default: none)";
        /// Tokens of the context.
        context_tokens: u64 = 77, Count(1..=1 << 28), "tokens of the context (default 77)";
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
        if let Some(blocks) = self.blocks {
            return self.diffusion_costs(blocks);
        }
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
            statistics_pixels: Convolution::statistics_pixels(&convolutions, norm),
            dominant_product: Convolution::dominant_product(&convolutions),
            channels: Convolution::mean_channels(&convolutions),
            ..ModelCosts::default()
        }
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let (levels, deepest) = (self.widths.len(), self.image.trailing_zeros() as usize);
        let mut found = Vec::new();
        if levels > deepest + 1 {
            let message = format!(
                "widths: {levels} levels halve the image {} times, and {} only {deepest} times",
                levels - 1,
                self.image
            );
            found.push(("widths", message));
        }
        if let Some(level) = self.attention.iter().find(|level| **level > levels as u64) {
            found.push(("attention", format!("attention: there is no level {level}, widths has {levels}")));
        }
        let attends = |level: usize| level == levels || self.attention.contains(&(level as u64));
        let mut attended = (1..).zip(&self.widths).filter(|(level, _)| attends(*level));
        if let Some((_, width)) = attended.find(|(_, width)| !width.is_multiple_of(self.heads)) {
            found.push(("heads", format!("heads = {} does not divide the width {width}", self.heads)));
        }
        if self.blocks.is_some() && self.batch_statistics {
            found.push(("batch_statistics", "batch_statistics: with `blocks` the norm is GroupNorm".to_owned()));
        }
        if self.context.is_none() && self.context_tokens != Self::default().context_tokens {
            let message = "context_tokens without context: give the width of the context";
            found.push(("context_tokens", message.to_owned()));
        }
        let needs_blocks = [
            ("attention", !self.attention.is_empty()),
            ("heads", self.heads != 1),
            ("context", self.context.is_some()),
        ];
        for (key, _) in needs_blocks.into_iter().filter(|(_, given)| *given && self.blocks.is_none()) {
            found.push((key, format!("{key} is for diffusion models: give `blocks` too")));
        }
        found
    }
}
