//! Perplexity: the number of equally likely characters with the same uncertainty as the model.

use anyhow::Context;
use burn::tensor::{Device, Tensor};
use gpu_tuned::mixed::in_f32;

use crate::{
    config::TrainingConfig,
    model::Model,
    text::Corpus,
    windows::{adjacent, predicted},
};

/// Perplexities per character on the same validation characters.
#[derive(Clone, Copy, Debug)]
pub struct Perplexities {
    /// The network, with the earlier characters of the same window as context.
    pub network: f64,
    /// A bigram model: frequencies of each character after the previous one.
    pub bigram: f64,
    /// A uniform model.
    pub uniform: f64,
}

impl Perplexities {
    /// Measures a network without autodiff on its device, and computes two baselines.
    ///
    /// # Errors
    ///
    /// If the text is too short, or the result cannot be read from the device.
    pub fn measure(model: &Model, corpus: &Corpus, config: &TrainingConfig, device: &Device) -> anyhow::Result<Self> {
        let network = network(model, &corpus.validation, config, device)?;
        let scored = &corpus.validation[..=predicted(&corpus.validation, config.window)];
        let characters = corpus.vocabulary.size();
        Ok(Self { network, bigram: bigram(&corpus.train, scored, characters), uniform: characters as f64 })
    }
}

/// Perplexity of a network without autodiff on adjacent windows of a text.
///
/// # Errors
///
/// If the text is too short, or the result cannot be read from the device.
pub fn network(model: &Model, ids: &[u32], config: &TrainingConfig, device: &Device) -> anyhow::Result<f64> {
    let mut sum = in_f32(Tensor::<1>::zeros([1], device));
    for batch in adjacent(ids, config.window, config.eval_batch_size, device)? {
        let predictions = batch.predictions() as f64;
        sum = sum + model.loss(batch) * predictions;
    }
    let nats: f32 = sum.try_into_scalar().context("cannot read the perplexity from the device")?;
    Ok((f64::from(nats) / predicted(ids, config.window) as f64).exp())
}

/// Perplexity of a bigram model with add-one smoothing, trained on `train`, on all characters of `ids` but the first.
pub fn bigram(train: &[u32], ids: &[u32], characters: usize) -> f64 {
    let mut following = vec![1_u32; characters * characters];
    let mut all = vec![characters as u32; characters];
    for pair in train.windows(2) {
        following[pair[0] as usize * characters + pair[1] as usize] += 1;
        all[pair[0] as usize] += 1;
    }
    let nats = |pair: &[u32]| {
        let count = following[pair[0] as usize * characters + pair[1] as usize];
        (f64::from(all[pair[0] as usize]) / f64::from(count)).ln()
    };
    let sum: f64 = ids.windows(2).map(nats).sum();
    (sum / (ids.len() as f64 - 1.0)).exp()
}
