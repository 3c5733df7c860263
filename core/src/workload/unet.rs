//! U-Nets over images: for segmentation, and of diffusion models.

use super::convnet::{Convolution, NormKind};
use super::tensors::limited;
use super::transformer::{KERNELS_PER_ATTENTION, KERNELS_PER_LAYER};
use super::{Family, ModelCosts, Positions, Role, Tensors, Transformer};
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
        image: u64, Count(1..=16_384), "side of the square input image in pixels";
        channels: u64 = 3, Count(1..=16_384), "channels of the input image (default 3)";
        classes: u64, Count(1..=16_384), "channels of the result";
        widths: Vec<u64>, Counts(1..=16_384), "channels of each level, such as [64, 128, 256, 512, 1024]";
        batch_statistics: bool = false, Flag, "BatchNorm as the norm (default false)";
        /// On the way up a level has one more.
        blocks?: u64, Count(1..=1_000), "residual blocks of each level of a diffusion model (default: none)";
        /// The middle always has attention.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        attention: Vec<u64> = Vec::new(), Counts(1..=64),
            "levels with attention after their residual blocks, from 1 (default: none)";
        heads: u64 = 1, Count(1..=1024), "attention heads (default 1)";
        /// Transformer blocks attend to a context, such as a text, in place of attention alone.
        context?: u64, Count(1..=1 << 24), "width of a context to attend to (Stable Diffusion 1: 768; default: none)";
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

/// Operations before a convolution, with the number of tensors that they and the convolution keep: `tests/models/KEPT.md`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reads {
    /// None: the input.
    Plain = 1,
    /// A norm: the centred and the normalized input, and the result.
    Normed = 3,
    /// A norm and `SiLU`: also the sigmoid and the product.
    Activated = 5,
}

/// The parts of a U-Net, in order.
struct Parts<'u> {
    unet: &'u Unet,
    /// Convolutions, and values kept of their inputs.
    convolutions: Vec<(Convolution, u64)>,
    tensors: Vec<Tensors>,
    /// Channels of a residual block's result.
    residuals: Vec<u64>,
    /// Channels and pixels.
    attentions: Vec<[u64; 2]>,
    /// Values that the norms before convolutions read.
    normed: u64,
    /// Values of concatenated tensors.
    joined: u64,
    /// Values of enlarged tensors.
    enlarged: u64,
}

impl<'u> Parts<'u> {
    fn new(unet: &'u Unet, blocks: u64) -> Self {
        let first = unet.widths.first().copied().unwrap_or(0);
        let mut parts = Self {
            unet,
            convolutions: Vec::new(),
            tensors: Vec::new(),
            residuals: Vec::new(),
            attentions: Vec::new(),
            normed: 0,
            joined: 0,
            enlarged: 0,
        };
        for inputs in [first, parts.time()] {
            parts.matrix(Role::Dense, inputs, parts.time(), true);
        }
        parts.all_convolutions(blocks, first);
        parts
    }

    /// Width of the embedded time.
    fn time(&self) -> u64 {
        4 * self.unet.widths.first().copied().unwrap_or(0)
    }

    fn all_convolutions(&mut self, blocks: u64, first: u64) {
        let unet = self.unet;
        let deepest = unet.widths.len().saturating_sub(1);
        let mut width = first;
        let mut skips = vec![first];
        self.convolve([unet.channels, first], 3, unet.pixels(0), 1, Reads::Plain);
        for (level, &outputs) in unet.widths.iter().enumerate() {
            for _ in 0..blocks {
                self.block([width, outputs], level);
                skips.push(outputs);
                width = outputs;
            }
            if level < deepest {
                self.convolve([width; 2], 3, unet.pixels(level + 1), 4, Reads::Plain);
                skips.push(width);
            }
        }
        let pixels = unet.pixels(deepest);
        self.residual([width; 2], pixels);
        self.attend(width, pixels);
        self.residual([width; 2], pixels);
        for (level, &outputs) in unet.widths.iter().enumerate().rev() {
            for _ in 0..=blocks {
                let inputs = width + skips.pop().unwrap_or(0);
                self.joined += inputs * unet.pixels(level);
                self.block([inputs, outputs], level);
                width = outputs;
            }
            if level > 0 {
                self.convolve([width; 2], 3, unet.pixels(level - 1), 1, Reads::Plain);
                self.enlarged += width * unet.pixels(level - 1);
            }
        }
        self.convolve([first, unet.classes], 3, unet.pixels(0), 1, Reads::Activated);
    }

    fn block(&mut self, channels: [u64; 2], level: usize) {
        let pixels = self.unet.pixels(level);
        self.residual(channels, pixels);
        if self.unet.attention.contains(&(level as u64 + 1)) {
            self.attend(channels[1], pixels);
        }
    }

    fn residual(&mut self, [inputs, outputs]: [u64; 2], pixels: u64) {
        self.convolve([inputs, outputs], 3, pixels, 1, Reads::Activated);
        self.convolve([outputs; 2], 3, pixels, 1, Reads::Activated);
        if inputs != outputs {
            self.convolve([inputs, outputs], 1, pixels, 1, Reads::Plain);
        }
        self.matrix(Role::Dense, self.time(), outputs, true);
        self.residuals.push(outputs);
    }

    /// Adds attention over the pixels, or a transformer block that also attends to the context.
    fn attend(&mut self, width: u64, pixels: u64) {
        self.attentions.push([width, pixels]);
        let of_context = self.unet.context;
        let mut attention = |context, bias| {
            self.matrix(Role::Query, width, width, bias);
            self.matrix(Role::Key, context, width, bias);
            self.matrix(Role::Value, context, width, bias);
            self.matrix(Role::Output, width, width, true);
        };
        attention(width, of_context.is_none());
        let Some(context) = of_context else {
            self.tensors.push(Tensors::vectors(2, width));
            return;
        };
        attention(context, false);
        self.convolve([width; 2], 1, pixels, 1, Reads::Normed);
        self.tensors.push(Tensors::vectors(3 * 2, width));
        self.matrix(Role::Gate, width, 4 * width, true);
        self.matrix(Role::Up, width, 4 * width, true);
        self.matrix(Role::Down, 4 * width, width, true);
        self.convolve([width; 2], 1, pixels, 1, Reads::Plain);
    }

    fn matrix(&mut self, role: Role, rows: u64, columns: u64, bias: bool) {
        self.tensors.push(Tensors::matrices(1, rows, columns, role));
        self.tensors.extend(bias.then(|| Tensors::vectors(1, columns)));
    }

    /// Adds a convolution whose output has `pixels`; its input has `shrinks` times as many.
    fn convolve(&mut self, [inputs, outputs]: [u64; 2], kernel: u64, pixels: u64, shrinks: u64, reads: Reads) {
        let convolution = Convolution { inputs, outputs, kernel, pixels, after: 0, bias: true, depthwise: false };
        self.tensors.extend(convolution.tensors(NormKind::None));
        if reads != Reads::Plain {
            self.tensors.push(Tensors::vectors(2, inputs));
            self.normed += inputs * pixels;
        }
        self.convolutions.push((convolution, reads as u64 * inputs * shrinks * pixels));
    }

    /// Values of the context of one sample.
    fn context(&self) -> u64 {
        self.unet.context.map_or(0, |width| width * self.unet.context_tokens)
    }

    /// Values that an attention keeps. With a context the block has a second attention and a feed-forward layer.
    fn attention_kept(&self, [width, pixels]: [u64; 2], checkpointed: bool) -> u128 {
        if self.unet.context.is_some() {
            let layer = self.layer([width, pixels]);
            // The gate is GELU's, which keeps one tensor less than `SiLU`.
            let gate = if checkpointed { 0 } else { u128::from(pixels) * u128::from(layer.d_ff()) };
            return layer.layers_kept(checkpointed) + layer.cross_kept(self.unet.context_tokens, checkpointed) - gate;
        }
        let [width, pixels, heads] = [width, pixels, self.unet.heads].map(u128::from);
        // Attention keeps shifted scores, exponentials and weights, else scores before and after the shift.
        let [of_widths, of_scores] = if checkpointed { [5, 2] } else { [7, 3] };
        of_widths * width * pixels + pixels * heads * (of_scores * pixels + 1)
    }

    /// The transformer layer of a block with a context, over pixels.
    fn layer(&self, [width, pixels]: [u64; 2]) -> Transformer {
        Transformer {
            heads: Some(self.unet.heads),
            gated: true,
            causal: false,
            dropout: false,
            positions: Positions::None,
            ..Transformer::new(1, width, 0, pixels)
        }
    }

    /// Values kept for gradients of weights.
    fn kept_for(&self) -> Vec<(&'static [Role], u64)> {
        let mut all: Vec<(&'static [Role], u64)> = vec![(&[Role::Vector], self.normed)];
        for [width, pixels] in self.attentions.iter().copied() {
            if self.unet.context.is_some() {
                let layer = self.layer([width, pixels]);
                all.extend(layer.kept_for().into_iter().chain(layer.cross_kept_for()));
            } else {
                let values = width * pixels;
                all.extend([
                    (&[Role::Query, Role::Key, Role::Value][..], values),
                    (&[Role::Output], values),
                    (&[Role::Vector], values),
                ]);
            }
        }
        all
    }

    fn kept(&self, checkpointed: bool) -> u64 {
        let (time, count) = (self.time(), self.residuals.len() as u64);
        let image = self.unet.channels * self.unet.pixels(0);
        let of_attentions: u128 = self.attentions.iter().map(|part| self.attention_kept(*part, checkpointed)).sum();
        let rest = if checkpointed {
            let of_convolutions: u64 =
                self.convolutions.iter().map(|(convolution, _)| convolution.kept_checkpointed(NormKind::None)).sum();
            // A convolution after an enlargement keeps its input in place of its output, which has the same size.
            image + of_convolutions + self.joined + 2 * time + self.residuals.iter().sum::<u64>()
        } else {
            let of_inputs: u64 = self.convolutions.iter().map(|(_, values)| values).sum();
            // Each block applies `SiLU` to the time.
            of_inputs + self.enlarged / 4 + (4 + 2 * count) * time + self.unet.classes * self.unet.pixels(0)
        };
        limited(of_attentions + u128::from(rest + self.context() + time / 4))
    }

    fn multiplications(&self) -> f64 {
        let of_convolutions: f64 = self.convolutions.iter().map(|(part, _)| part.multiplications()).sum();
        let is_dense = |group: &&Tensors| group.role == Role::Dense;
        let of_time: f64 = self.tensors.iter().filter(is_dense).map(|group| group.values() as f64).sum();
        let tokens = self.unet.context_tokens as f64;
        let of_attention = |[width, pixels]: &[u64; 2]| {
            let (width, pixels) = (*width as f64, *pixels as f64);
            let own = 4.0 * width * width + 2.0 * pixels * width;
            let of_context = self.unet.context.map_or(0.0, |context| {
                let of_pixel = (2.0 + 12.0) * width * width + 2.0 * tokens * width;
                pixels * of_pixel + 2.0 * tokens * context as f64 * width
            });
            pixels * own + of_context
        };
        of_convolutions + of_time + self.attentions.iter().map(of_attention).sum::<f64>()
    }

    /// Values of the largest tensor of one sample.
    fn largest(&self) -> u64 {
        let of_convolutions =
            self.convolutions.iter().map(|(part, _)| part.pixels * part.inputs.max(part.outputs)).max();
        let keys = |pixels: u64| pixels.max(self.unet.context.map_or(0, |_| self.unet.context_tokens));
        let gated = |width: u64| self.unet.context.map_or(0, |_| 8 * width);
        let of_attention =
            |[width, pixels]: &[u64; 2]| pixels.saturating_mul((self.unet.heads * keys(*pixels)).max(gated(*width)));
        let of_attentions = self.attentions.iter().map(of_attention).max();
        of_convolutions.max(of_attentions).unwrap_or(0)
    }
}

impl Unet {
    /// Costs of a diffusion model's U-Net with `blocks` residual blocks on each level.
    fn diffusion_costs(&self, blocks: u64) -> ModelCosts {
        let parts = Parts::new(self, blocks);
        let image = self.channels * self.pixels(0);
        let convolutions: Vec<_> = parts.convolutions.iter().map(|(convolution, _)| *convolution).collect();
        let of_attention = KERNELS_PER_ATTENTION + self.context.map_or(0, |_| KERNELS_PER_LAYER);
        ModelCosts {
            kept: parts.kept(false),
            kept_checkpointed: Some(parts.kept(true)),
            kept_for: parts.kept_for(),
            largest: Some(parts.largest()),
            result: self.classes * self.pixels(0),
            input: Some(Bytes(image + parts.context()).times(4)),
            multiplications: parts.multiplications(),
            kernels: Convolution::KERNELS * convolutions.len() as u64 + of_attention * parts.attentions.len() as u64,
            family: Family::Convnet,
            dominant_product: Convolution::dominant_product(&convolutions),
            channels: Convolution::mean_channels(&convolutions),
            tensors: parts.tensors,
            ..ModelCosts::default()
        }
    }
}
