//! Stacks of LSTM and GRU layers.

use burn::{
    module::Module,
    tensor::{Device, Int, Tensor},
};

use gpu_tuned::nn::{
    BiLstm, BiLstmConfig, Embedding, EmbeddingConfig, Linear, LinearConfig, Lstm, LstmConfig,
    gru::{BiGru, BiGruConfig, Gru, GruConfig},
};
use gpu_tuned::recurrent::joint_lstm;
use gpu_tuned_core::workload::{self, ModelSpec};

use crate::{Network, cross_entropy};

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
    /// True if every step has a class, not only the last one.
    pub every_step: bool,
    /// True for gated recurrent units.
    pub gru: bool,
    /// True if each layer runs in both directions.
    pub bidirectional: bool,
}

impl Dimensions {
    /// Width of a layer's states.
    fn width(&self) -> usize {
        if self.bidirectional { 2 * self.hidden } else { self.hidden }
    }
}

// A model has few cells, so that the smaller variant's waste does not matter.
#[expect(clippy::large_enum_variant)]
#[derive(Module, Debug)]
enum Cell {
    Lstm(Lstm),
    Gru(Gru),
    BiLstm(BiLstm),
    BiGru(BiGru),
}

impl Cell {
    fn new(input: usize, dimensions: &Dimensions, device: &Device) -> Self {
        let hidden = dimensions.hidden;
        match (dimensions.gru, dimensions.bidirectional) {
            (false, false) => Self::Lstm(LstmConfig::new(input, hidden, true).init(device)),
            (true, false) => Self::Gru(GruConfig::new(input, hidden, true).init(device)),
            (false, true) => Self::BiLstm(BiLstmConfig::new(input, hidden, true).init(device)),
            (true, true) => Self::BiGru(BiGruConfig::new(input, hidden, true).init(device)),
        }
    }

    fn forward(&self, input: Tensor<3>) -> Tensor<3> {
        match self {
            Self::Lstm(lstm) => lstm.forward(input, None).0,
            Self::Gru(gru) => gru.forward(input, None),
            Self::BiLstm(lstm) => lstm.forward(input, None).0,
            Self::BiGru(gru) => gru.forward(input, None).0,
        }
    }
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
        let input = |index| if index == 0 { dimensions.input } else { dimensions.width() };
        Self {
            tokens: (dimensions.vocab > 0).then(|| embedding.init(device)),
            cells: (0..dimensions.layers).map(|index| Cell::new(input(index), dimensions, device)).collect(),
            head: LinearConfig::new(dimensions.width(), dimensions.classes).init(device),
        }
    }

    /// Logits for some sequences of numbers or of embedded tokens, a row for every step that has a class.
    pub fn logits(&self, dimensions: &Dimensions, sequences: Tensor<3>) -> Tensor<2> {
        self.logits_with(dimensions, sequences, Cell::forward)
    }

    /// [`Self::logits`] with one matrix product for the gates of an LSTM.
    pub fn joint_logits(&self, dimensions: &Dimensions, sequences: Tensor<3>) -> Tensor<2> {
        self.logits_with(dimensions, sequences, |cell, input| match cell {
            Cell::Lstm(lstm) => joint_lstm(lstm, input, None).0,
            other => other.forward(input),
        })
    }

    fn logits_with(
        &self,
        dimensions: &Dimensions,
        sequences: Tensor<3>,
        forward: impl Fn(&Cell, Tensor<3>) -> Tensor<3>,
    ) -> Tensor<2> {
        let samples = sequences.dims()[0];
        let mut hidden = sequences;
        for cell in &self.cells {
            hidden = forward(cell, hidden);
        }
        if !dimensions.every_step {
            hidden = hidden.slice([0..samples, dimensions.seq - 1..dimensions.seq]);
        }
        let logits = self.head.forward(hidden);
        let rows = logits.dims()[0] * logits.dims()[1];
        logits.reshape([rows, dimensions.classes])
    }
}

/// The model as core describes it.
impl From<Dimensions> for ModelSpec {
    fn from(dimensions: Dimensions) -> Self {
        workload::Recurrent {
            cell: if dimensions.gru { workload::Cell::Gru } else { workload::Cell::Lstm },
            inputs: dimensions.input as u64,
            hidden: dimensions.hidden as u64,
            layers: dimensions.layers as u64,
            seq: dimensions.seq as u64,
            outputs: dimensions.classes as u64,
            every_step: dimensions.every_step,
            bidirectional: dimensions.bidirectional,
            vocab: (dimensions.vocab > 0).then_some(dimensions.vocab as u64),
        }
        .into()
    }
}

impl Network for Recurrent {
    type Dimensions = Dimensions;

    fn new(dimensions: &Dimensions, device: &Device) -> Self {
        Self::new(dimensions, device)
    }

    fn loss(&self, dimensions: &Dimensions, samples: usize, device: &Device) -> Tensor<1> {
        cross_entropy(self.logits(
            dimensions,
            match &self.tokens {
                Some(tokens) => tokens.forward(Tensor::<2, Int>::zeros([samples, dimensions.seq], device)),
                None => Tensor::<3>::zeros([samples, dimensions.seq, dimensions.input], device),
            },
        ))
    }
}
