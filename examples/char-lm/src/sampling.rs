//! Generates text with the network, one character at a time.

use burn::tensor::{Device, Int, Tensor, TensorData, TensorReadError, activation::softmax};
use gpu_tuned::mixed::in_f32;
use rand::{RngExt, SeedableRng, rngs::StdRng};

use crate::{config::TrainingConfig, model::Model, text::Vocabulary};

const BEGINNING: char = '\n';

/// Draws characters from the network's distribution, starting at the beginning of a line.
///
/// Each character costs a whole forward pass, because no state is cached.
///
/// # Errors
///
/// If a result cannot be read from the device.
pub fn sample(
    model: &Model,
    vocabulary: &Vocabulary,
    config: &TrainingConfig,
    characters: usize,
    device: &Device,
) -> Result<String, TensorReadError> {
    let mut random = StdRng::seed_from_u64(config.seed);
    let mut ids = vec![vocabulary.id(BEGINNING)];
    for _ in 0..characters {
        let seen = &ids[ids.len().saturating_sub(config.window)..];
        let input = Tensor::<2, Int>::from_data(TensorData::new(seen.to_vec(), [1, seen.len()]), device);
        let last = model.forward(input).narrow(1, seen.len() - 1, 1);
        let mut shares: Vec<f32> = softmax(in_f32(last), 2).try_into_data_as::<f32>()?.iter::<f32>().collect();
        // The unknown character cannot be generated.
        shares.pop();
        ids.push(draw(&shares, random.random()));
    }
    Ok(ids[1..].iter().map(|&id| vocabulary.character(id as usize)).collect())
}

/// The first index with a cumulative share above `part` of the sum.
fn draw(shares: &[f32], part: f32) -> u32 {
    let mut left = part * shares.iter().sum::<f32>();
    let passed = |share: &f32| {
        left -= share;
        left < 0.0
    };
    shares.iter().position(passed).unwrap_or(shares.len() - 1) as u32
}
