use serde::{Deserialize, Serialize};

use super::calibration::{self, PERSISTENT_RESERVE};
use super::pools::Pools;
use super::{host, reference};
use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Bytes, Goal, Precision, Provenance};

/// Where the memory of a training run goes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryEstimate {
    /// Samples in the micro-batch that the figures are for.
    pub batch: u64,
    /// The parameters that training changes.
    pub weights: Bytes,
    /// The parameters that it leaves alone, a teacher's among them, packed where that is asked for.
    pub frozen_weights: Bytes,
    /// Copies of weights: those in 16 bits that mixed precision computes with, and those that the forward pass makes for the
    /// backward pass.
    pub weight_copies: Bytes,
    /// One gradient for each trained parameter.
    pub gradients: Bytes,
    /// A second set of gradients, the sum so far, when a step takes several micro-batches.
    pub accumulated_gradients: Bytes,
    /// What the optimizer keeps, or this rank's share of it.
    pub optimizer_state: Bytes,
    /// What the forward pass keeps for the backward pass.
    pub activations: Bytes,
    /// What the hungriest layer takes while it runs.
    pub scratch: Bytes,
    /// Input batches on the device: the one in use and the ones prepared ahead.
    pub inputs: Bytes,
    /// What the allocator reserves beyond the bytes in use.
    pub allocator: Bytes,
    /// What loaded kernels take: their code, and the stacks of all threads that could run at once.
    pub kernels: Bytes,
    /// What opening the device takes.
    pub context: Bytes,
    /// What the measured figures are raised by, because lines between points err.
    #[serde(default)]
    pub margin: Bytes,
    /// What stands behind the bytes that the memory pools hold.
    #[serde(default)]
    pub provenance: Provenance,
    /// Memory available on the device.
    pub available: Bytes,
    /// The part of it that is left alone.
    pub headroom: Bytes,
}

/// The memory of a run in one mode, as a function of the micro-batch.
pub(super) struct MemoryModel<'a> {
    workload: &'a Workload,
    goal: &'a Goal,
    /// What does not depend on the micro-batch.
    fixed: MemoryEstimate,
    /// The allocator's reserve for what lives as long as the run, and however little is in use.
    persistent_reserve: Bytes,
    /// Bytes reserved for each byte that lives for one step.
    reserve: f64,
    activation_scale: f64,
    /// Bytes kept for each sample, in f32.
    kept: Bytes,
    /// What takes the place of the reserve and what is kept, where it was measured.
    pools: Option<Pools<'a>>,
}

impl<'a> MemoryModel<'a> {
    pub(super) fn of(device: &'a DeviceFacts, workload: &'a Workload, goal: &'a Goal, mode: Mode) -> Self {
        let parameters = &workload.parameters;
        let each = mode.precision.parameter_bytes();
        let held = |values: u64| Bytes(values).times(each);
        let copies = if mode.checkpointing { parameters.copies_checkpointed } else { parameters.copies };
        let fixed = MemoryEstimate {
            weights: held(parameters.trained()),
            frozen_weights: held(parameters.frozen) + parameters.packed,
            weight_copies: Bytes(copies).times(mode.precision.compute_bytes()) + computing(workload, mode.precision),
            gradients: held(parameters.trained()),
            optimizer_state: optimizer_state(workload, goal, each),
            kernels: kernels(device, workload),
            context: context(device, workload),
            available: device.memory_available,
            headroom: device.memory_available.scaled(goal.memory_headroom),
            provenance: workload.provenance,
            ..MemoryEstimate::default()
        };
        // Copies of weights are large and always the same ones.
        let persistent = fixed.weights + fixed.frozen_weights + fixed.weight_copies + fixed.optimizer_state;
        Self {
            workload,
            goal,
            fixed,
            persistent_reserve: persistent.scaled(PERSISTENT_RESERVE - 1.0) + calibration::pools(device.kind),
            reserve: calibration::of(workload.family).reserve(device.kind),
            activation_scale: mode.precision.activation_scale(),
            kept: activations(workload, mode.checkpointing),
            pools: Pools::of(device, workload, goal, mode),
        }
    }

    /// Whether what the memory pools hold was measured.
    pub(super) const fn is_measured(&self) -> bool {
        self.pools.is_some()
    }

    /// The bytes at a micro-batch of `batch`, which may be one of several in a step.
    pub(super) fn at(&self, batch: u64, accumulates: bool) -> MemoryEstimate {
        let sample = &self.workload.sample;
        let activations = self.kept.times(batch).scaled(self.activation_scale);
        let accumulated_gradients = if accumulates { self.fixed.gradients } else { Bytes::ZERO };
        let queued = host::prefetch_depth(self.workload, self.goal, batch).saturating_add(1);
        let inputs = sample.input.unwrap_or_default().times(batch).times(queued);
        let transient = self.fixed.gradients + activations + accumulated_gradients + inputs;
        let derived = MemoryEstimate {
            batch,
            accumulated_gradients,
            activations,
            scratch: sample.scratch.times(batch).scaled(self.activation_scale),
            inputs,
            allocator: transient.scaled(self.reserve - 1.0) + self.persistent_reserve,
            ..self.fixed.clone()
        };
        match &self.pools {
            Some(pools) => pools.at(&derived, sample.input.unwrap_or_default().times(batch), accumulates),
            None => derived,
        }
    }
}

impl MemoryEstimate {
    /// The same run on a device that was looked at, with this share of its memory left alone.
    pub(super) fn on(&mut self, device: &DeviceFacts, workload: &Workload, headroom: f64) {
        self.available = device.memory_available;
        self.headroom = device.memory_available.scaled(headroom);
        self.context = context(device, workload);
        self.kernels = kernels(device, workload);
    }

    /// Everything that training is predicted to take.
    pub fn total(&self) -> Bytes {
        self.items().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// What training may take: the available memory less the headroom.
    pub fn budget(&self) -> Bytes {
        self.available - self.headroom
    }

    /// The share of the available memory that is left alone, 0 to 1.
    pub fn headroom_share(&self) -> f64 {
        self.headroom.0 as f64 / self.available.0.max(1) as f64
    }

    /// The items that there are, one a line, with their sum and what is available; with a word where activations are those with
    /// `checkpointing`.
    pub fn itemised(&self, checkpointing: bool) -> String {
        let there = self.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
        let sums = [("= needed", self.total()), ("available", self.available), ("- headroom", self.headroom)];
        let line = |(item, bytes): (&str, Bytes)| {
            let note = if item == "activations" && checkpointing { " (with checkpointing)" } else { "" };
            format!("  {item:<22} {bytes:>11}{note}")
        };
        there.chain(sums).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Whether training stays within the budget.
    pub fn fits(&self) -> bool {
        self.total() <= self.budget()
    }

    /// What adds up to [`total`](Self::total), named.
    pub fn items(&self) -> [(&'static str, Bytes); 13] {
        [
            ("weights", self.weights),
            ("frozen weights", self.frozen_weights),
            ("copies of weights", self.weight_copies),
            ("gradients", self.gradients),
            ("accumulated gradients", self.accumulated_gradients),
            ("optimizer state", self.optimizer_state),
            ("activations", self.activations),
            ("layer scratch", self.scratch),
            ("input batches", self.inputs),
            ("allocator reserve", self.allocator),
            ("kernels", self.kernels),
            ("device context", self.context),
            ("margin", self.margin),
        ]
    }
}

/// What was measured between steps, but no less than is known of the kernels of such models: those that spill registers take
/// more while they run, which a convnet needed 285 to 316 MiB for on an H200, and 32 were left of afterwards.
fn kernels(device: &DeviceFacts, workload: &Workload) -> Bytes {
    let derived = calibration::of(workload.family).kernels_per_sm.times(u64::from(device.sm_count));
    reference::kernels(device, workload).unwrap_or_default().max(derived)
}

fn context(device: &DeviceFacts, workload: &Workload) -> Bytes {
    reference::context(device, workload).unwrap_or(device.context)
}

/// Bytes kept for each sample, in f32.
fn activations(workload: &Workload, checkpointing: bool) -> Bytes {
    let sample = &workload.sample;
    let checkpointed = sample.checkpointed_activations.filter(|_| checkpointing);
    checkpointed.unwrap_or(sample.activations)
}

/// What the optimizer keeps on one rank.
fn optimizer_state(workload: &Workload, goal: &Goal, parameter_bytes: u64) -> Bytes {
    let each = if workload.optimizer.keeps_f32() { 4 } else { parameter_bytes };
    let whole = Bytes(workload.parameters.state(workload.optimizer)).times(each);
    let ranks = if goal.shard_optimizer { goal.world_size } else { 1 };
    Bytes(whole.0.div_ceil(ranks))
}

/// The largest allocation that CubeCL makes in one piece on a device; `None` where there is no limit.
pub fn largest_piece(device: &DeviceFacts) -> Option<Bytes> {
    (device.kind == DeviceKind::Gpu).then_some(Bytes(device.memory_total.0 / calibration::LARGEST_ALLOCATION))
}

/// The bytes of the largest parameter tensor.
pub(super) fn largest_parameter(workload: &Workload, precision: Precision) -> Bytes {
    Bytes(workload.parameters.largest).times(precision.parameter_bytes())
}

/// The largest micro-batch whose tensors are all allocated in one piece each; 0 when a parameter tensor is too large.
pub(super) fn largest_batch_in_one_piece(device: &DeviceFacts, workload: &Workload, precision: Precision) -> u64 {
    let Some(piece) = largest_piece(device) else { return u64::MAX };
    if largest_parameter(workload, precision) > piece {
        return 0;
    }
    let tensor = workload.sample.largest_tensor.unwrap_or_default().scaled(precision.activation_scale());
    piece.0.checked_div(tensor.0).unwrap_or(u64::MAX)
}

/// The weights that mixed precision computes with: all that are not packed, in 16 bits.
fn computing(workload: &Workload, precision: Precision) -> Bytes {
    let weights = Bytes(workload.parameters.trained()) + Bytes(workload.parameters.frozen);
    if precision.is_mixed() { weights.times(precision.compute_bytes()) } else { Bytes::ZERO }
}
