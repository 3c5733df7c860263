//! Steps on a CUDA GPU, executed and as dry runs.

use std::time::{Duration, Instant};

use burn::cubecl::dry_run::DryRun;
use burn::module::Module;
use burn::tensor::{Device, MemoryPoolUsage};
use gpu_tuned_core::Bytes;
use gpu_tuned_train::device::{CudaDevice, memory_free};

use super::bench::Bench;
use super::gpu::Trial;
use super::report::Work;
use super::timed::{Run, run};
use super::training::Training;
use super::{MeasureError, Memory, Step, Subject, isolated, release, reserved};

/// The GPU that a session opened.
pub(super) struct OnGpu<'g, 'b, 'a, M, B> {
    pub(super) bench: &'g Bench<'b, 'a, M, B>,
    pub(super) gpu: &'g CudaDevice,
}

impl<M: Module, B: Clone> Trial for OnGpu<'_, '_, '_, M, B> {
    fn dry(&self, step: Step) -> Result<Memory, MeasureError> {
        (self.bench.begins)(Work::Memory(step));
        dry(self.bench.device, self.bench.subject, step)
    }

    fn run(&self, step: Step, spend: Duration) -> Result<Run, MeasureError> {
        (self.bench.begins)(Work::Time(step));
        run(self.bench.device, self.bench.subject, step, spend)
    }

    fn free(&self) -> Result<Bytes, MeasureError> {
        memory_free(self.gpu).map_err(MeasureError::Driver)
    }

    fn held(&self) -> Bytes {
        reserved(self.bench.device).unwrap_or_default()
    }

    fn now(&self) -> Instant {
        Instant::now()
    }
}

/// A ResNet took its last page in the tenth step, a transformer in the fifth; from then on nothing changed in 25.
const STEPS: usize = 12;

/// Micro-batches after which slow steps end: recurrent layers took their last page in one of the first eight.
const FEWEST_MICRO_BATCHES: usize = 8;

/// Duration after which steps are slow, as the host's work for recurrent networks is. The first step counts with its
/// compilation and autotune.
const PATIENCE: Duration = Duration::from_secs(1);

/// Finds out what steps would reserve on a GPU, without running them; batches may be larger than its memory. Each step has a
/// batch of its own, as in training.
///
/// Dry mode applies to the whole process, so nothing else may use Burn meanwhile. Kernels are compiled and tuned, and
/// *tuning* runs kernels and allocates memory. Dry-run a step that exceeds the device only after tuning a step as large
/// as the device. Otherwise autotune caches kernels that were chosen without enough memory.
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
    let memory = isolated(step, || {
        let memory = steps(device, subject, step)?;
        // Pools belong to threads, and what this one leaves would be counted by the next.
        release(device, step).map(|()| memory)
    });
    // What is still queued must not run, so the dry run ends last.
    let released = release(device, step);
    drop(dry_run);
    released.and(memory?)
}

fn steps<M: Module, B: Clone>(
    device: &Device,
    subject: &Subject<'_, M, B>,
    step: Step,
) -> Result<Memory, MeasureError> {
    // Tuning gives back what nothing uses, such as a page that opening the device took: it must not be among what was there.
    release(device, step)?;
    let before = usage(device)?;
    let mut training = Training::new(subject, step, device);
    let begin = Instant::now();
    for taken in 1..=STEPS {
        training.next_batch();
        training.step(step.micro_batches);
        if taken * step.micro_batches >= FEWEST_MICRO_BATCHES && begin.elapsed() > PATIENCE {
            break;
        }
    }
    // Only now: a look waits until what was let go is free, which training does not, so that it needs a page less.
    let most = usage(device)?.bytes_reserved;
    // In a further step, so that reading it disturbs no other figure.
    let forward = training.after_forward(|| usage(device)).transpose()?;
    let since = |after: u64, before: u64| Bytes(after.saturating_sub(before));
    Ok(Memory {
        reserved_bytes: since(most, before.bytes_reserved),
        in_use_bytes: forward.map(|forward| since(forward.bytes_in_use, before.bytes_in_use)),
    })
}

/// Usage of all pools of the device, after all queued work was launched.
fn usage(device: &Device) -> Result<MemoryPoolUsage, MeasureError> {
    device.memory_pool_usage().ok_or(MeasureError::NoPools)
}
