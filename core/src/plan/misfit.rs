//! A workload that does not fit a device: its memory, and the changes that make it fit, each planned again.

use core::cmp::Reverse;
use core::fmt;

use serde::Serialize;

use super::memory::{MemoryEstimate, largest_batch_in_one_piece, largest_parameter, largest_piece};
use super::problem::{CACHED_EMBEDDINGS, Problem};
use super::search::{Candidate, least_memory};
use super::{fits, plan};
use crate::device::{DeviceFacts, DeviceKind, ProductLine};
use crate::dims::{self, DimValue, DimValues, Schema};
use crate::profile::{Profile, ProfileId, ProfileTable};
use crate::workload::{ModelSpec, Optimizer, Teacher, Training, WeightFormat, Workload, WorkloadSpec};
use crate::{Bytes, Goal, Pins, Precision};

/// A workload that does not fit a device, with every byte itemised.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Misfit {
    /// Name of the device.
    pub device: String,
    /// Memory of the micro-batch that needs the least.
    pub memory: MemoryEstimate,
    /// True if the figures are with activation checkpointing.
    pub checkpointing: bool,
    /// Tensor that is too large to be allocated in one piece, if that is the cause.
    pub too_large: Option<TooLarge>,
    /// True if the step cannot be cut into micro-batches, because its loss is over the whole batch.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub whole_batch: bool,
    /// Changes that make the workload fit, cheapest first; at least one.
    pub remedies: Vec<Remedy>,
}

/// A tensor that is too large to be allocated in one piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TooLarge {
    /// A parameter tensor.
    Parameter {
        /// Bytes of the tensor.
        bytes: Bytes,
        /// Largest allocation of the device in one piece.
        most: Bytes,
    },
    /// The largest tensor of a micro-batch.
    Activation {
        /// The largest micro-batch for which it can be allocated.
        batch: u64,
    },
}

/// A change that makes a workload fit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Remedy {
    /// Leave pinned settings to the planner.
    Unpin {
        /// The change.
        change: &'static str,
        /// Memory of the plan, in bytes.
        needed: Bytes,
    },
    /// Set keys of the goal, of the training method or of the model.
    Keys {
        /// The keys with their values, as in an attribute.
        keys: String,
        /// Effect of the change.
        effect: &'static str,
        /// Memory of the plan, in bytes.
        needed: Bytes,
    },
    /// Compute a loss over the whole batch from cached embeddings.
    CacheEmbeddings,
    /// Train on another GPU of this machine.
    TakeGpu {
        /// Number of the GPU in CUDA's order.
        position: usize,
        /// Name of the GPU.
        gpu: String,
        /// Free memory of the GPU.
        free: Bytes,
    },
    /// Free the memory of a GPU of this machine.
    FreeGpu {
        /// Number of the GPU in CUDA's order.
        position: usize,
        /// Name of the GPU.
        gpu: String,
        /// Free memory of the GPU.
        free: Bytes,
        /// Memory of the GPU that this process may take at most.
        total: Bytes,
    },
    /// Raise a limit of this process.
    RaiseLimit {
        /// Name of the limit, such as that of a variable.
        name: String,
        /// The limit.
        limit: Bytes,
    },
    /// Use a GPU with more memory.
    LargerGpu {
        /// Memory that is needed, headroom included.
        needed: Bytes,
        /// Memory of the plan.
        without_headroom: Bytes,
        /// Smallest shipped profile of the same kind that fits, or of any board without one.
        profile: Option<String>,
    },
}

/// Why a step is not cut into micro-batches.
const UNCUT: &str = "whole_batch_loss: the step is not cut, because parts of the batch have another loss";

impl Misfit {
    /// Describes the missing memory and the cheapest remedy, without the items.
    pub fn in_one_line(&self) -> String {
        let remedy = self.remedies.first().map_or_else(String::new, |remedy| format!("; {remedy}"));
        self.causes() + &remedy
    }

    /// Describes the missing memory, without remedies.
    pub fn causes(&self) -> String {
        let missing = self.memory.total() - self.memory.budget();
        let missing = (missing > Bytes::ZERO).then(|| format!("{missing} too much at batch {}", self.memory.batch));
        let too_large = self.too_large.as_ref().map(ToString::to_string);
        let uncut = self.whole_batch.then(|| UNCUT.to_owned());
        let what: Vec<_> = missing.into_iter().chain(too_large).chain(uncut).collect();
        format!("does not fit: {}", what.join("; "))
    }

    /// Lists the remedies, one a line.
    pub(super) fn help(&self) -> String {
        self.remedies.iter().map(|remedy| format!("\n  help: {remedy}")).collect()
    }
}

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Parameter { bytes, most } => {
                write!(f, "the largest parameter tensor has {bytes}, at most {most} are allocated in one piece")
            }
            Self::Activation { batch: 0 } => write!(f, "its largest tensor cannot be allocated in one piece"),
            Self::Activation { batch } => {
                write!(f, "the largest tensor cannot be allocated in one piece above batch size {batch}")
            }
        }
    }
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unpin { change, needed } => write!(f, "{change}, which needs {needed}"),
            Self::Keys { keys, effect, needed } => write!(f, "set {keys}, which needs {needed} ({effect})"),
            Self::CacheEmbeddings => f.write_str(CACHED_EMBEDDINGS),
            Self::TakeGpu { position, gpu, free } => {
                write!(f, "take GPU {position} ({gpu}), which has {free} free: there it fits")
            }
            Self::FreeGpu { position, gpu, free, total } => {
                write!(
                    f,
                    "free the memory of GPU {position} ({gpu}), of which {free} of {total} are free: then it fits"
                )
            }
            Self::RaiseLimit { name, limit } => {
                write!(f, "raise the limit {name}, which allows this process {limit}: then it fits")
            }
            Self::LargerGpu { needed, profile: Some(profile), .. } => {
                write!(f, "use a GPU with {needed}, such as `{profile}`")
            }
            Self::LargerGpu { needed, without_headroom, profile: None } => write!(
                f,
                "use a smaller model: it needs {without_headroom}, which takes a GPU with {needed}, and no GPU with a profile has that"
            ),
        }
    }
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "does not fit {} at batch size {}:", self.device, self.memory.batch)?;
        f.write_str(&self.memory.itemised(self.checkpointing))?;
        if let Some(too_large) = &self.too_large {
            write!(f, "\n  {too_large}")?;
        }
        if self.whole_batch { write!(f, "\n  {UNCUT}") } else { Ok(()) }
    }
}

/// Itemises the micro-batch that needs the least memory, and lists the changes that make the workload fit.
pub(super) fn explain(asked: Problem<'_>, least: &Candidate) -> Misfit {
    let Problem { device, workload, goal } = asked;
    let mut remedies: Vec<_> = unpinned(asked).into_iter().collect();
    let mut offered: Vec<DimValues> = Vec::new();
    for (effect, alternatives) in changes(asked) {
        // Of a change that fits, no combination with others is offered.
        let is_new = |keys: &DimValues| !offered.iter().any(|part| part.keys().all(|key| keys.contains_key(key)));
        let planned = |keys: DimValues| {
            let (workload, goal) = changed(workload, goal, &keys)?;
            Some((needed(Problem { device, workload: &workload, goal: &goal })?, keys))
        };
        if let Some((needed, keys)) = alternatives.into_iter().filter(is_new).find_map(planned) {
            remedies.push(Remedy::Keys { keys: written(&keys), effect, needed });
            offered.push(keys);
        }
    }
    let larger = larger_gpu(asked);
    let whole_batch = goal.whole_batch_loss;
    let is_needed = remedies.is_empty() || !matches!(larger, Remedy::LargerGpu { profile: None, .. });
    remedies.extend(is_needed.then_some(larger));
    remedies.extend(whole_batch.then_some(Remedy::CacheEmbeddings));
    Misfit {
        device: device.name.clone(),
        memory: least.memory.clone(),
        checkpointing: least.mode.checkpointing,
        too_large: too_large(device, workload, least),
        whole_batch,
        remedies,
    }
}

/// Memory of the plan; `None` if the workload does not fit.
fn needed(Problem { device, workload, goal }: Problem<'_>) -> Option<Bytes> {
    let planned = fits(device, workload, goal).then(|| plan(device, workload, goal));
    planned?.ok().map(|plan| plan.memory.total())
}

/// Returns the smallest set of pinned settings whose release makes the workload fit.
fn unpinned(asked: Problem<'_>) -> Option<Remedy> {
    let pinned = &asked.goal.pins;
    let recomputed = Pins { gradient_checkpointing: None, ..pinned.clone() };
    let changes = [
        (pinned.gradient_checkpointing == Some(false), "allow activation checkpointing", recomputed),
        (!pinned.is_empty(), "leave the fixed settings to the planner", Pins::default()),
    ];
    changes.into_iter().filter(|(is_open, ..)| *is_open).find_map(|(_, change, pins)| {
        let goal = Goal { pins, ..asked.goal.clone() };
        Some(Remedy::Unpin { change, needed: needed(Problem { goal: &goal, ..asked })? })
    })
}

/// Returns the workload and the goal with these keys; `None` if they contradict the others.
fn changed(workload: &Workload, goal: &Goal, keys: &DimValues) -> Option<(Workload, Goal)> {
    let over = |dims: &[dims::Dim], mut values: DimValues| {
        values.extend(
            keys.iter().filter(|(key, _)| dims::named(dims, key).is_some()).map(|(key, value)| (*key, value.clone())),
        );
        values
    };
    let pins = Pins { precision: goal.pins.precision.filter(|_| !keys.contains_key("precision")), ..goal.pins.clone() };
    let goal = Goal { pins, ..Goal::from_values(&over(Goal::DIMS, goal.values())) };
    let WorkloadSpec { model, training } = &workload.spec;
    let kind = model.kind();
    let optimizer = ("optimizer", DimValue::Choice(workload.optimizer.name().to_owned()));
    let present = training.values().into_iter().chain([optimizer]).collect();
    let spec = WorkloadSpec {
        model: ModelSpec::from_values(kind, &over(kind.dims, model.values())),
        training: Training::from_values(&over(Training::DIMS, present)),
    };
    // Measurements are of one model. Its optimizer may be another one.
    let optimizer = spec.training.optimizer;
    let of_model =
        WorkloadSpec { training: Training { optimizer: training.optimizer, ..spec.training.clone() }, ..spec.clone() };
    let is_same = of_model == workload.spec;
    let workload = if is_same { Workload { optimizer, ..workload.clone() } } else { spec.workload() };
    spec.mistakes().is_empty().then_some((workload, goal))
}

/// Writes keys as in an attribute: `optimizer = "sgd"`.
fn written(keys: &DimValues) -> String {
    keys.iter().map(|(key, value)| format!("{key} = {value}")).collect::<Vec<_>>().join(", ")
}

/// Returns the tensor that cannot be allocated in one piece, if there is one.
fn too_large(device: &DeviceFacts, workload: &Workload, candidate: &Candidate) -> Option<TooLarge> {
    let (most, precision) = (largest_piece(device)?, candidate.mode.precision);
    let bytes = largest_parameter(workload, precision);
    if bytes > most {
        return Some(TooLarge::Parameter { bytes, most });
    }
    let largest = largest_batch_in_one_piece(device, workload, precision);
    (largest < candidate.split.batch).then_some(TooLarge::Activation { batch: largest })
}

/// Effect of a change, and its alternatives as keys, of which the first that fits counts.
type Change = (&'static str, Vec<DimValues>);

/// Rank of LoRA adapters, as in PEFT's default.
const LORA_RANK: u64 = 8;

/// Returns the changes by what they cost: first those of the arithmetic, then of the model, then more GPUs.
fn changes(asked: Problem<'_>) -> Vec<Change> {
    let Problem { device, workload, goal } = asked;
    let WorkloadSpec { model, training } = &workload.spec;
    let shard = one("shard_optimizer", DimValue::Flag(true));
    let has_shards = goal.shard_optimizer || device.kind == DeviceKind::Cpu;
    let ranks = [2, 4, 8].map(|ranks| one("world_size", DimValue::Count(ranks)));
    let precision = |precision: Option<Precision>| precision.map(|it| choice("precision", it.name()));
    let mixed = precision(device.mixed_precision().filter(|_| !goal.plans_precision()));
    let bf16 = precision(device.has_bf16.then_some(Precision::Bf16Params));
    let or_bf16 = |changes: &[DimValues]| [changes, &pairs(changes, bf16.as_slice())].concat();
    let state = |optimizer| workload.parameters.state(optimizer);
    let lighter = [Optimizer::Adafactor, Optimizer::Momentum, Optimizer::Sgd].into_iter();
    let lighter = lighter.filter(|optimizer| state(*optimizer) < state(workload.optimizer));
    let freezes = training.lora_rank.is_some() || training.frozen_parameters > 0;
    let packed = |key| [WeightFormat::Q8, WeightFormat::Q4].map(|format| choice(key, format.name()));
    let rank = [one("lora_rank", DimValue::Count(LORA_RANK))];
    let adapters = [&rank[..], &pairs(&rank, &packed("frozen_weights"))].concat();
    let shorter: Vec<_> = match model.values().get("seq") {
        Some(DimValue::Count(seq @ 8..)) => {
            (1..8).rev().map(|eighths| one("seq", DimValue::Count(seq * eighths / 8))).collect()
        }
        _ => vec![],
    };
    let shorter_adapters = pairs(&or_bf16(&adapters), &shorter);
    let is_alone = goal.world_size == 1;
    [
        (!has_shards && !is_alone, "ranks share the optimizer's state", vec![shard.clone()]),
        (true, "16-bit arithmetic, weights in fp32", mixed.into_iter().collect()),
        (true, "weights, gradients and optimizer state in bf16", bf16.iter().cloned().collect()),
        (true, "less optimizer state", lighter.map(|optimizer| choice("optimizer", optimizer.name())).collect()),
        (freezes, "frozen weights packed", or_bf16(&packed("frozen_weights"))),
        (training.teacher != Teacher::None, "teacher packed", packed("teacher_weights").into()),
        (goal.whole_batch_loss, "fewer samples in the loss", smaller_steps(workload, goal)),
        (true, "shorter sequences", shorter),
        (!freezes, "trains LoRA adapters only", or_bf16(&adapters)),
        (!freezes, "LoRA adapters only, on shorter sequences", shorter_adapters),
        (!has_shards && is_alone, "on each GPU; they share the optimizer's state", pairs(&[shard], &ranks)),
    ]
    .into_iter()
    .filter_map(|(is_open, effect, alternatives)| is_open.then_some((effect, alternatives)))
    .collect()
}

/// Smaller steps of a loss over the whole batch: four sizes from each half to the next.
fn smaller_steps(workload: &Workload, goal: &Goal) -> Vec<DimValues> {
    let samples = goal.in_samples(workload).ok().and_then(|goal| goal.global_batch).unwrap_or(1);
    let eighths = [7, 6, 5, 4].map(|eighths| samples.saturating_mul(eighths) / 8);
    let sizes = (0..samples.ilog2()).flat_map(|halvings| eighths.map(|size| size >> halvings));
    let step = |size: u64| match goal.global_tokens {
        Some(tokens) => one("global_tokens", DimValue::Count(tokens / samples * size)),
        None => one("global_batch", DimValue::Count(size)),
    };
    sizes.map(step).collect()
}

fn one(key: &'static str, value: DimValue) -> DimValues {
    [(key, value)].into()
}

fn choice(key: &'static str, name: &str) -> DimValues {
    one(key, DimValue::Choice(name.to_owned()))
}

/// Joins each of some changes with each of others.
fn pairs(some: &[DimValues], others: &[DimValues]) -> Vec<DimValues> {
    let both = |one: &DimValues, other: &DimValues| one.clone().into_iter().chain(other.clone()).collect();
    some.iter().flat_map(|one| others.iter().map(|other| both(one, other)).collect::<Vec<_>>()).collect()
}

/// Returns the smallest shipped GPU that fits the workload: one of the device's kind, else a board for desktops or
/// workstations, else one for data centers.
fn larger_gpu(asked: Problem<'_>) -> Remedy {
    let Problem { device, workload, goal } = asked;
    let shipped = ProfileTable::builtin();
    let own = device.profile.as_deref().and_then(|id| shipped.get(id)).map(Kind::new);
    let preferences = [own.as_slice(), &[Kind::Desktop, Kind::Workstation], &[Kind::DataCenter]];
    let smallest = |kinds: &[Kind]| {
        let gpus = shipped.iter().filter(|profile| is_sold(profile) && kinds.contains(&Kind::new(profile)));
        let fitting = gpus.map(|profile| (profile, DeviceFacts::nominal(profile)));
        let fitting = fitting.filter(|(_, facts)| fits(facts, workload, goal));
        // The newest of the smallest.
        let order = |(profile, _): &(&Profile, _)| (profile.memory.nominal_mib, Reverse(profile.compute_capability));
        fitting.min_by_key(order).map(|(_, facts)| facts)
    };
    let smallest = preferences.into_iter().find_map(smallest);
    // Memory on that GPU: kernels take more on one with more multiprocessors.
    let facts = smallest.as_ref().unwrap_or(device);
    let least =
        goal.in_samples(workload).and_then(|goal| least_memory(Problem { device: facts, workload, goal: &goal }));
    let without_headroom = least.map(|least| least.memory.total()).unwrap_or_default();
    let needed = without_headroom.scaled(1.0 / (1.0 - facts.headroom_share(goal.memory_headroom)));
    Remedy::LargerGpu { needed, without_headroom, profile: smallest.map(|facts| facts.name) }
}

/// Profiles of GPUs that are sold in China alone.
pub(super) const SOLD_IN_CHINA: [&str; 14] = [
    "a800-40gb-active",
    "a800-pcie-80gb",
    "a800-sxm4-80gb",
    "h20-141gb",
    "h20-96gb",
    "h800-pcie",
    "h800-sxm5",
    "l2",
    "l20",
    "rtx4090-d",
    "rtx5090-d",
    "rtx5090-d-v2",
    "rtx5880-ada",
    "rtx6000d",
];

/// Returns true for a GPU that most users can buy or rent, and that Burn trains on.
fn is_sold(profile: &Profile) -> bool {
    let id = profile.id.as_str();
    let is_product = id != ProfileId::GENERIC && !profile.modified && !SOLD_IN_CHINA.contains(&id);
    is_product && profile.compute_capability.refusal().is_none()
}

/// Machine that a GPU is made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Desktop,
    Laptop,
    Workstation,
    DataCenter,
    /// Jetson modules, and others that share the host's memory.
    Integrated,
}

impl Kind {
    fn new(profile: &Profile) -> Self {
        let name = profile.names.first().map_or("", String::as_str);
        match ProductLine::new(Some(name), profile.compute_capability) {
            Some(ProductLine::Laptop) => Self::Laptop,
            Some(ProductLine::Integrated) => Self::Integrated,
            Some(ProductLine::GeForce) => Self::Desktop,
            _ if name.contains("Server") => Self::DataCenter,
            _ if ["RTX", "Quadro"].iter().any(|word| name.contains(word)) => Self::Workstation,
            _ => Self::DataCenter,
        }
    }
}
