//! Topics of news, after `examples/text-classification/src/training.rs` and `examples/ag-news-train.rs` there, of Burn
//! (MIT or Apache-2.0).

use burn::config::Config;
use burn::nn::{attention::SeqLengthOption, transformer::TransformerEncoderConfig};
use burn::optim::{AdamConfig, decay::WeightDecayConfig};

/// Training settings of the example.
#[derive(Config, Debug)]
pub struct ExperimentConfig {
    /// The encoder.
    pub transformer: TransformerEncoderConfig,
    /// Adam.
    pub optimizer: AdamConfig,
    /// Tokens in a text.
    #[config(default = "SeqLengthOption::Fixed(256)")]
    pub seq_length: SeqLengthOption,
    /// Texts in a batch.
    #[config(default = 32)]
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
