//! Costs of a convolutional classifier.

use super::{Block, Convnet, Convolution, NormKind};
use crate::Bytes;
use crate::workload::tensors::MOST_VALUES;
use crate::workload::{Family, ModelCosts, Role, Tensors};

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

    pub(in crate::workload) fn costs(&self) -> ModelCosts {
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

    pub(in crate::workload) fn contradictions(&self) -> Vec<(&'static str, String)> {
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
