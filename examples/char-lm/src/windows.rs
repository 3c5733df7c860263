//! Windows of the text, and which of them make up an optimizer step.

use burn::tensor::{Device, Int, Tensor, TensorData};
use rand::{RngExt, SeedableRng, rngs::StdRng, seq::SliceRandom};

use crate::text::TextError;

/// A batch of windows in host memory.
#[derive(Clone, Debug)]
pub struct HostBatch {
    inputs: TensorData,
    targets: TensorData,
    windows: usize,
}

impl HostBatch {
    /// Takes the windows of `length` characters that begin at the given places; the targets are one character further.
    fn new(ids: &[u32], starts: &[usize], length: usize) -> Self {
        let shifted = |by: usize| -> Vec<u32> {
            starts.iter().flat_map(|start| &ids[start + by..start + by + length]).copied().collect()
        };
        Self {
            inputs: TensorData::new(shifted(0), [starts.len(), length]),
            targets: TensorData::new(shifted(1), [starts.len() * length]),
            windows: starts.len(),
        }
    }

    /// Windows in the batch.
    pub fn windows(&self) -> usize {
        self.windows
    }

    /// Characters to predict.
    pub fn predictions(&self) -> usize {
        self.targets.num_elements()
    }

    /// Copies the batch to a device.
    pub fn to_device(&self, device: &Device) -> Batch {
        Batch {
            inputs: Tensor::from_data(self.inputs.clone(), device),
            targets: Tensor::from_data(self.targets.clone(), device),
        }
    }
}

/// A batch of windows on a device.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Characters, `[windows, length]`.
    pub inputs: Tensor<2, Int>,
    /// The characters that follow, `[windows * length]`.
    pub targets: Tensor<1, Int>,
}

/// The part of the text to learn from, as a series of optimizer steps.
///
/// The windows of a step depend on the seed and the number of the step alone: a resumed run needs nothing else to go on.
/// An epoch cuts the text into adjacent windows, from another offset each time, and shuffles them; those that fill no
/// step are left out.
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
    /// [`TextError::TooShort`] when the text does not fill one step.
    pub fn new(ids: &'a [u32], length: usize, per_step: usize, seed: u64) -> Result<Self, TextError> {
        let windows = Self { ids, length, per_step, seed };
        // Whatever the offset, the last window and its last target are inside.
        let needed = (per_step.max(1) + 1) * length;
        if length > 0 && windows.steps_per_epoch() > 0 {
            return Ok(windows);
        }
        Err(TextError::TooShort { part: "part of the text to learn from", characters: ids.len(), needed })
    }

    /// Optimizer steps in which no window comes twice.
    pub fn steps_per_epoch(&self) -> usize {
        self.per_epoch() / self.per_step.max(1)
    }

    fn per_epoch(&self) -> usize {
        (self.ids.len() / self.length.max(1)).saturating_sub(1)
    }

    /// Where the windows of one step begin, in characters; steps count from 0.
    pub fn starts(&self, step: usize) -> Vec<usize> {
        let (epoch, index) = (step / self.steps_per_epoch(), step % self.steps_per_epoch());
        let mut random = StdRng::seed_from_u64(self.seed ^ (epoch as u64) << 32);
        let offset = random.random_range(0..self.length);
        let mut order: Vec<usize> = (0..self.per_epoch()).collect();
        order.shuffle(&mut random);
        order[index * self.per_step..][..self.per_step].iter().map(|window| offset + window * self.length).collect()
    }

    /// So many windows of the first step in one batch.
    pub fn first(&self, windows: usize) -> HostBatch {
        let starts = self.starts(0);
        HostBatch::new(self.ids, &starts[..windows.min(starts.len())], self.length)
    }

    /// The windows of one step, in micro-batches of the given sizes.
    pub fn step(&self, step: usize, micro_batches: &[usize]) -> Vec<HostBatch> {
        let starts = self.starts(step);
        let mut rest = starts.as_slice();
        let mut batches = Vec::with_capacity(micro_batches.len());
        for size in micro_batches {
            let (batch, others) = rest.split_at((*size).min(rest.len()));
            batches.push(HostBatch::new(self.ids, batch, self.length));
            rest = others;
        }
        batches
    }
}

/// Cuts a text into adjacent windows, in batches, for an evaluation: every character but the first is predicted once, save
/// for less than a window at the end.
///
/// # Errors
///
/// [`TextError::TooShort`] when the text does not fill one window.
pub fn adjacent(ids: &[u32], length: usize, batch: usize) -> Result<Vec<HostBatch>, TextError> {
    let starts: Vec<usize> = (0..predicted(ids, length)).step_by(length.max(1)).collect();
    if starts.is_empty() {
        let needed = length + 1;
        return Err(TextError::TooShort { part: "held-out part of the text", characters: ids.len(), needed });
    }
    Ok(starts.chunks(batch.max(1)).map(|starts| HostBatch::new(ids, starts, length)).collect())
}

/// Characters that [`adjacent`] windows predict.
pub fn predicted(ids: &[u32], length: usize) -> usize {
    let following = ids.len().saturating_sub(1);
    following - following.checked_rem(length).unwrap_or(following)
}
