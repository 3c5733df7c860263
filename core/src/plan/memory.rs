//! Memory of a training run: item by item, each with its formula, as a function of the micro-batch.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::calibration::{self, PERSISTENT_RESERVE};
use super::measured::{self, Pools, RecordedStep};
use super::problem::Problem;
use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Bytes, Precision, Provenance, exchange, grouped};

/// Memory of a training run, item by item.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MemoryEstimate {
    /// Samples in the micro-batch of these figures.
    pub batch: u64,
    /// Parameters that training changes.
    pub weights: Bytes,
    /// Parameters that training leaves as they are, such as a teacher's; packed where that is asked for.
    pub frozen_weights: Bytes,
    /// Copies of weights: 16-bit ones of mixed precision, and those that the forward pass keeps for the backward pass.
    pub weight_copies: Bytes,
    /// A gradient for each trained parameter, in the parameter's format; in fp32 where ranks add them up.
    pub gradients: Bytes,
    /// A second set of gradients, the sum so far in fp32, when a step takes several micro-batches.
    pub accumulated_gradients: Bytes,
    /// Optimizer state; where it is sharded, that of the rank with the largest share.
    pub optimizer_state: Bytes,
    /// Packed gradients while ranks exchange them.
    #[serde(default)]
    pub exchange: Bytes,
    /// Tensors that the forward pass keeps for the backward pass.
    pub activations: Bytes,
    /// Temporary memory of the layer that needs the most.
    pub scratch: Bytes,
    /// Input batches on the device: the one in use and the ones prepared ahead.
    pub inputs: Bytes,
    /// Bytes that the allocator reserves beyond the bytes in use.
    pub allocator: Bytes,
    /// Memory that a recorded micro-step adds with CUDA graphs: its tensors, and copies of parameters.
    #[serde(default)]
    pub cuda_graph: Bytes,
    /// Loaded kernels: their code, and the stacks of all threads that could run at once.
    pub kernels: Bytes,
    /// Bytes that opening the device takes.
    pub context: Bytes,
    /// Margin by which an estimate is raised to be an upper bound; 0 for measured memory.
    #[serde(default)]
    pub margin: Bytes,
    /// Provenance of the memory pools' bytes.
    #[serde(default)]
    pub provenance: Provenance,
    /// Memory available on the device.
    pub available: Bytes,
    /// Part of the available memory that training does not use.
    pub headroom: Bytes,
}

impl MemoryEstimate {
    /// Sum of all items.
    pub fn total(&self) -> Bytes {
        self.items().into_iter().map(|(_, bytes)| bytes).sum()
    }

    /// Bytes that training may take: the available memory less the headroom.
    pub fn budget(&self) -> Bytes {
        self.available - self.headroom
    }

    /// Headroom as a fraction of the available memory, 0 to 1.
    pub fn headroom_share(&self) -> f64 {
        self.headroom.0 as f64 / self.available.0.max(1) as f64
    }

    /// Bytes that live as long as the run: weights, their copies and the optimizer state.
    pub(super) fn persistent(&self) -> Bytes {
        self.weights + self.frozen_weights + self.weight_copies + self.optimizer_state
    }

    /// Bytes that live for one step, with the share of the allocator.
    pub(super) fn transient(&self) -> Bytes {
        let step = self.gradients + self.accumulated_gradients + self.activations + self.scratch + self.inputs;
        step + self.allocator
    }

    /// Lists the items that are not zero, one a line, with their sum and the available memory. With `checkpointing`, the
    /// line of the activations mentions it.
    pub fn itemised(&self, checkpointing: bool) -> String {
        let there = self.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
        let sums = [("= needed", self.total()), ("available", self.available), ("- headroom", self.headroom)];
        let line = |(item, bytes): (&str, Bytes)| {
            let note = if item == "activations" && checkpointing { " (with checkpointing)" } else { "" };
            format!("  {item:<22} {bytes:>11}{note}")
        };
        there.chain(sums).map(line).collect::<Vec<_>>().join("\n")
    }

    /// Returns true if training stays within the budget.
    pub fn fits(&self) -> bool {
        self.total() <= self.budget()
    }

    /// The items that add up to [`total`](Self::total), by name.
    pub fn items(&self) -> [(&'static str, Bytes); 15] {
        [
            ("weights", self.weights),
            ("frozen weights", self.frozen_weights),
            ("copies of weights", self.weight_copies),
            ("gradients", self.gradients),
            ("accumulated gradients", self.accumulated_gradients),
            ("optimizer state", self.optimizer_state),
            ("gradient exchange", self.exchange),
            ("activations", self.activations),
            ("layer scratch", self.scratch),
            ("input batches", self.inputs),
            ("allocator reserve", self.allocator),
            ("CUDA graph", self.cuda_graph),
            ("kernels", self.kernels),
            ("device context", self.context),
            ("margin", self.margin),
        ]
    }

    /// Moves the estimate to a probed device, with this fraction of its memory as headroom.
    pub(super) fn move_to(&mut self, device: &DeviceFacts, workload: &Workload, headroom: f64) {
        let none = &mut Formulas::default();
        self.available = device.memory_available;
        self.headroom = device.memory_available.scaled(device.headroom_share(headroom));
        self.context = context(device, workload, none);
        self.kernels = kernels(device, workload, none);
    }
}

/// An item of the memory that training is predicted to take.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Item {
    /// Name of the item.
    pub name: &'static str,
    /// Formula of the bytes, such as `29,660 x 4 B`.
    pub formula: String,
    /// The bytes.
    pub bytes: Bytes,
    /// Provenance of the figures.
    pub provenance: Provenance,
}

/// Formulas of an estimate by the item's name, with the provenance of the figures. Each is written where the bytes are
/// computed, and only for an explanation.
#[derive(Default)]
pub(super) struct Formulas(Option<BTreeMap<&'static str, (String, Option<Provenance>)>>);

impl Formulas {
    /// Adds or replaces the formula of an item. Without a provenance the item has that of the memory pools.
    pub(super) fn add(&mut self, item: &'static str, provenance: Option<Provenance>, formula: impl FnOnce() -> String) {
        if let Some(formulas) = &mut self.0 {
            formulas.insert(item, (formula(), provenance));
        }
    }
}

/// Returns the items that are not zero, of a micro-batch which may be one of several in a step.
pub(super) fn items(problem: Problem<'_>, mode: Mode, batch: u64, accumulates: bool) -> Vec<Item> {
    let mut formulas = Formulas(Some(BTreeMap::new()));
    let estimate = MemoryModel::with_formulas(problem, mode, &mut formulas).estimate(batch, accumulates, &mut formulas);
    let mut formulas = formulas.0.unwrap_or_default();
    let taken = estimate.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
    let item = |(name, bytes)| {
        let (formula, provenance) = formulas.remove(name).expect("BUG: each item has a formula");
        Item { name, formula, bytes, provenance: provenance.unwrap_or(estimate.provenance) }
    };
    taken.map(item).collect()
}

/// Memory of a run in one mode, as a function of the micro-batch.
pub(super) struct MemoryModel<'a> {
    problem: Problem<'a>,
    mode: Mode,
    /// Items that do not depend on the micro-batch.
    fixed: MemoryEstimate,
    /// Measurements that replace the reserve and the activations.
    pools: Option<Pools<'a>>,
    /// With CUDA graphs.
    recorded: Option<RecordedStep<'a>>,
}

impl<'a> MemoryModel<'a> {
    pub(super) fn new(problem: Problem<'a>, mode: Mode) -> Self {
        Self::with_formulas(problem, mode, &mut Formulas::default())
    }

    fn with_formulas(problem: Problem<'a>, mode: Mode, formulas: &mut Formulas) -> Self {
        let Problem { device, workload, goal } = problem;
        let (parameters, precision) = (&workload.parameters, mode.precision);
        let each = precision.parameter_bytes();
        let mut by_dimensions =
            |item, formula: &dyn Fn() -> String| formulas.add(item, Some(workload.provenance), formula);

        by_dimensions("weights", &|| product(parameters.trained(), each));
        by_dimensions("frozen weights", &|| {
            let packed = format!("{} B packed", grouped(parameters.packed.0));
            let frozen = (parameters.frozen > 0).then(|| product(parameters.frozen, each));
            sum([frozen, (parameters.packed > Bytes::ZERO).then_some(packed)])
        });
        let copies = if mode.checkpointing { parameters.copies_checkpointed } else { parameters.copies };
        // Mixed precision computes with 16-bit copies of all weights that are not packed.
        let computing = if precision.is_mixed() { parameters.trained().saturating_add(parameters.frozen) } else { 0 };
        by_dimensions("copies of weights", &|| {
            let kept = (copies > 0 || !precision.is_mixed()).then(|| product(copies, precision.compute_bytes()));
            let computing = product(computing, precision.compute_bytes()) + " to compute with";
            sum([kept, precision.is_mixed().then_some(computing)])
        });
        let ranks = if goal.shard_optimizer { goal.world_size } else { 1 };
        let state = exchange::largest_shard(parameters, workload.optimizer, ranks);
        let state_bytes = if workload.optimizer.keeps_f32() { 4 } else { each };
        by_dimensions("optimizer state", &|| {
            let shared = if ranks > 1 { " on the rank with the most" } else { "" };
            product(state, state_bytes) + shared
        });
        let exchange = exchange::buffers(parameters, goal.world_size, Precision::SUM_BYTES);
        by_dimensions("gradient exchange", &|| format!("2 x {} B of packed gradients", grouped(exchange.0 / 2)));

        let fixed = MemoryEstimate {
            weights: Bytes(parameters.trained()).times(each),
            frozen_weights: Bytes(parameters.frozen).times(each) + parameters.packed,
            weight_copies: Bytes(copies).times(precision.compute_bytes())
                + Bytes(computing).times(precision.compute_bytes()),
            optimizer_state: Bytes(state).times(state_bytes),
            exchange,
            kernels: kernels(device, workload, formulas),
            context: context(device, workload, formulas),
            available: device.memory_available,
            headroom: device.memory_available.scaled(device.headroom_share(goal.memory_headroom)),
            provenance: workload.provenance,
            ..MemoryEstimate::default()
        };
        let widening = gradient_bytes(problem, precision, false) - each;
        let widened = Bytes(parameters.trained()).times(widening);
        let elsewhere = Bytes(parameters.state(workload.optimizer)).times(state_bytes) - fixed.optimizer_state;
        Self {
            problem,
            mode,
            fixed,
            pools: Pools::new(device, workload, mode.with_graphs(false), widened, elsewhere),
            recorded: mode.cuda_graphs.then(|| RecordedStep::new(device, workload, mode)),
        }
    }

    /// Returns true if the memory pools' bytes were measured.
    pub(super) const fn is_measured(&self) -> bool {
        self.pools.is_some()
    }

    /// Returns the bytes at a micro-batch of `batch`, which may be one of several in a step.
    pub(super) fn at(&self, batch: u64, accumulates: bool) -> MemoryEstimate {
        self.estimate(batch, accumulates, &mut Formulas::default())
    }

    fn estimate(&self, batch: u64, accumulates: bool, formulas: &mut Formulas) -> MemoryEstimate {
        let (Problem { device, workload, .. }, precision) = (self.problem, self.mode.precision);
        let (sample, trained) = (&workload.sample, workload.parameters.trained());
        let mut by_dimensions =
            |item, formula: &dyn Fn() -> String| formulas.add(item, Some(workload.provenance), formula);

        let scale = precision.activation_scale();
        let of_samples = |bytes: Bytes| bytes.times(batch).scaled(scale);
        let samples = |bytes: Bytes| {
            let scaled = if scale < 1.0 { format!(" x {scale}") } else { String::new() };
            format!("{} x {} B{scaled}", grouped(batch), grouped(bytes.0))
        };
        let checkpointed = sample.checkpointed_activations.filter(|_| self.mode.checkpointing);
        let kept = checkpointed.unwrap_or(sample.activations);
        by_dimensions("activations", &|| samples(kept));
        by_dimensions("layer scratch", &|| samples(sample.scratch));

        let each = gradient_bytes(self.problem, precision, accumulates);
        by_dimensions("gradients", &|| product(trained, each));
        let sums = if accumulates { Bytes(trained).times(Precision::SUM_BYTES) } else { Bytes::ZERO };
        by_dimensions("accumulated gradients", &|| product(trained, Precision::SUM_BYTES));

        let input = sample.input.unwrap_or_default();
        let queued = prefetch_depth(self.problem, batch).saturating_add(1);
        by_dimensions("input batches", &|| format!("{queued} batches x {} x {} B", grouped(batch), grouped(input.0)));

        let mut estimate = MemoryEstimate {
            batch,
            gradients: Bytes(trained).times(each),
            accumulated_gradients: sums,
            activations: of_samples(kept),
            scratch: of_samples(sample.scratch),
            inputs: input.times(batch).times(queued),
            ..self.fixed.clone()
        };
        if let Some(pools) = &self.pools {
            pools.apply(&mut estimate, input.times(batch), accumulates, formulas);
        } else {
            estimate.allocator = reserve(device, workload, precision, &estimate, formulas);
        }
        if let Some(recorded) = &self.recorded {
            let pools = self.pools.as_ref().map(|pools| pools.reserved(batch, accumulates));
            recorded.add_to(&mut estimate, pools, accumulates, formulas);
        }
        estimate
    }
}

/// Bytes that the allocator reserves beyond the bytes in use: for memory that lives for a step, or for the loss and its
/// gradient where they take more, and for memory that lives as long as the run.
fn reserve(
    device: &DeviceFacts,
    workload: &Workload,
    precision: Precision,
    estimate: &MemoryEstimate,
    formulas: &mut Formulas,
) -> Bytes {
    let factor = calibration::for_family(workload.family).reserve(device.kind);
    let step = estimate.gradients + estimate.activations + estimate.accumulated_gradients + estimate.inputs;
    let (run, pools) = (estimate.persistent(), calibration::pools(device.kind));
    let logits = workload.sample.logits.times(estimate.batch).scaled(precision.activation_scale());
    let tensors = calibration::loss_tensors(device.kind, precision, workload.sample.words);
    let (of_step, of_loss) = (step.scaled(factor - 1.0), logits.scaled(tensors));
    formulas.add("allocator reserve", Some(Provenance::Derived), || {
        let share = |factor: f64, bytes, what| format!("{factor:.2} x {} {what}", mib(bytes));
        sum([
            Some(if of_loss > of_step {
                share(tensors, logits, "of logits, for the loss")
            } else {
                share(factor - 1.0, step, "of a step")
            }),
            Some(share(PERSISTENT_RESERVE - 1.0, run, "of the run")),
            (pools > Bytes::ZERO).then(|| format!("{pools} of pools")),
        ])
    });
    of_step.max(of_loss) + run.scaled(PERSISTENT_RESERVE - 1.0) + pools
}

/// Measured bytes of kernels, and at least the calibrated ones: kernels that spill registers take more while they run.
/// A convnet needed 285 to 316 MiB for them on an H200, of which 32 MiB were left between steps.
fn kernels(device: &DeviceFacts, workload: &Workload, formulas: &mut Formulas) -> Bytes {
    let each = calibration::for_family(workload.family).kernels_per_sm;
    let derived = each.times(u64::from(device.sm_count));
    let Some((bytes, name, on)) = measured::kernels(device, workload).filter(|(bytes, ..)| *bytes > derived) else {
        formulas.add("kernels", Some(Provenance::Derived), || format!("{} SMs x {each}", device.sm_count));
        return derived;
    };
    if device.matches(name, on) {
        formulas.add("kernels", Some(Provenance::Measured), || format!("loaded on {name}"));
    } else {
        formulas.add("kernels", Some(Provenance::Transferred), || {
            let there = mib(on.kernels_bytes.unwrap_or_default());
            format!("{there} on {name} x {} / {} SMs", device.sm_count, on.sm_count)
        });
    }
    bytes
}

/// Measured bytes of the device's context, else those of its facts.
fn context(device: &DeviceFacts, workload: &Workload, formulas: &mut Formulas) -> Bytes {
    let measured = measured::context(device, workload);
    let provenance = if measured.is_some() { Provenance::Measured } else { Provenance::Derived };
    formulas.add("device context", Some(provenance), || "before the first tensor".to_owned());
    measured.unwrap_or(device.context)
}

/// Bytes of one value of a gradient: as the backward pass returns it, or in the fp32 sum over ranks. A step that accumulates
/// has both: the gradients of a micro-batch, and their sum.
pub(super) const fn gradient_bytes(problem: Problem<'_>, precision: Precision, accumulates: bool) -> u64 {
    if problem.goal.world_size > 1 && !accumulates { Precision::SUM_BYTES } else { precision.parameter_bytes() }
}

/// Batches prepared ahead: one being uploaded while one waits.
pub(super) const PREFETCH_DEPTH: u64 = 2;

/// Returns the pinned depth, else as many batches as the goal's memory allows, at most [`PREFETCH_DEPTH`].
pub(super) fn prefetch_depth(problem: Problem<'_>, batch: u64) -> u64 {
    let Problem { workload, goal, .. } = problem;
    if let Some(fixed) = goal.pins.prefetch_depth {
        return fixed;
    }
    let bytes = workload.sample.input.unwrap_or_default().times(batch);
    let budget = Bytes::from_mib(goal.prefetch_mib);
    budget.0.checked_div(bytes.0).unwrap_or(PREFETCH_DEPTH).clamp(1, PREFETCH_DEPTH)
}

/// Largest micro-batch at which [`prefetch_depth`] is [`PREFETCH_DEPTH`]; `None` when it does not depend on the micro-batch.
pub(super) fn largest_at_full_depth(problem: Problem<'_>) -> Option<u64> {
    let Problem { workload, goal, .. } = problem;
    let bytes = workload.sample.input.unwrap_or_default().times(PREFETCH_DEPTH);
    let largest = Bytes::from_mib(goal.prefetch_mib).0.checked_div(bytes.0);
    largest.filter(|_| goal.pins.prefetch_depth.is_none())
}

/// Largest allocation that CubeCL makes in one piece on a device; `None` where there is no limit.
pub fn largest_piece(device: &DeviceFacts) -> Option<Bytes> {
    (device.kind == DeviceKind::Gpu).then_some(Bytes(device.memory_total.0 / calibration::LARGEST_ALLOCATION))
}

/// Bytes of the largest parameter tensor.
pub(super) fn largest_parameter(workload: &Workload, precision: Precision) -> Bytes {
    Bytes(workload.parameters.largest).times(precision.parameter_bytes())
}

/// Largest micro-batch whose tensors are all allocated in one piece each; 0 when a parameter tensor is too large.
pub(super) fn largest_batch_in_one_piece(device: &DeviceFacts, workload: &Workload, precision: Precision) -> u64 {
    let Some(piece) = largest_piece(device) else { return u64::MAX };
    if largest_parameter(workload, precision) > piece {
        return 0;
    }
    let tensor = workload.sample.largest_tensor.unwrap_or_default().scaled(precision.activation_scale());
    piece.0.checked_div(tensor.0).unwrap_or(u64::MAX)
}

pub(super) fn mib(bytes: Bytes) -> String {
    format!("{:.1} MiB", bytes.mib())
}

fn product(values: u64, each: u64) -> String {
    format!("{} x {each} B", grouped(values))
}

fn sum<const N: usize>(terms: [Option<String>; N]) -> String {
    terms.into_iter().flatten().collect::<Vec<_>>().join(" + ")
}
