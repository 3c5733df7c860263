//! Changes that make a workload fit, each planned again.

use super::changes::changes;
use super::error::PlanError;
use super::larger_gpu::larger_gpu;
use super::least::Least;
use super::limits::{self, largest_batch_in_one_piece};
use super::misfit::{Misfit, Remedy, TooLarge};
use super::{fits, plan};
use crate::device::DeviceFacts;
use crate::dims::{self, DimValue, DimValues, Schema};
use crate::workload::{ModelSpec, Training, Workload, WorkloadSpec};
use crate::{Bytes, Goal, Pins, Precision};

/// Itemises the micro-batch that needs the least memory, and lists the changes that make the workload fit.
pub(super) fn explain_misfit(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    precision: Precision,
) -> Result<Misfit, PlanError> {
    let Least { mode, split, memory } = Least::find(device, workload, &goal.in_samples(workload)?, Some(precision))?;
    let mut remedies: Vec<_> = unpinned(device, workload, goal).into_iter().collect();
    let mut offered: Vec<DimValues> = Vec::new();
    for (effect, alternatives) in changes(device, workload, goal) {
        // Of a change that fits, no combination with others is offered.
        let is_new = |keys: &DimValues| !offered.iter().any(|part| part.keys().all(|key| keys.contains_key(key)));
        let planned = |keys: DimValues| {
            let (workload, goal) = changed(workload, goal, &keys)?;
            Some((needed(device, &workload, &goal)?, keys))
        };
        if let Some((needed, keys)) = alternatives.into_iter().filter(is_new).find_map(planned) {
            remedies.push(Remedy::Keys { keys: written(&keys), effect, needed });
            offered.push(keys);
        }
    }
    let larger = larger_gpu(device, workload, goal);
    let whole_batch = goal.whole_batch_loss;
    let is_needed = remedies.is_empty() || !matches!(larger, Remedy::LargerGpu { profile: None, .. });
    remedies.extend(is_needed.then_some(larger));
    remedies.extend(whole_batch.then_some(Remedy::CacheEmbeddings));
    Ok(Misfit {
        device: device.name.clone(),
        memory,
        checkpointing: mode.checkpointing,
        too_large: too_large(device, workload, precision, split.batch),
        whole_batch,
        remedies,
    })
}

/// Memory of the plan; `None` if the workload does not fit.
fn needed(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Option<Bytes> {
    let planned = fits(device, workload, goal).then(|| plan(device, workload, goal));
    planned?.ok().map(|plan| plan.memory.total())
}

/// Returns the smallest set of pinned settings whose release makes the workload fit.
fn unpinned(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Option<Remedy> {
    let recomputed = Pins { gradient_checkpointing: None, ..goal.pins.clone() };
    let changes = [
        (goal.pins.gradient_checkpointing == Some(false), "allow activation checkpointing", recomputed),
        (!goal.pins.is_empty(), "leave the fixed settings to the planner", Pins::default()),
    ];
    changes.into_iter().filter(|(is_open, ..)| *is_open).find_map(|(_, change, pins)| {
        let needed = needed(device, workload, &Goal { pins, ..goal.clone() })?;
        Some(Remedy::Unpin { change, needed })
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

/// Returns the tensor that cannot be allocated in one piece at this micro-batch, if there is one.
fn too_large(device: &DeviceFacts, workload: &Workload, precision: Precision, batch: u64) -> Option<TooLarge> {
    let most = limits::largest_piece(device)?;
    let bytes = limits::largest_parameter(workload, precision);
    if bytes > most {
        return Some(TooLarge::Parameter { bytes, most });
    }
    let largest = largest_batch_in_one_piece(device, workload, precision);
    (largest < batch).then_some(TooLarge::Activation { batch: largest })
}
