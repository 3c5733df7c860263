use super::{ModelCosts, Product, Role, Tensors};
use crate::Bytes;
use crate::dims::schema;

schema! {
    /// The dimensions of a multilayer perceptron: dense layers with biases, an activation after each but the last.
    pub struct Mlp {
        /// Sizes from the input to the result.
        widths: Vec<u64>, Counts(1..=1 << 28), "sizes from the input to the result, such as [784, 512, 512, 10]";
    }
}

/// Kernels of a layer, forward and backward; not measured.
const KERNELS_PER_LAYER: u64 = 15;

impl Mlp {
    /// `(inputs, outputs)` of each layer.
    fn layers(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        self.widths.windows(2).map(|pair| (pair[0], pair[1]))
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let last = self.layers().count().saturating_sub(1);
        let tensors = self.layers().enumerate().flat_map(|(index, (inputs, outputs))| {
            let role = if index == last { Role::Head } else { Role::Dense };
            [Tensors::matrices(1, inputs, outputs, role), Tensors::vectors(1, outputs)]
        });
        let hidden: u64 = self.widths.iter().skip(1).rev().skip(1).sum();
        let (input, result) = (self.widths.first().copied().unwrap_or(0), self.widths.last().copied().unwrap_or(0));
        let heaviest = self.layers().max_by_key(|(inputs, outputs)| inputs * outputs);
        ModelCosts {
            tensors: tensors.collect(),
            // Before the activation and after it; the logits. Counted in Burn 0.22.1: `tests/models/KEPT.md`.
            kept: input + 2 * hidden + result,
            kept_checkpointed: Some(input + hidden + 2 * result),
            largest: self.widths.iter().copied().max(),
            result,
            input: Some(Bytes(input).times(4)),
            multiplications: self.layers().map(|(inputs, outputs)| inputs as f64 * outputs as f64).sum(),
            kernels: self.layers().count() as u64 * KERNELS_PER_LAYER,
            dominant_product: heaviest.map(|(inner, columns)| Product { rows_per_sample: 1, inner, columns }),
            ..ModelCosts::default()
        }
    }

    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        let short = self.widths.len() < 2;
        short
            .then(|| ("widths", "widths: expected at least two sizes, input and output".to_owned()))
            .into_iter()
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Mlp;

    #[test]
    fn keras_mnist_perceptron_has_its_published_parameters() {
        // Published in the summary of keras-team/keras 2.x, examples/mnist_mlp.py.
        let model = Mlp { widths: vec![784, 512, 512, 10] };
        assert_eq!(model.parameters(), 669_706);
    }
}
