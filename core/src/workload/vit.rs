use super::convnet::Convolution;
use super::{ModelCosts, Tensors, Transformer};
use crate::Bytes;
use crate::dims::schema;

schema! {
    /// The dimensions of a vision transformer: a convolution makes a token of each patch; learned positions, layers with
    /// norms before them and one after the last; a dense layer on the class token, or on the mean of the tokens.
    pub struct Vit {
        /// Side of the square input image in pixels.
        image: u64, Count(1..=16_384), "side of the square input image in pixels";
        /// Side of a patch in pixels.
        patch: u64, Count(1..=16_384), "side of a square patch in pixels";
        /// Classes.
        classes: u64, Count(1..=10_000_000), "classes";
        /// Layers.
        layers: u64, Count(1..=65_536), "layers";
        /// Width of the residual stream.
        d_model: u64, Count(1..=1 << 24), "width of the residual stream";
        /// Attention heads; `d_model / 64`, at least 1, when absent.
        heads?: u64, Count(1..=65_536), "attention heads (default `d_model / 64`)";
        /// Width of the feed-forward layer; `4 * d_model` when absent.
        d_ff?: u64, Count(1..=1 << 26), "width of the feed-forward layer (default `4 * d_model`)";
        /// Channels of the input image.
        channels: u64 = 3, Count(1..=16_384), "channels of the input image (default 3)";
        /// True if a learned token precedes the patches, and the head reads it; false if the head reads the mean.
        class_token: bool = true, Flag, "a class token that the head reads, not the mean (default true)";
        /// True if the layers have dropout, Burn's default.
        dropout: bool = true, Flag, "dropout in the layers, as in Burn (default true)";
    }
}

impl Vit {
    fn patches(&self) -> u64 {
        let side = self.image / self.patch;
        side * side
    }

    /// The layers and what follows them, over the patches' tokens.
    fn transformer(&self) -> Transformer {
        Transformer {
            heads: self.heads,
            d_ff: self.d_ff,
            causal: false,
            dropout: self.dropout,
            tied_head: false,
            classes: Some(self.classes),
            ..Transformer::new(self.layers, self.d_model, 0, self.patches() + u64::from(self.class_token))
        }
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let (transformer, image) = (self.transformer(), self.channels * self.image * self.image);
        let mut costs = transformer.costs();
        // No vocabulary.
        costs.tensors.retain(|group| group.values() > 0);
        costs.tensors.extend([
            Tensors::kernels(1, self.d_model, self.channels, self.patch),
            Tensors::vectors(1 + u64::from(self.class_token), self.d_model),
        ]);
        let patches = self.patches() * self.d_model;
        // The convolution keeps the image. The head reads one row, so that the last norm's output is not kept.
        costs.kept = (costs.kept + image).saturating_sub(transformer.seq * self.d_model);
        // Checkpointing keeps the output of the convolution, and of the concatenation with the class token.
        let joined = if self.class_token { patches } else { 0 };
        costs.kept_checkpointed = costs.kept_checkpointed.map(|kept| kept + image + joined);
        costs.largest = costs.largest.map(|largest| largest.max(image));
        costs.input = Some(Bytes(image).times(4));
        costs.multiplications += patches as f64 * (self.channels * self.patch * self.patch) as f64;
        costs.kernels += Convolution::KERNELS;
        costs
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let mut found = Vec::new();
        let heads = self.transformer().heads();
        if !self.d_model.is_multiple_of(heads) {
            found.push(("heads", format!("heads = {heads} does not divide d_model = {}", self.d_model)));
        }
        if !self.image.is_multiple_of(self.patch) {
            found.push(("patch", format!("patch = {} does not divide image = {}", self.patch, self.image)));
        }
        found
    }
}
