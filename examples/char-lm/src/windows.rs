//! Splits the text into windows, and selects the windows of an optimizer step.

use std::ops::Range;

use anyhow::ensure;
use burn::tensor::{Device, Int, Tensor, TensorData};
use gpu_tuned::MicroBatch;
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

/// A batch of windows.
#[derive(Clone, Debug, MicroBatch)]
pub struct Batch {
    /// Characters, `[windows, length]`.
    pub inputs: Tensor<2, Int>,
    /// The characters that follow, `[windows, length]`.
    pub targets: Tensor<2, Int>,
}

impl Batch {
    /// Cuts windows of `length` characters at the given offsets; targets are shifted by one character.
    fn new(ids: &[u32], starts: &[usize], length: usize, device: &Device) -> Self {
        let shifted = |by: usize| {
            let windows = starts.iter().flat_map(|start| &ids[start + by..start + by + length]);
            let ids: Vec<u32> = windows.copied().collect();
            Tensor::from_data(TensorData::new(ids, [starts.len(), length]), device)
        };
        Self { inputs: shifted(0), targets: shifted(1) }
    }

    /// Number of predicted characters.
    pub fn predictions(&self) -> usize {
        self.targets.shape().num_elements()
    }
}

/// The training text as a series of optimizer steps.
///
/// The windows of a step depend only on the seed and the step's number, so a resumed run needs no other state. An
/// epoch cuts the text into adjacent windows, from a new offset each time, and shuffles them. Windows that fill no
/// step are dropped.
#[derive(Clone, Copy, Debug)]
pub struct Windows<'a> {
    ids: &'a [u32],
    length: usize,
    per_step: usize,
    seed: u64,
}

impl<'a> Windows<'a> {
    /// Windows of `length` characters, `per_step` of them in an optimizer step.
    ///
    /// # Errors
    ///
    /// If the text does not fill one step.
    pub fn new(ids: &'a [u32], length: usize, per_step: usize, seed: u64) -> anyhow::Result<Self> {
        let windows = Self { ids, length, per_step, seed };
        // This length suffices for any offset, with the last window and its last target.
        let needed = (per_step.max(1) + 1) * length;
        ensure!(
            length > 0 && windows.steps_per_epoch() > 0,
            "the training text has {} characters but needs {needed}; use a longer text or shorter windows",
            ids.len()
        );
        Ok(windows)
    }

    /// Optimizer steps without a repeated window.
    pub fn steps_per_epoch(&self) -> usize {
        self.per_epoch() / self.per_step.max(1)
    }

    fn per_epoch(&self) -> usize {
        (self.ids.len() / self.length.max(1)).saturating_sub(1)
    }

    /// Offsets of the windows of one step, in characters; steps count from 0.
    pub fn starts(&self, step: usize) -> Vec<usize> {
        let (epoch, index) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let mut random = StdRng::seed_from_u64(self.seed ^ (epoch as u64) << 32);
        let offset = random.random_range(0..self.length);
        let mut order: Vec<usize> = (0..self.per_epoch()).collect();
        order.shuffle(&mut random);
        order[index * self.per_step..][..self.per_step].iter().map(|window| offset + window * self.length).collect()
    }

    /// The first windows of the first step, on a device.
    pub fn first(&self, windows: usize, device: &Device) -> Batch {
        let starts = self.starts(0);
        Batch::new(self.ids, &starts[..windows.min(starts.len())], self.length, device)
    }

    /// A part of the windows of one step, in host memory.
    pub fn step(&self, step: usize, part: Range<usize>) -> Batch {
        Batch::new(self.ids, &self.starts(step)[part], self.length, &Device::flex())
    }
}

/// Cuts a text into adjacent windows, in batches on a device, for an evaluation. Each character but the first is
/// predicted once; a last part smaller than a window is dropped.
///
/// # Errors
///
/// If the text does not fill one window.
pub fn adjacent<'a>(
    ids: &'a [u32],
    length: usize,
    batch: usize,
    device: &'a Device,
) -> anyhow::Result<impl Iterator<Item = Batch> + 'a> {
    let starts: Vec<usize> = (0..predicted(ids, length)).step_by(length.max(1)).collect();
    ensure!(
        !starts.is_empty(),
        "the validation text has {} characters but needs {}; use a longer text or shorter windows",
        ids.len(),
        length + 1
    );
    let chunks: Vec<_> = starts.chunks(batch.max(1)).map(<[usize]>::to_vec).collect();
    Ok(chunks.into_iter().map(move |starts| Batch::new(ids, &starts, length, device)))
}

/// Number of characters predicted in [`adjacent`] windows.
pub fn predicted(ids: &[u32], length: usize) -> usize {
    let following = ids.len().saturating_sub(1);
    following - following.checked_rem(length).unwrap_or(following)
}
