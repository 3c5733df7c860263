use burn::cubecl::dry_run::DryRun;
use burn::module::Module;
use burn::tensor::{Device, MemoryPoolUsage};
use gpu_tuned_core::Bytes;

use super::memory::STEPS;
use super::training::Training;
use super::{MeasureError, Memory, Step, Subject, isolated, release};

/// Finds out what steps would reserve on a GPU, without running them; batches may be larger than its memory.
///
/// Nothing else may use Burn in the meantime: a dry run holds for the whole process. Kernels are compiled and tuned,
/// and *tuning* does run and does take memory: dry-run a step that is larger than the device only when steps as large
/// as the device have been tuned, or autotune remembers kernels that were chosen without enough memory.
///
/// # Errors
///
/// [`MeasureError::Step`] when the model panics or one tensor is larger than the device takes,
/// [`MeasureError::NoPools`] when the device is no GPU.
pub fn dry<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Memory, MeasureError> {
    let dry_run = DryRun::new();
    let memory = isolated(step, || three_steps(device, subject, step));
    // What is still queued must not run, so the dry run ends last.
    let released = release(device, step);
    drop(dry_run);
    released.and(memory?)
}

fn three_steps<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Memory, MeasureError> {
    let before = usage(device)?;
    let mut training = Training::new(subject, step, device);
    for _ in 0..STEPS {
        training = training.step(step.micro_batches);
    }
    let after = usage(device)?;
    // In a fourth step, so that reading it disturbs no other figure.
    let loss = training.forward();
    let forward = usage(device)?;
    drop(loss);
    let since = |after: u64, before: u64| Bytes(after.saturating_sub(before));
    Ok(Memory {
        reserved_bytes: since(after.bytes_reserved, before.bytes_reserved),
        in_use_bytes: since(forward.bytes_in_use, before.bytes_in_use),
    })
}

/// What all pools of the device hold, once everything queued has been launched.
fn usage(device: &Device) -> Result<MemoryPoolUsage, MeasureError> {
    device.memory_pool_usage().ok_or(MeasureError::NoPools)
}
