//! Stacks of LSTM and GRU layers.

use burn::{
    module::Module,
    nn::{
        Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig,
        gru::{Gru, GruConfig},
    },
    tensor::{Device, Int, Tensor},
};

use crate::cross_entropy;

/// The dimensions of a stack of recurrent layers.
#[derive(Clone, Copy, Debug)]
pub struct Dimensions {
    /// Features of one step of the input, or width of the embedding.
    pub input: usize,
    /// Width of the hidden state.
    pub hidden: usize,
    /// Layers.
    pub layers: usize,
    /// Steps in a sequence.
    pub seq: usize,
    /// Classes.
    pub classes: usize,
    /// Tokens in the vocabulary; 0 for an input of numbers.
    pub vocab: usize,
    /// Whether every step has a class, not the last one only.
    pub every_step: bool,
    /// Whether the cells are gated recurrent units.
    pub gru: bool,
}

// A model has few cells, so that the smaller variant's waste does not matter.
#[expect(clippy::large_enum_variant)]
#[derive(Module, Debug)]
enum Cell {
    Lstm(Lstm),
    Gru(Gru),
}

/// Recurrent layers, and a dense one over the last step or over every step.
#[derive(Module, Debug)]
pub struct Recurrent {
    tokens: Option<Embedding>,
    cells: Vec<Cell>,
    head: Linear,
}

impl Recurrent {
    /// A model with random weights.
    pub fn new(dimensions: &Dimensions, device: &Device) -> Self {
        let embedding = EmbeddingConfig::new(dimensions.vocab.max(1), dimensions.input);
        let cell = |index| {
            let input = if index == 0 { dimensions.input } else { dimensions.hidden };
            if dimensions.gru {
                Cell::Gru(GruConfig::new(input, dimensions.hidden, true).init(device))
            } else {
                Cell::Lstm(LstmConfig::new(input, dimensions.hidden, true).init(device))
            }
        };
        Self {
            tokens: (dimensions.vocab > 0).then(|| embedding.init(device)),
            cells: (0..dimensions.layers).map(cell).collect(),
            head: LinearConfig::new(dimensions.hidden, dimensions.classes).init(device),
        }
    }

    /// The loss over some sequences.
    pub fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        let mut hidden = match &self.tokens {
            Some(tokens) => tokens.forward(Tensor::<2, Int>::zeros([samples, dimensions.seq], device)),
            None => Tensor::<3>::zeros([samples, dimensions.seq, dimensions.input], device),
        };
        for cell in &self.cells {
            hidden = match cell {
                Cell::Lstm(lstm) => lstm.forward(hidden, None).0,
                Cell::Gru(gru) => gru.forward(hidden, None),
            };
        }
        if !dimensions.every_step {
            hidden = hidden.slice([0..samples, dimensions.seq - 1..dimensions.seq]);
        }
        let logits = self.head.forward(hidden);
        let rows = logits.dims()[0] * logits.dims()[1];
        cross_entropy(logits.reshape([rows, dimensions.classes]))
    }
}
