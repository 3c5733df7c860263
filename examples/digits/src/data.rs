//! Parses the handwritten digits from the included CSV, splits them, and builds batches.

use std::sync::Arc;

use anyhow::{Context, ensure};
use burn::{
    data::{dataloader::batcher::Batcher, dataset::InMemDataset},
    tensor::{Device, Int, Tensor, TensorData},
};

/// Width and height of an image, in pixels.
pub const SIDE: usize = 8;
/// Number of digits.
pub const CLASSES: usize = 10;

const PIXELS: usize = SIDE * SIDE;
const PIXEL_MAX: u8 = 16;
const VALIDATION_EVERY: usize = 5;
const CSV: &str = include_str!("../data/digits.csv");

/// An image with its digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digit {
    /// Pixels row by row, 0 (white) to 16 (black).
    pub pixels: [u8; PIXELS],
    /// The digit, 0 to 9.
    pub label: u8,
}

impl Digit {
    fn parse(row: &str) -> anyhow::Result<Self> {
        let values: Vec<&str> = row.split(',').collect();
        ensure!(values.len() == PIXELS + 1, "expected {} values, found {}", PIXELS + 1, values.len());
        let value = |index: usize, max: u8| {
            let value = values[index].trim().parse().ok().context("not a number from 0 to 255");
            let checked = value.and_then(|value: u8| {
                ensure!(value <= max, "{value} is above {max}");
                Ok(value)
            });
            checked.with_context(|| format!("value {}", index + 1))
        };
        let mut pixels = [0; PIXELS];
        for (index, pixel) in pixels.iter_mut().enumerate() {
            *pixel = value(index, PIXEL_MAX)?;
        }
        Ok(Self { pixels, label: value(PIXELS, CLASSES as u8 - 1)? })
    }
}

/// The images, split into a training part and a validation part.
#[derive(Clone)]
pub struct Digits {
    /// Four of five images.
    pub train: Arc<InMemDataset<Digit>>,
    /// Every fifth image.
    pub validation: Arc<InMemDataset<Digit>>,
}

impl Digits {
    /// Loads the 1,797 included images: 1,437 for training, 360 for validation.
    ///
    /// # Errors
    ///
    /// If the CSV is damaged.
    pub fn load() -> anyhow::Result<Self> {
        Self::parse(CSV)
    }

    /// Parses rows of 64 pixels and a label, separated by commas.
    ///
    /// # Errors
    ///
    /// For the first invalid row.
    pub fn parse(csv: &str) -> anyhow::Result<Self> {
        let (mut train, mut validation) = (Vec::new(), Vec::new());
        for (index, row) in csv.lines().enumerate() {
            let part = if index % VALIDATION_EVERY == 0 { &mut validation } else { &mut train };
            part.push(Digit::parse(row).with_context(|| format!("line {}", index + 1))?);
        }
        Ok(Self { train: Arc::new(InMemDataset::new(train)), validation: Arc::new(InMemDataset::new(validation)) })
    }
}

/// Images `[samples, 1, 8, 8]` with pixels from 0 to 1, and labels `[samples]`.
pub type Batch = (Tensor<4>, Tensor<1, Int>);

/// Builds a [`Batch`] of images.
#[derive(Clone, Copy, Debug, Default)]
pub struct DigitBatcher;

impl Batcher<Digit, Batch> for DigitBatcher {
    fn batch(&self, digits: Vec<Digit>, device: &Device) -> Batch {
        let pixels = digits.iter().flat_map(|digit| digit.pixels);
        let pixels: Vec<f32> = pixels.map(|pixel| f32::from(pixel) / f32::from(PIXEL_MAX)).collect();
        let labels: Vec<i32> = digits.iter().map(|digit| i32::from(digit.label)).collect();
        (
            Tensor::from_data(TensorData::new(pixels, [digits.len(), 1, SIDE, SIDE]), device),
            Tensor::from_data(TensorData::new(labels, [digits.len()]), device),
        )
    }
}
