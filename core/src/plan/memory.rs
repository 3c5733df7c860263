//! Memory of a run in one mode, as a function of the micro-batch.

use super::calibration::{self, PERSISTENT_RESERVE};
use super::estimate::MemoryEstimate;
use super::pools::Pools;
use super::recorded::RecordedStep;
use super::{baseline, prefetch};
use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Bytes, Goal, Precision, exchange};

/// Memory of a run in one mode, as a function of the micro-batch.
pub(super) struct MemoryModel<'a> {
    workload: &'a Workload,
    goal: &'a Goal,
    precision: Precision,
    /// Items that do not depend on the micro-batch.
    fixed: MemoryEstimate,
    /// Reserve of the allocator for what lives as long as the run, and its least.
    persistent_reserve: Bytes,
    /// Bytes reserved for each byte that lives for one step.
    reserve: f64,
    activation_scale: f64,
    /// Bytes kept for each sample, in f32.
    kept: Bytes,
    /// Measurements that replace the reserve and the activations.
    pools: Option<Pools<'a>>,
    /// With CUDA graphs.
    recorded: Option<RecordedStep<'a>>,
}

impl<'a> MemoryModel<'a> {
    pub(super) fn new(device: &'a DeviceFacts, workload: &'a Workload, goal: &'a Goal, mode: Mode) -> Self {
        let parameters = &workload.parameters;
        let each = mode.precision.parameter_bytes();
        let bytes = |values: u64| Bytes(values).times(each);
        let copies = if mode.checkpointing { parameters.copies_checkpointed } else { parameters.copies };
        let computing = computing_weights(workload, mode.precision);
        let fixed = MemoryEstimate {
            weights: bytes(parameters.trained()),
            frozen_weights: bytes(parameters.frozen) + parameters.packed,
            weight_copies: Bytes(copies).times(mode.precision.compute_bytes()) + computing,
            optimizer_state: optimizer_state(workload, goal, each)[0],
            exchange: exchange::buffers(parameters, goal.world_size, Precision::SUM_BYTES),
            kernels: kernels(device, workload),
            context: context(device, workload),
            available: device.memory_available,
            headroom: device.memory_available.scaled(device.headroom_share(goal.memory_headroom)),
            provenance: workload.provenance,
            ..MemoryEstimate::default()
        };
        Self {
            workload,
            goal,
            precision: mode.precision,
            persistent_reserve: fixed.persistent().scaled(PERSISTENT_RESERVE - 1.0) + calibration::pools(device.kind),
            fixed,
            reserve: calibration::for_family(workload.family).reserve(device.kind),
            activation_scale: mode.precision.activation_scale(),
            kept: activations(workload, mode.checkpointing),
            pools: Pools::new(device, workload, goal, mode.with_graphs(false)),
            recorded: mode.cuda_graphs.then(|| RecordedStep::new(device, workload, mode)),
        }
    }

    /// Returns true if the memory pools' bytes were measured.
    pub(super) const fn is_measured(&self) -> bool {
        self.pools.is_some()
    }

    /// Returns the bytes at a micro-batch of `batch`, which may be one of several in a step.
    pub(super) fn at(&self, batch: u64, accumulates: bool) -> MemoryEstimate {
        let sample = &self.workload.sample;
        let activations = self.kept.times(batch).scaled(self.activation_scale);
        let trained = Bytes(self.workload.parameters.trained());
        let gradients = trained.times(gradient_bytes(self.precision, self.goal, accumulates));
        let accumulated_gradients = if accumulates { trained.times(Precision::SUM_BYTES) } else { Bytes::ZERO };
        let queued = prefetch::depth(self.workload, self.goal, batch).saturating_add(1);
        let inputs = sample.input.unwrap_or_default().times(batch).times(queued);
        let transient = gradients + activations + accumulated_gradients + inputs;
        let derived = MemoryEstimate {
            batch,
            gradients,
            accumulated_gradients,
            activations,
            scratch: sample.scratch.times(batch).scaled(self.activation_scale),
            inputs,
            allocator: transient.scaled(self.reserve - 1.0) + self.persistent_reserve,
            ..self.fixed.clone()
        };
        let mut estimate = match &self.pools {
            Some(pools) => pools.apply(&derived, sample.input.unwrap_or_default().times(batch), accumulates),
            None => derived,
        };
        if let Some(recorded) = &self.recorded {
            let pools = self.pools.as_ref().map(|pools| pools.usage(batch, accumulates).bytes);
            recorded.add_to(&mut estimate, pools, accumulates);
        }
        estimate
    }
}

impl MemoryEstimate {
    /// Moves the estimate to a probed device, with this fraction of its memory as headroom.
    pub(super) fn move_to(&mut self, device: &DeviceFacts, workload: &Workload, headroom: f64) {
        self.available = device.memory_available;
        self.headroom = device.memory_available.scaled(device.headroom_share(headroom));
        self.context = context(device, workload);
        self.kernels = kernels(device, workload);
    }
}

/// Measured bytes of kernels, and at least the calibrated ones: kernels that spill registers take more while they run.
/// A convnet needed 285 to 316 MiB for them on an H200, of which 32 MiB were left between steps.
fn kernels(device: &DeviceFacts, workload: &Workload) -> Bytes {
    let derived = calibration::for_family(workload.family).kernels_per_sm.times(u64::from(device.sm_count));
    baseline::kernels(device, workload).unwrap_or_default().max(derived)
}

fn context(device: &DeviceFacts, workload: &Workload) -> Bytes {
    baseline::context(device, workload).unwrap_or(device.context)
}

/// Bytes kept for each sample, in f32.
fn activations(workload: &Workload, checkpointing: bool) -> Bytes {
    let sample = &workload.sample;
    let checkpointed = sample.checkpointed_activations.filter(|_| checkpointing);
    checkpointed.unwrap_or(sample.activations)
}

/// Bytes of one value of a gradient: as the backward pass returns it, or in the fp32 sum over ranks. A step that accumulates
/// has both: the gradients of a micro-batch, and their sum.
pub(super) const fn gradient_bytes(precision: Precision, goal: &Goal, accumulates: bool) -> u64 {
    if goal.world_size > 1 && !accumulates { Precision::SUM_BYTES } else { precision.parameter_bytes() }
}

/// Bytes of optimizer state on the rank that keeps the most, and on all ranks.
pub(super) fn optimizer_state(workload: &Workload, goal: &Goal, parameter_bytes: u64) -> [Bytes; 2] {
    let each = if workload.optimizer.keeps_f32() { 4 } else { parameter_bytes };
    let ranks = if goal.shard_optimizer { goal.world_size } else { 1 };
    [ranks, 1].map(|ranks| Bytes(exchange::largest_shard(&workload.parameters, workload.optimizer, ranks)).times(each))
}

/// Bytes of the 16-bit weights that mixed precision computes with: all that are not packed.
fn computing_weights(workload: &Workload, precision: Precision) -> Bytes {
    let weights = Bytes(workload.parameters.trained()) + Bytes(workload.parameters.frozen);
    if precision.is_mixed() { weights.times(precision.compute_bytes()) } else { Bytes::ZERO }
}
