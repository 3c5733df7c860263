//! Memory of a training run, item by item.

use serde::{Deserialize, Serialize};

use crate::{Bytes, Provenance};

/// Memory of a training run, item by item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryEstimate {
    /// Samples in the micro-batch of these figures.
    pub batch: u64,
    /// Parameters that training changes.
    pub weights: Bytes,
    /// Parameters that training leaves as they are, such as a teacher's; packed where that is asked for.
    pub frozen_weights: Bytes,
    /// Copies of weights: 16-bit ones of mixed precision, and those that the forward pass keeps for the backward pass.
    pub weight_copies: Bytes,
    /// One gradient for each trained parameter, in the parameter's format; in fp32 where ranks add them up.
    pub gradients: Bytes,
    /// A second set of gradients, the sum so far in fp32, when a step takes several micro-batches.
    pub accumulated_gradients: Bytes,
    /// Optimizer state; where it is sharded, that of the rank with the largest share.
    pub optimizer_state: Bytes,
    /// Packed gradients while ranks exchange them.
    #[serde(default)]
    pub exchange: Bytes,
    /// Tensors that the forward pass keeps for the backward pass.
    pub activations: Bytes,
    /// Temporary memory of the layer that needs the most.
    pub scratch: Bytes,
    /// Input batches on the device: the one in use and the ones prepared ahead.
    pub inputs: Bytes,
    /// Bytes that the allocator reserves beyond the bytes in use.
    pub allocator: Bytes,
    /// Memory that a recorded micro-step adds with CUDA graphs: its tensors, and copies of parameters.
    #[serde(default)]
    pub cuda_graph: Bytes,
    /// Loaded kernels: their code, and the stacks of all threads that could run at once.
    pub kernels: Bytes,
    /// Bytes that opening the device takes.
    pub context: Bytes,
    /// Margin by which an estimate is raised to be an upper bound; 0 for measured memory.
    #[serde(default)]
    pub margin: Bytes,
    /// Provenance of the memory pools' bytes.
    #[serde(default)]
    pub provenance: Provenance,
    /// Memory available on the device.
    pub available: Bytes,
    /// Part of the available memory that training does not use.
    pub headroom: Bytes,
}

impl MemoryEstimate {
    /// Sum of all items.
    pub fn total(&self) -> Bytes {
        self.items().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that training may take: the available memory less the headroom.
    pub fn budget(&self) -> Bytes {
        self.available - self.headroom
    }

    /// Headroom as a fraction of the available memory, 0 to 1.
    pub fn headroom_share(&self) -> f64 {
        self.headroom.0 as f64 / self.available.0.max(1) as f64
    }

    /// Bytes that live as long as the run: weights, their copies and the optimizer state.
    pub(super) fn persistent(&self) -> Bytes {
        self.weights + self.frozen_weights + self.weight_copies + self.optimizer_state
    }

    /// Bytes that live for one step, with the share of the allocator.
    pub(super) fn transient(&self) -> Bytes {
        let step = self.gradients + self.accumulated_gradients + self.activations + self.scratch + self.inputs;
        step + self.allocator
    }

    /// Lists the items that are not zero, one a line, with their sum and the available memory. With `checkpointing`, the
    /// line of the activations mentions it.
    pub fn itemised(&self, checkpointing: bool) -> String {
        let there = self.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
        let sums = [("= needed", self.total()), ("available", self.available), ("- headroom", self.headroom)];
        let line = |(item, bytes): (&str, Bytes)| {
            let note = if item == "activations" && checkpointing { " (with checkpointing)" } else { "" };
            format!("  {item:<22} {bytes:>11}{note}")
        };
        there.chain(sums).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Returns true if training stays within the budget.
    pub fn fits(&self) -> bool {
        self.total() <= self.budget()
    }

    /// The items that add up to [`total`](Self::total), by name.
    pub fn items(&self) -> [(&'static str, Bytes); 15] {
        [
            ("weights", self.weights),
            ("frozen weights", self.frozen_weights),
            ("copies of weights", self.weight_copies),
            ("gradients", self.gradients),
            ("accumulated gradients", self.accumulated_gradients),
            ("optimizer state", self.optimizer_state),
            ("gradient exchange", self.exchange),
            ("activations", self.activations),
            ("layer scratch", self.scratch),
            ("input batches", self.inputs),
            ("allocator reserve", self.allocator),
            ("CUDA graph", self.cuda_graph),
            ("kernels", self.kernels),
            ("device context", self.context),
            ("margin", self.margin),
        ]
    }
}
