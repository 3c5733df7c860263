//! Memory that PyTorch needs to train a transformer, by [`peak`].
//!
//! Counted are weights, gradients, optimizer state, tensors kept for the backward pass, the logits with their loss, and
//! buffers of data parallelism. `torch.compile` and offloading are not modelled. The table in `published_memory.toml`
//! compares the estimate with published measurements.

mod layout;
#[cfg(test)]
mod tests;

use serde::Deserialize;

use crate::device::DeviceFacts;
use crate::workload::{ModelSpec, Teacher, Training, WorkloadSpec};
use crate::{Bytes, Precision};
use layout::Layout;

/// A PyTorch training run, but for the model and the training method.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a training script")]
pub struct Run {
    /// Sequences that one GPU processes at a time.
    pub micro_batch: u64,
    /// Number formats of the trained parameters and of the step.
    pub precision: Precision,
    /// Format of frozen weights.
    pub frozen: Weights,
    /// True if PEFT's `prepare_model_for_kbit_training` converted norms, so that values between layers are fp32.
    pub prepared: bool,
    /// True if attention runs without a matrix of scores: flash attention, or PyTorch's scaled dot-product attention.
    pub flash_attention: bool,
    /// True if each layer keeps its input only, and is computed again in the backward pass.
    pub checkpointing: bool,
    /// True if the loss is computed in chunks, from the output layer's input (Liger, torchtune's chunked cross-entropy).
    pub fused_loss: bool,
    /// True if the gradients of several micro-batches are summed.
    pub accumulates: bool,
    /// True if each parameter is updated in the backward pass, and its gradient freed.
    pub step_in_backward: bool,
    /// True if the optimizer updates all parameters together, as `torch.optim` does unless `fused` or `foreach=False` is
    /// given.
    pub foreach: bool,
    /// Storage of the optimizer state.
    pub state: OptimizerState,
    /// GPUs that train together; 0 counts as 1.
    pub devices: u64,
    /// Distribution of the training state over the GPUs.
    pub sharding: Sharding,
}

/// Format of frozen weights. Packed formats are those of bitsandbytes; embeddings, norms and the head stay in 16 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Weights {
    /// fp32.
    Full,
    /// bf16 or fp16.
    #[default]
    Half,
    /// 8 bits, with a scale for each row. No published figure was compared.
    Int8,
    /// 4 bits, with a scale in fp32 for each 64 values.
    Nf4,
    /// 4 bits with double quantisation: scales in 8 bits, and a second scale in fp32 for each 256 of them.
    Nf4Double,
}

impl Weights {
    /// Bytes of a value in a matrix of a layer (Dettmers et al., 2023, section 3).
    const fn bytes(self) -> f64 {
        match self {
            Self::Full => 4.0,
            Self::Half => 2.0,
            Self::Int8 => 1.0,
            Self::Nf4 => 0.5 + 4.0 / 64.0,
            Self::Nf4Double => 0.5 + 1.0 / 64.0 + 4.0 / (64.0 * 256.0),
        }
    }

    const fn is_packed(self) -> bool {
        !matches!(self, Self::Full | Self::Half)
    }
}

/// Storage of the optimizer state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OptimizerState {
    /// The format of the trained parameters.
    #[default]
    Full,
    /// 8 bits, with a scale in fp32 for each 256 values (bitsandbytes).
    EightBit,
    /// 8 bits in unified memory, which the driver moves to the host. PyTorch does not count it.
    Paged,
}

/// Distribution of the training state over GPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sharding {
    /// All on each GPU: `DistributedDataParallel`.
    #[default]
    None,
    /// `DeepSpeed`, optimizer state sharded.
    Zero1,
    /// `DeepSpeed`, gradients sharded too.
    Zero2,
    /// `DeepSpeed`, weights sharded too.
    Zero3,
    /// `FullyShardedDataParallel` with full sharding.
    Fsdp,
}

/// Peak memory of one GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peak {
    /// Bytes in tensors, as `torch.cuda.max_memory_allocated()` reports them.
    pub allocated: Bytes,
    /// Bytes that the caching allocator reserves.
    pub reserved: Bytes,
}

impl Peak {
    /// Bytes that the driver counts, with the CUDA context.
    #[must_use]
    pub fn on_device(self, device: &DeviceFacts) -> Bytes {
        self.reserved + device.context
    }
}

/// Reserved over allocated memory in runs that fill a GPU: the median of 28 published runs on one A100 that fill 85% or more
/// of it (`fms-acceleration`, `scripts/benchmarks/refs`). The allocator reserves more where memory is free.
const RESERVED: f64 = 1.11;

/// Estimates the peak memory of a GPU. Returns `None` unless the model is a transformer over tokens without experts, trained
/// without a teacher and without pruning.
pub fn peak(spec: &WorkloadSpec, run: &Run) -> Option<Peak> {
    let ModelSpec::Transformer(model) = &spec.model else { return None };
    let Training { teacher, pruned, .. } = spec.training;
    if model.experts.is_some() || teacher != Teacher::None || pruned > 0.0 {
        return None;
    }
    let layout = Layout::new(spec, model, run);
    let state = layout.state();
    let gradients = if run.step_in_backward { layout.largest_gradient() } else { state.gradients };
    let tokens = run.micro_batch as f64 * model.seq as f64;
    // Gradients grow while kept tensors are freed, so that the peak is at the loss or in the optimizer's step.
    let at_loss = tokens * layout.kept() + if run.accumulates { gradients } else { 0.0 } + layout.temporary();
    // An update of all parameters together needs a copy of them (documentation of `torch.optim.AdamW`, `foreach`).
    let at_step = gradients * if run.foreach { 2.0 } else { 1.0 };
    let allocated = state.fixed + at_loss.max(at_step);
    Some(Peak { allocated: Bytes(allocated as u64), reserved: Bytes((allocated * RESERVED) as u64) })
}
