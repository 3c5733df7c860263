//! Parses the handwritten digits from the included CSV, splits them, and builds batches.

use std::{num::ParseIntError, sync::Arc};

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

/// Errors in a table of digits.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DataError {
    /// A row has too few or too many values.
    #[error("line {line}: expected {} values, found {found}", PIXELS + 1)]
    RowLength {
        /// Line number, from 1.
        line: usize,
        /// Values in the row.
        found: usize,
    },
    /// A value is not a small whole number.
    #[error("line {line}, value {column}: not a number from 0 to 255")]
    NotANumber {
        /// Line number, from 1.
        line: usize,
        /// Position in the row, from 1.
        column: usize,
        /// The parser's error.
        source: ParseIntError,
    },
    /// A pixel is darker than black, or a label is not a digit.
    #[error("line {line}, value {column}: {value} is above {max}")]
    OutOfRange {
        /// Line number, from 1.
        line: usize,
        /// Position in the row, from 1.
        column: usize,
        /// The value found.
        value: u8,
        /// The largest value allowed there.
        max: u8,
    },
}

/// An image with its digit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digit {
    /// Pixels row by row, 0 (white) to 16 (black).
    pub pixels: [u8; PIXELS],
    /// The digit, 0 to 9.
    pub label: u8,
}

impl Digit {
    fn parse(line: usize, row: &str) -> Result<Self, DataError> {
        let values: Vec<&str> = row.split(',').collect();
        let found = values.len();
        if found != PIXELS + 1 {
            return Err(DataError::RowLength { line, found });
        }
        let value = |index: usize, max: u8| {
            let column = index + 1;
            match values[index].trim().parse::<u8>() {
                Ok(value) if value <= max => Ok(value),
                Ok(value) => Err(DataError::OutOfRange { line, column, value, max }),
                Err(source) => Err(DataError::NotANumber { line, column, source }),
            }
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
    /// [`DataError`] if the CSV is damaged.
    pub fn load() -> Result<Self, DataError> {
        Self::parse(CSV)
    }

    /// Parses rows of 64 pixels and a label, separated by commas.
    ///
    /// # Errors
    ///
    /// [`DataError`] for the first invalid row.
    pub fn parse(csv: &str) -> Result<Self, DataError> {
        let (mut train, mut validation) = (Vec::new(), Vec::new());
        for (index, row) in csv.lines().enumerate() {
            let part = if index % VALIDATION_EVERY == 0 { &mut validation } else { &mut train };
            part.push(Digit::parse(index + 1, row)?);
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
