use burn::module::Module;
use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use serde::{Deserialize, Serialize};

use super::training::Training;
use super::{MeasureError, Step, Subject, isolated, resident};

/// Memory that optimizer steps take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Memory {
    /// What the device's memory pools hold after the third step; on a CPU, what was allocated at most.
    pub reserved_bytes: Bytes,
    /// In use after the forward pass of a micro-batch, with the loss alive; `None` where it cannot be told.
    pub in_use_bytes: Option<Bytes>,
}

/// The first step allocates the optimizer's state late, the second settles, the third is as all that follow.
pub(super) const STEPS: usize = 3;

/// Runs steps on the CPU and finds out what they took.
///
/// With feature `counting-allocator` it is what was allocated. Without, on Linux, the growth of the process since the
/// first such measurement: measure the smallest batch first, because what the system's allocator keeps of a larger one
/// counts for a smaller one as well.
///
/// # Errors
///
/// [`MeasureError::Step`] when the model panics, [`MeasureError::HostMemory`] when the system does not say what the
/// process holds.
pub fn held<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Memory, MeasureError> {
    let held = isolated(step, || {
        let before = resident::before()?;
        let mut training = Training::new(subject, step, device);
        for _ in 1..STEPS {
            training = training.step(step.micro_batches);
        }
        resident::restart_peak();
        let training = training.step(step.micro_batches);
        let peak = resident::peak()?;
        let loss = training.forward();
        let forward = resident::counted();
        drop(loss);
        training.check().map_err(|error| step.failed(&error))?;
        let since = |bytes: u64| Bytes(bytes.saturating_sub(before));
        Ok(Memory { reserved_bytes: since(peak), in_use_bytes: forward.map(since) })
    });
    held?
}
