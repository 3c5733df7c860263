//! Plans for the memory that is left after an out-of-memory error.

use std::sync::Arc;

use burn::tensor::Device;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Plan, PlanError, plan};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, Pins};

use crate::device::OpenGpu;

/// Planner of smaller micro-batches on a session's device.
#[derive(Clone)]
pub struct Replanning {
    pub(super) facts: DeviceFacts,
    pub(super) workload: Workload,
    pub(super) goal: Goal,
    /// Reads the memory available for training, including the memory of this process; `None` if unknown.
    pub(super) memory: Arc<dyn Fn() -> Option<Bytes> + Send + Sync>,
}

impl Replanning {
    /// Plans as `current` was planned, for `goal` on a device with `facts`; `gpu` is the open GPU.
    pub fn new(
        facts: DeviceFacts,
        workload: Workload,
        goal: &Goal,
        current: &Plan,
        device: &Device,
        gpu: Option<OpenGpu>,
    ) -> Self {
        let (device, opening) = (device.clone().without_autodiff(), current.memory.context + current.memory.kernels);
        let memory = Arc::new(move || Some(memory_left(&device, gpu.as_ref()?)? + opening));
        Self { facts, workload, goal: with_free_micro_batch(goal, current), memory }
    }

    /// Plans for so much memory, with a given micro-batch or the best one.
    pub(super) fn plan(&self, memory: Bytes, micro_batch: Option<u64>) -> Result<Plan, PlanError> {
        let facts = DeviceFacts { memory_available: memory, ..self.facts.clone() };
        let mut goal = self.goal.clone();
        goal.pins.batch_size = micro_batch;
        plan(&facts, &self.workload, &goal)
    }
}

/// Free memory and memory of this process's pools.
#[cfg(feature = "cuda")]
fn memory_left(device: &Device, gpu: &OpenGpu) -> Option<Bytes> {
    let free = crate::device::memory_free(&gpu.gpu).ok()?;
    Some(free + Bytes(device.memory_pool_usage()?.bytes_reserved))
}

/// Unknown: a CPU swaps before it runs out of memory.
#[cfg(not(feature = "cuda"))]
fn memory_left(_: &Device, _: &OpenGpu) -> Option<Bytes> {
    None
}

/// The goal of `plan` with its settings pinned, except for the micro-batch.
fn with_free_micro_batch(goal: &Goal, plan: &Plan) -> Goal {
    let pins = Pins::from(&plan.settings).keep(|setting| !setting.row().cuts_step);
    Goal {
        global_batch: Some(plan.schedule.global_batch),
        // The headroom of the plan, which may differ from the goal's.
        memory_headroom: plan.memory.headroom_share(),
        pins,
        ..goal.clone()
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::device::DeviceFacts;
    use gpu_tuned_core::plan::plan;
    use gpu_tuned_core::profile::ProfileTable;
    use gpu_tuned_core::workload::Transformer;
    use gpu_tuned_core::{Bytes, Goal};

    use super::with_free_micro_batch;

    #[test]
    fn the_micro_batch_shrinks_and_the_memory_headroom_stays() {
        let facts = DeviceFacts::nominal(ProfileTable::builtin().get("h200").unwrap());
        let little = DeviceFacts { memory_available: Bytes::from_mib(9000), ..facts.clone() };
        let workload = Transformer::new(6, 512, 8192, 256).workload();
        let sizes = [0.0, 0.1, 0.5].map(|memory_headroom| {
            let mut goal = Goal { global_batch: Some(256), memory_headroom, prefetch_mib: 16, ..Goal::default() };
            goal.pins.batch_size = Some(256);
            let planned = plan(&facts, &workload, &goal).unwrap();
            let smaller = plan(&little, &workload, &with_free_micro_batch(&goal, &planned)).unwrap();
            assert_eq!(smaller.schedule.global_batch, 256);
            assert!(smaller.memory.total() <= Bytes::from_mib(9000).scaled(1.0 - memory_headroom));
            smaller.settings.batch_size
        });
        assert!(sizes[0] > sizes[1] && sizes[1] > sizes[2] && sizes[2] < 256, "{sizes:?}");
    }
}
