//! Topics of news, after `examples/text-classification/src/training.rs` and `examples/ag-news-train.rs` there, of Burn
//! (MIT or Apache-2.0).

use burn::config::Config;
use burn::nn::{attention::SeqLengthOption, transformer::TransformerEncoderConfig};
use burn::optim::{AdamConfig, decay::WeightDecayConfig};
use gpu_tuned::gpu_tuned;

/// Training settings of the example.
#[gpu_tuned(transformer(vocab = 28996, seq = 256, classes = 4, causal = false, final_norm = false), global_batch = 32)]
#[derive(Config, Debug)]
pub struct ExperimentConfig {
    /// The encoder.
    #[tuned(dims(layers: n_layers = 4, heads: n_heads = 8, d_model = 256, d_ff = 1024))]
    pub transformer: TransformerEncoderConfig,
    /// Adam.
    pub optimizer: AdamConfig,
    /// Tokens in a text.
    #[config(default = "SeqLengthOption::Fixed(256)")]
    pub seq_length: SeqLengthOption,
    /// Texts in a batch.
    #[tuned]
    pub batch_size: usize,
    /// Passes over the texts.
    #[config(default = 5)]
    pub num_epochs: usize,
}

/// Four layers, for AG News.
pub fn config() -> ExperimentConfig {
    let transformer = TransformerEncoderConfig::new(256, 1024, 8, 4).with_norm_first(true).with_quiet_softmax(true);
    let optimizer = AdamConfig::new().with_weight_decay(Some(WeightDecayConfig::new(5e-5)));
    ExperimentConfig::new(transformer, optimizer)
}
