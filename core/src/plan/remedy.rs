//! Search for the smallest memory of a workload that does not fit, and for the cheapest remedy.

use super::choice::Choice;
use super::error::PlanError;
use super::estimate::MemoryEstimate;
use super::limits::{self, largest_batch_in_one_piece};
use super::memory::MemoryModel;
use super::misfit::{Misfit, Remedy, TooLarge};
use super::split::{self, Split};
use super::{candidates, precision};
use crate::device::DeviceFacts;
use crate::measured::Mode;
use crate::profile::{Profile, ProfileId, ProfileTable};
use crate::workload::{Optimizer, Workload};
use crate::{Goal, Pins, Precision};

/// Itemises the micro-batch that needs the least memory, and finds the cheapest change that makes the workload fit.
pub(super) fn explain_misfit(
    device: &DeviceFacts,
    workload: &Workload,
    goal: &Goal,
    precision: Precision,
) -> Result<Misfit, PlanError> {
    let splits = split::splits(device, workload, goal)?;
    let modes = candidates::modes(device, workload, goal, precision);
    let Least { mode, split, memory } = Least::find(device, workload, goal, &modes, &splits);
    let remedy = cheaper_change(device, workload, goal, precision);
    Ok(Misfit {
        device: device.name.clone(),
        memory,
        checkpointing: mode.checkpointing,
        too_large: too_large(device, workload, precision, split.batch),
        remedy: remedy.unwrap_or_else(|| larger_gpu(device, workload, goal, &splits)),
    })
}

/// Returns the first change of the run that makes it fit, the smallest change first.
fn cheaper_change(device: &DeviceFacts, workload: &Workload, goal: &Goal, precision: Precision) -> Option<Remedy> {
    let fits = |workload: &Workload, goal: &Goal| Choice::exists(device, workload, goal, precision);
    let with = |pins: Pins| Goal { pins, ..goal.clone() };
    let unpinned = Pins { gradient_checkpointing: None, ..goal.pins.clone() };
    if goal.pins.gradient_checkpointing == Some(false) && fits(workload, &with(unpinned)) {
        return Some(Remedy::Checkpointing);
    }
    if !goal.pins.is_empty() && fits(workload, &with(Pins::default())) {
        return Some(Remedy::Unpin);
    }
    let has_bf16 = precision != Precision::Bf16Params && device.has_bf16;
    if has_bf16 && Choice::exists(device, workload, goal, Precision::Bf16Params) {
        return Some(Remedy::Bf16Params);
    }
    let state = |optimizer| workload.parameters.state(optimizer);
    let lighter = [Optimizer::Adafactor, Optimizer::Momentum, Optimizer::Sgd].into_iter();
    let mut lighter = lighter.filter(|optimizer| state(*optimizer) < state(workload.optimizer));
    let optimizer = lighter.find(|optimizer| fits(&Workload { optimizer: *optimizer, ..workload.clone() }, goal));
    optimizer.map(Remedy::Optimizer)
}

/// Returns the smallest shipped GPU that fits the workload, each in the precisions that the goal allows on it.
fn larger_gpu(device: &DeviceFacts, workload: &Workload, goal: &Goal, splits: &[Split]) -> Remedy {
    let modes = |facts: &DeviceFacts| -> Vec<Mode> {
        let precisions = precision::supported(facts, goal).unwrap_or_default().into_iter();
        precisions.flat_map(|precision| candidates::modes(facts, workload, goal, precision)).collect()
    };
    let fits = |facts: &DeviceFacts, mode: Mode| {
        let in_one_piece = largest_batch_in_one_piece(facts, workload, mode.precision);
        candidates::any_fits(splits, &MemoryModel::new(facts, workload, goal, mode), in_one_piece)
    };
    let mut gpus: Vec<DeviceFacts> =
        ProfileTable::builtin().iter().filter(|profile| is_advisable(profile)).map(DeviceFacts::nominal).collect();
    gpus.sort_by_key(|facts| facts.memory_available);
    let smallest = gpus.into_iter().find(|facts| modes(facts).into_iter().any(|mode| fits(facts, mode)));
    // Memory on that GPU: kernels take more on one with more multiprocessors.
    let facts = smallest.as_ref().unwrap_or(device);
    let Least { memory, .. } = Least::find(facts, workload, goal, &modes(facts), splits);
    let needed = memory.total().scaled(1.0 / (1.0 - facts.headroom_share(goal.memory_headroom)));
    Remedy::LargerGpu { needed, profile: smallest.map(|facts| facts.name) }
}

/// Returns true for a GPU that a user can buy or rent in place of another: a board with memory of its own.
fn is_advisable(profile: &Profile) -> bool {
    let is_board = profile.id.as_str() != ProfileId::GENERIC && !profile.mobile && !profile.modified;
    let capability = profile.compute_capability;
    is_board && !capability.is_integrated() && capability.refusal().is_none()
}

/// The way to run a step that needs the least memory, preferably one whose tensors are allocated in one piece each.
struct Least {
    mode: Mode,
    split: Split,
    memory: MemoryEstimate,
}

impl Least {
    fn find(device: &DeviceFacts, workload: &Workload, goal: &Goal, modes: &[Mode], splits: &[Split]) -> Self {
        let all = modes.iter().flat_map(|&mode| {
            let model = MemoryModel::new(device, workload, goal, mode);
            candidates::frugal(splits, &model).map(move |&split| {
                let memory = model.at(split.batch, split.micro_steps() > 1);
                Self { mode, split, memory }
            })
        });
        let in_one_piece = |Self { mode, .. }: &Self| largest_batch_in_one_piece(device, workload, mode.precision);
        let least =
            all.min_by_key(|least| (least.split.batch.saturating_sub(in_one_piece(least)), least.memory.total()));
        least.expect("BUG: there is always a mode, and a split")
    }
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
