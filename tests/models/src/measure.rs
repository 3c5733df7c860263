//! Memory of a training step.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Tensor},
};
use gpu_tuned::allocation;

/// Bytes allocated by one forward and backward pass, beyond those allocated before.
#[derive(Clone, Debug, Default)]
pub struct StepMemory {
    /// Bytes after the forward pass, with the loss alive: kept for the backward pass.
    pub kept_bytes: u64,
    /// Peak bytes through the end of the backward pass.
    pub peak_bytes: u64,
    /// Allocations kept after the forward pass, by their size in bytes.
    pub by_size: BTreeMap<usize, i64>,
}

/// The CPU with gradients, and with or without gradient checkpointing.
pub fn device(checkpointed: bool) -> Device {
    let device = Device::flex().autodiff();
    if checkpointed { device.gradient_checkpointing() } else { device }
}

/// Waits for exclusive use of the counting allocator. The allocator counts for the whole process, and tests run in
/// parallel. A test that only allocates also needs the lock while others count.
pub fn counting() -> MutexGuard<'static, ()> {
    static COUNTING: Mutex<()> = Mutex::new(());
    COUNTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Measures one step. An earlier step must have filled the scratch memory of the threads.
pub fn measure_step(loss: impl FnOnce() -> Tensor<1>) -> StepMemory {
    let before = (allocation::live_bytes(), allocation::live_by_size());
    allocation::restart_peak();
    let kept = loss();
    let after = (allocation::live_bytes(), allocation::live_by_size());
    drop(kept.backward());
    let mut by_size = after.1;
    for (size, count) in before.1 {
        *by_size.entry(size).or_insert(0) -= count;
    }
    by_size.retain(|_, count| *count != 0);
    StepMemory {
        // Another thread may have freed more than the step keeps.
        kept_bytes: after.0.saturating_sub(before.0) as u64,
        peak_bytes: allocation::peak_bytes().saturating_sub(before.0) as u64,
        by_size,
    }
}

/// Bytes that each further sample keeps for the backward pass: the median of three differences. About one in a
/// hundred is off by 1 MiB, probably when a thread fills its scratch memory.
pub fn kept_per_sample(mut loss: impl FnMut(usize) -> Tensor<1>) -> i64 {
    let mut kept = |samples| measure_step(|| loss(samples)).kept_bytes.cast_signed();
    // The first measurement includes one-time allocations of Burn.
    kept(3);
    let mut differences = [(); 3].map(|()| kept(3) - kept(2));
    differences.sort_unstable();
    differences[1]
}

/// Parameters that require gradients. `Module::num_params` counts a BatchNorm's running statistics too.
pub fn trainable<M: Module>(module: &M) -> usize {
    let mut count = Trainable(0);
    module.visit(&mut count);
    count.0
}

struct Trainable(usize);

impl ModuleVisitor for Trainable {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if param.is_require_grad() {
            self.0 += param.val().shape().num_elements();
        }
    }
}
