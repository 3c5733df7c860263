use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use serde::{Deserialize, Serialize};

use super::{MeasureError, Step, Subject};

/// Memory that optimizer steps take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// Most bytes that the device's memory pools reserve after any of the steps; on a CPU, the most that was allocated.
    pub reserved_bytes: Bytes,
    /// Bytes in use after the forward pass of a micro-batch, with the loss alive; `None` where they cannot be counted.
    pub in_use_bytes: Option<Bytes>,
}

/// Measures the memory of steps on the CPU; `None` without an allocator that counts.
#[cfg_attr(not(feature = "counting-allocator"), expect(clippy::unnecessary_wraps, reason = "the other version counts"))]
pub(super) fn counted<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Option<Memory>, MeasureError> {
    #[cfg(feature = "counting-allocator")]
    return held(device, subject, step).map(Some);
    #[cfg(not(feature = "counting-allocator"))]
    {
        let _ = (device, subject, step);
        Ok(None)
    }
}

/// The first step allocates the optimizer's state late, the second settles, the third is as all that follow.
#[cfg(feature = "counting-allocator")]
pub(super) const STEPS: usize = 3;

/// Runs steps on the CPU and counts what they allocate.
///
/// Nothing else may allocate much in the meantime: the allocator counts for the whole process.
///
/// # Errors
///
/// [`MeasureError::Step`] when the model panics.
#[cfg(feature = "counting-allocator")]
pub fn held<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Memory, MeasureError> {
    use gpu_tuned_train::allocation::{live_bytes, peak_bytes, restart_peak};

    super::isolated(step, || {
        let before = live_bytes();
        let mut training = super::training::Training::new(subject, step, device);
        for _ in 1..STEPS {
            training.step(step.micro_batches);
        }
        restart_peak();
        training.step(step.micro_batches);
        let peak = peak_bytes();
        let forward = training.after_forward(live_bytes);
        let since = |bytes: usize| Bytes(bytes.saturating_sub(before) as u64);
        Memory { reserved_bytes: since(peak), in_use_bytes: forward.map(since) }
    })
}
