use gpu_tuned_core::Bytes;
use serde::{Deserialize, Serialize};

/// Memory that optimizer steps take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What the device's memory pools hold after the third step; on a CPU, what was allocated at most.
    pub reserved_bytes: Bytes,
    /// In use after the forward pass of a micro-batch, with the loss alive.
    pub in_use_bytes: Bytes,
}

/// The first step allocates the optimizer's state late, the second settles, the third is as all that follow.
pub(super) const STEPS: usize = 3;
