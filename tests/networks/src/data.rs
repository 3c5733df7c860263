use std::thread::sleep;
use std::time::Duration;

use burn::data::dataloader::batcher::Batcher;
use burn::tensor::{Device, Int, Tensor, TensorData};

/// Numbers of a labelled sample.
pub const FEATURES: usize = 6;
/// Classes of labelled samples.
pub const CLASSES: usize = 3;

/// Batches of rows of numbers, each after a delay.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rows {
    /// Time that preparing a batch takes in addition.
    pub delay: Duration,
}

impl<const COLUMNS: usize> Batcher<[f32; COLUMNS], Tensor<2>> for Rows {
    fn batch(&self, rows: Vec<[f32; COLUMNS]>, device: &Device) -> Tensor<2> {
        sleep(self.delay);
        Tensor::from_data(TensorData::new(rows.concat(), [rows.len(), COLUMNS]), device)
    }
}

/// Batches of samples with classes, made from their numbers.
#[derive(Clone, Copy, Debug)]
pub struct Labelled;

impl Batcher<usize, (Tensor<2>, Tensor<1, Int>)> for Labelled {
    fn batch(&self, samples: Vec<usize>, device: &Device) -> (Tensor<2>, Tensor<1, Int>) {
        let row = |sample: usize| (0..FEATURES).map(move |column| (sample * 7 + column * 3) as f32 % 11.0 / 11.0);
        let inputs: Vec<_> = samples.iter().copied().flat_map(row).collect();
        let classes: Vec<_> =
            samples.iter().map(|sample| i64::try_from(sample % CLASSES).expect("a small number")).collect();
        (
            Tensor::from_data(TensorData::new(inputs, [samples.len(), FEATURES]), device),
            Tensor::from_data(TensorData::new(classes, [samples.len()]), device),
        )
    }
}
