use serde::{Deserialize, Serialize};

use super::calibration::{self, PERSISTENT_RESERVE};
use super::loader;
use crate::device::DeviceFacts;
use crate::workload::Workload;
use crate::{Bytes, Goal, Precision};

/// Where the memory of a training run goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryEstimate {
    /// Samples in the micro-batch that the figures are for.
    pub batch: u64,
    /// The model's parameters.
    pub weights: Bytes,
    /// One gradient for each parameter.
    pub gradients: Bytes,
    /// A second set of gradients, the sum so far, when a step takes several micro-batches.
    pub accumulated_gradients: Bytes,
    /// What the optimizer keeps.
    pub optimizer_state: Bytes,
    /// What the forward pass keeps for the backward pass.
    pub activations: Bytes,
    /// Input batches on the device: the one in use and the ones prepared ahead.
    pub inputs: Bytes,
    /// What the allocator reserves beyond the bytes in use.
    pub allocator: Bytes,
    /// What loaded kernels take: their code, and the stacks of all threads that could run at once.
    pub kernels: Bytes,
    /// What opening the device takes.
    pub context: Bytes,
    /// Memory available on the device.
    pub available: Bytes,
    /// The part of it that is left alone.
    pub headroom: Bytes,
}

/// A way to run the step: what memory depends on beside the workload.
#[derive(Clone, Copy)]
pub(super) struct Mode {
    pub precision: Precision,
    pub checkpointing: bool,
    pub accumulates: bool,
}

impl MemoryEstimate {
    /// The bytes at a micro-batch of `batch`.
    pub(super) fn at(device: &DeviceFacts, workload: &Workload, goal: &Goal, mode: Mode, batch: u64) -> Self {
        let weights = Bytes(workload.parameters).times(mode.precision.parameter_bytes());
        let optimizer_state = weights.times(workload.optimizer.values_per_parameter());
        let kept = activations(workload, mode.checkpointing);
        let activations = kept.times(batch).scaled(mode.precision.activation_scale());
        let accumulated_gradients = if mode.accumulates { weights } else { Bytes::ZERO };
        let inputs = workload.sample.input.unwrap_or_default().times(batch).times(loader::PREFETCH_DEPTH + 1);
        let reserve = calibration::of(workload.family).reserve;
        let transient = weights + activations + accumulated_gradients + inputs;
        let persistent = weights + optimizer_state;
        Self {
            batch,
            weights,
            gradients: weights,
            accumulated_gradients,
            optimizer_state,
            activations,
            inputs,
            allocator: transient.scaled(reserve - 1.0) + persistent.scaled(PERSISTENT_RESERVE - 1.0),
            kernels: kernels(device, workload),
            context: device.context,
            available: device.memory_available,
            headroom: device.memory_available.scaled(goal.memory_headroom),
        }
    }

    /// The same run on a device that was looked at, with this share of its memory left alone.
    pub(super) fn on(&mut self, device: &DeviceFacts, workload: &Workload, headroom: f64) {
        self.available = device.memory_available;
        self.headroom = device.memory_available.scaled(headroom);
        self.context = device.context;
        self.kernels = kernels(device, workload);
    }

    /// Everything that training is predicted to take.
    pub fn total(&self) -> Bytes {
        self.items().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// What training may take: the available memory less the headroom.
    pub fn budget(&self) -> Bytes {
        self.available - self.headroom
    }

    /// Whether training stays within the budget.
    pub fn fits(&self) -> bool {
        self.total() <= self.budget()
    }

    /// What adds up to [`total`](Self::total), named.
    pub fn items(&self) -> [(&'static str, Bytes); 9] {
        [
            ("weights", self.weights),
            ("gradients", self.gradients),
            ("accumulated gradients", self.accumulated_gradients),
            ("optimizer state", self.optimizer_state),
            ("activations", self.activations),
            ("input batches", self.inputs),
            ("allocator reserve", self.allocator),
            ("kernels", self.kernels),
            ("device context", self.context),
        ]
    }
}

fn kernels(device: &DeviceFacts, workload: &Workload) -> Bytes {
    calibration::of(workload.family).kernels_per_sm.times(u64::from(device.sm_count))
}

/// Bytes kept for each sample, in f32.
fn activations(workload: &Workload, checkpointing: bool) -> Bytes {
    let sample = &workload.sample;
    let checkpointed = sample.checkpointed_activations.filter(|_| checkpointing);
    checkpointed.unwrap_or(sample.activations)
}

/// The largest micro-batch whose largest tensor CubeCL still allocates in one piece.
pub(super) fn largest_batch_in_one_piece(device: &DeviceFacts, workload: &Workload, precision: Precision) -> u64 {
    let tensor = workload.sample.largest_tensor.unwrap_or_default().scaled(precision.activation_scale());
    let piece = device.memory_total.0 / calibration::LARGEST_ALLOCATION;
    piece.checked_div(tensor.0).unwrap_or(u64::MAX)
}
