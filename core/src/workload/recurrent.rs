//! Recurrent networks and multilayer perceptrons.

use super::{Family, ModelCosts, Product, Role, Tensors};
use crate::Bytes;
use crate::dims::{LARGEST, choices, schema};

schema! {
    /// The dimensions of stacked recurrent layers, as Burn's `Lstm` and `Gru` have them, followed by a dense layer.
    pub struct Recurrent {
        cell: Cell = Cell::default(), Choice(&Cell::CHOICES), "the kind of cell (default lstm)";
        inputs: u64, Count(1..=1 << 20), "features of one step, or of the embedding with a vocabulary";
        hidden: u64, Count(1..=1 << 20), "width of each layer";
        layers: u64, Count(1..=1024), "layers";
        seq: u64, Count(1..=1 << 20), "steps in a sequence; one sample is one sequence";
        outputs: u64, Count(1..=1 << 24), "size of the result";
        every_step: bool = false, Flag, "a result at every step, not only the last (default false)";
        bidirectional: bool = false, Flag, "layers in both directions (default false)";
        vocab?: u64, Count(1..=LARGEST), "tokens in the vocabulary (default: the input is not embedded)";
    }
}

choices! {
    /// A recurrent cell.
    #[derive(Default)]
    pub enum Cell: "cell", "workload::Cell" {
        /// Long short-term memory: four gates.
        #[default]
        Lstm = "lstm",
        /// Gated recurrent unit: three gates.
        Gru = "gru",
    }
}

impl Cell {
    const fn gates(self) -> u64 {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// Tensors of the layer's width that each step keeps, counted in Burn 0.22.1: `tests/models/KEPT.md`. Each gate before
    /// and after its activation, the states; under checkpointing the results of the matrix products.
    const fn kept(self) -> [u64; 2] {
        match self {
            Self::Lstm => [11, 9],
            Self::Gru => [9, 7],
        }
    }
}

/// Kernels of a gate in one step of one layer, forward and backward; Burn launches each separately. Derived from the
/// time of LSTMs on an H200: 0.30 ms a gate (hidden 64, batch 128) and 0.31 ms (hidden 256, batch 64) are 30
/// launches.
const KERNELS_PER_GATE: u64 = 30;

impl Recurrent {
    const fn directions(&self) -> u64 {
        if self.bidirectional { 2 } else { 1 }
    }

    /// Features that go into a layer.
    const fn inputs_of(&self, layer: u64) -> u64 {
        if layer == 0 { self.inputs } else { self.hidden * self.directions() }
    }

    fn tensors(&self) -> Vec<Tensors> {
        let mut all = Vec::new();
        if let Some(vocab) = self.vocab {
            all.push(Tensors::matrices(1, vocab, self.inputs, Role::Embedding));
        }
        let gates = self.cell.gates() * self.directions();
        for layer in 0..self.layers {
            all.push(Tensors::matrices(gates, self.inputs_of(layer), self.hidden, Role::Dense));
            all.push(Tensors::matrices(gates, self.hidden, self.hidden, Role::Dense));
            all.push(Tensors::vectors(2 * gates, self.hidden));
        }
        all.push(Tensors::matrices(1, self.hidden * self.directions(), self.outputs, Role::Head));
        all.push(Tensors::vectors(1, self.outputs));
        all
    }

    fn multiplications(&self) -> f64 {
        let gates = (self.cell.gates() * self.directions() * self.hidden) as f64;
        let of_a_step: f64 = (0..self.layers).map(|layer| gates * (self.inputs_of(layer) + self.hidden) as f64).sum();
        let head = (self.hidden * self.directions()) as f64 * self.outputs as f64 * self.results() as f64;
        of_a_step * self.seq as f64 + head
    }

    /// Steps that have a result.
    const fn results(&self) -> u64 {
        if self.every_step { self.seq } else { 1 }
    }

    pub(super) fn costs(&self) -> ModelCosts {
        let width = self.hidden * self.directions();
        let [plain, checkpointed] = self.cell.kept();
        // Values kept by the cells, and the states between the layers and before the head.
        let states = self.seq * self.layers * width;
        let (features, result) = (self.seq * self.inputs, self.outputs * self.results());
        // The way back reads a copy of the layer's input, turned round; checkpointing keeps the joined states as well.
        let turned: u64 =
            if self.bidirectional { (0..self.layers).map(|layer| self.inputs_of(layer)).sum() } else { 0 };
        let joined = if self.bidirectional { states } else { 0 };
        let input = if self.vocab.is_some() { 16 * self.seq } else { 4 * self.seq * self.inputs };
        ModelCosts {
            tensors: self.tensors(),
            // The last step's cell or state is read by nothing.
            kept: states * (plain + 1) - self.layers * width + features + self.seq * turned + result,
            kept_checkpointed: Some(
                states * checkpointed + 2 * self.layers * width + features + self.seq * turned + joined + 2 * result,
            ),
            largest: Some((self.seq * width.max(self.inputs)).max(self.outputs * self.results())),
            result: self.outputs * self.results(),
            input: Some(Bytes(input)),
            multiplications: self.multiplications(),
            tokens: Some(self.seq),
            kernels: self.seq * self.layers * self.cell.gates() * self.directions() * KERNELS_PER_GATE,
            family: Family::Recurrent,
            dominant_product: Some(Product { rows_per_sample: 1, inner: self.hidden, columns: self.hidden }),
            ..ModelCosts::default()
        }
    }

    #[expect(clippy::unused_self, reason = "the signature is that of every model")]
    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}

schema! {
    /// The dimensions of a multilayer perceptron: dense layers with biases, an activation after each but the last.
    pub struct Mlp {
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
    use super::*;

    #[test]
    fn keras_mnist_perceptron_has_its_published_parameters() {
        // Published in the summary of keras-team/keras 2.x, examples/mnist_mlp.py.
        let model = Mlp { widths: vec![784, 512, 512, 10] };
        assert_eq!(model.parameters(), 669_706);
    }
}
