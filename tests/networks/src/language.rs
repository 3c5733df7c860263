use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::InMemDataset;
use burn::module::Module;
use burn::nn::loss::CrossEntropyLossConfig;
use burn::nn::{Embedding, EmbeddingConfig};
use burn::tensor::{Device, Int, Tensor, TensorData};

const VOCABULARY: usize = 8192;
const LENGTH: usize = 256;

/// A bigram model: logits of the next token, by the token before it.
#[derive(Module, Debug)]
pub struct Model {
    /// The logits, a row for each token.
    pub logits: Embedding,
}

impl Model {
    /// Makes the model with random weights.
    pub fn new(device: &Device) -> Self {
        Self { logits: EmbeddingConfig::new(VOCABULARY, VOCABULARY).init(device) }
    }

    /// Returns the mean cross-entropy of the next tokens.
    pub fn loss(&self, tokens: Tensor<2, Int>) -> Tensor<1> {
        let [samples, length] = tokens.dims();
        let logits = self.logits.forward(tokens.clone().narrow(1, 0, length - 1)).flatten::<2>(0, 1);
        let next = tokens.narrow(1, 1, length - 1).reshape([samples * (length - 1)]);
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, next)
    }
}

/// Batches of token sequences of equal length.
#[derive(Clone, Copy, Debug)]
pub struct Tokens;

impl Batcher<Vec<i32>, Tensor<2, Int>> for Tokens {
    fn batch(&self, samples: Vec<Vec<i32>>, device: &Device) -> Tensor<2, Int> {
        let shape = [samples.len(), LENGTH];
        Tensor::from_data(TensorData::new(samples.concat(), shape), device)
    }
}

/// Sequences of counting tokens.
pub fn dataset() -> InMemDataset<Vec<i32>> {
    InMemDataset::new((0..1024).map(|start| (start..).take(LENGTH).collect()).collect())
}
