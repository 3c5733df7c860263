//! Changes of a run that take less memory.

use crate::device::{DeviceFacts, DeviceKind};
use crate::dims::{DimValue, DimValues};
use crate::workload::{Optimizer, Teacher, WeightFormat, Workload, WorkloadSpec};
use crate::{Goal, Precision};

/// Effect of a change, and its alternatives as keys, of which the first that fits counts.
pub(super) type Change = (&'static str, Vec<DimValues>);

/// Rank of LoRA adapters, as in PEFT's default.
const LORA_RANK: u64 = 8;

/// Returns the changes by what they cost: first those of the arithmetic, then of the model, then more GPUs.
pub(super) fn changes(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Vec<Change> {
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
