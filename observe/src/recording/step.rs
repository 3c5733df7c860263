//! Optimizer steps.

use serde::{Deserialize, Serialize};

/// An optimizer step of the program, as its own clock saw it. Seconds are those of the host.
///
/// From the end of the last step to the end of this one passes `seconds`, which is made of
/// `waited_s` (for the loader), `outside_s` (in the program's own loop), and the rest in the trainer: `loss_s` in the
/// program's loss function, `backward_s`, `update_s`, and `drain_s` waiting for the device at the step's end. A device
/// works beside the host: what the host does in no time the device may take long for, and that shows in `drain_s`.
///
/// In Burn's training loop the program's training step calls `backward` itself: both are in `loss_s`, and there is no
/// `backward_s`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct StepRecord {
    /// When it ended.
    pub at: f64,
    /// Its number, from 1.
    pub step: u64,
    /// The rank that took it.
    #[serde(skip_serializing_if = "is_zero")]
    pub rank: u64,
    /// The process that took it; `None` in recordings of older versions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pid: Option<u32>,
    /// From the end of the step before to the end of this one.
    pub seconds: f64,
    /// Samples of it, over all ranks.
    pub samples: u64,
    /// Micro-batches that this rank cut its share into.
    pub micro_batches: u64,
    /// Samples in each of them; the last may hold fewer.
    pub micro_batch: u64,
    /// Waiting for the loader's next batch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_s: Option<f64>,
    /// Uploading what was left on the host.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub upload_s: Option<f64>,
    /// In the program's loss function.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_s: Option<f64>,
    /// Processor time of this thread in the loss function: far less than `loss_s` where it waits for the device there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_cpu_s: Option<f64>,
    /// In the backward pass.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backward_s: Option<f64>,
    /// In the optimizer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update_s: Option<f64>,
    /// Waiting for other ranks, and exchanging gradients with them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exchange_s: Option<f64>,
    /// Waiting for the device at the end of the step.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drain_s: Option<f64>,
    /// Between the trainer's return and its next call, without waiting for the loader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub outside_s: Option<f64>,
    /// Batches that were ready when the loader was asked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub queued: Option<u64>,
    /// Batches that the loader's workers have prepared since the step before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared: Option<u64>,
    /// What the workers took for them, added up: fetching items and putting them together, without waiting for room.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_s: Option<f64>,
    /// Processor time of the workers' threads in it: far less than `prepared_s` where they wait for storage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prepared_cpu_s: Option<f64>,
    /// Memory in use by Burn's pools after the step, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub in_use_bytes: Option<u64>,
    /// Memory that Burn's pools hold after the step, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<u64>,
    /// Mean loss.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss: Option<f64>,
    /// Norm of all gradients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gradient_norm: Option<f64>,
    /// What the loss was multiplied by.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub loss_scale: Option<f64>,
    /// Whether parameters changed.
    pub applied: bool,
    /// How often memory ran out on the way.
    #[serde(skip_serializing_if = "is_zero")]
    pub rescues: u64,
}

impl StepRecord {
    /// A step of which nothing else is known.
    pub fn new(at: f64, step: u64) -> Self {
        Self { at, step, applied: true, ..Self::default() }
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks so")]
fn is_zero(count: &u64) -> bool {
    *count == 0
}
