//! From a resolved table to the constants of a build.

use thiserror::Error;

use crate::device::{DeviceFacts, GpuReading};
use crate::plan::{Misfit, Plan, PlanError, fits, plan};
use crate::profile::{Profile, ProfileId};
use crate::resolved::{Resolved, Selected};
use crate::workload::Workload;
use crate::{Goal, Pins};

/// The constants of a build.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compiled {
    /// What the build is for, in words: `rtx4090`, `h200 + rtx4090`, `generic`, `native (NVIDIA H200)`.
    pub target: String,
    /// The plan whose settings become constants.
    pub plan: Plan,
    /// Selected targets that cannot hold the workload, or not as the plan has it; the plan is for the others.
    pub misfits: Vec<Misfit>,
}

/// Why a build has no constants.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// There is no plan, whatever the target.
    #[error(transparent)]
    Plan(PlanError),
    /// No selected target can hold the workload; one entry each.
    #[error("{}", misfits.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    NothingFits {
        /// Each selected target's bytes.
        misfits: Vec<Misfit>,
    },
    /// A selected profile is not in the table.
    #[error("there is no profile `{id}` in the table that the build script wrote")]
    NoProfile {
        /// The profile.
        id: String,
    },
}

/// Plans for what the build selects: one target, all of several that can hold the workload, the GPU in the build machine, or
/// the conservative profile.
///
/// # Errors
///
/// When no selected target can hold the workload, or the goal cannot be met on any device.
pub fn compile(resolved: &Resolved, workload: &Workload, goal: &Goal) -> Result<Compiled, CompileError> {
    let mut holding = Vec::new();
    let mut misfits = Vec::new();
    for facts in devices(resolved)? {
        match plan(&facts, workload, goal) {
            Ok(_) => holding.push(facts),
            Err(PlanError::DoesNotFit(misfit)) => misfits.push(*misfit),
            Err(other) => return Err(CompileError::Plan(other)),
        }
    }
    let Some((plan, left_out)) = of_most(&holding, workload, goal) else {
        return Err(CompileError::NothingFits { misfits });
    };
    misfits.extend(left_out);
    let target = match &resolved.selected {
        Selected::Native(_) => format!("native ({})", plan.device),
        Selected::Generic | Selected::Targets(_) => plan.device.clone(),
    };
    Ok(Compiled { target, plan, misfits })
}

/// The plan of every declared target on its own, for documentation.
pub fn declared(resolved: &Resolved, workload: &Workload, goal: &Goal) -> Vec<(ProfileId, Result<Plan, PlanError>)> {
    let profiles = resolved.declared.iter().filter_map(|id| resolved.profile.get(id.as_str()));
    profiles.map(|profile| (profile.id.clone(), plan(&DeviceFacts::nominal(profile), workload, goal))).collect()
}

/// What is selected.
pub(crate) fn devices(resolved: &Resolved) -> Result<Vec<DeviceFacts>, CompileError> {
    let nominal = |id: &str| {
        let profile: Option<&Profile> = resolved.profile.get(id);
        profile.map(DeviceFacts::nominal).ok_or_else(|| CompileError::NoProfile { id: id.to_owned() })
    };
    match &resolved.selected {
        Selected::Generic => Ok(vec![nominal(ProfileId::GENERIC)?]),
        Selected::Targets(ids) => ids.iter().map(|id| nominal(id.as_str())).collect(),
        Selected::Native(reading) => {
            let found = crate::matching::identify(reading, &resolved.profile);
            // The constants are for the GPU, not for what its neighbours held while this was built.
            let alone = GpuReading { memory_free: None, ..(**reading).clone() };
            match DeviceFacts::of_gpu(&alone, found.profile(), None) {
                Some(facts) => Ok(vec![facts]),
                None => Ok(vec![nominal(ProfileId::GENERIC)?]),
            }
        }
    }
}

/// One plan for devices that each can hold the workload, and why it is not for some of them: where none is for all, the device
/// with the least memory is given up, then the next. `None` without any.
fn of_most(devices: &[DeviceFacts], workload: &Workload, goal: &Goal) -> Option<(Plan, Vec<Misfit>)> {
    let mut by_memory: Vec<&DeviceFacts> = devices.iter().collect();
    by_memory.sort_by_key(|facts| facts.memory_available);
    let mut planned = (0..by_memory.len()).find_map(|least| of_all(&by_memory[least..], workload, goal))?;
    let fixed = fixed(goal, &planned);
    let (meant, others): (Vec<_>, Vec<_>) = devices.iter().partition(|facts| fits(facts, workload, &fixed));
    planned.device = DeviceFacts::meet(meant)?.name;
    let misfit = |facts| match plan(facts, workload, &fixed) {
        Err(PlanError::DoesNotFit(misfit)) => Some(*misfit),
        _ => None,
    };
    Some((planned, others.into_iter().filter_map(misfit).collect()))
}

/// A plan that fits each of the devices: for what all of them have, else for the memory of one of them. Often what all have is
/// too little: GPUs with more memory also take more for themselves.
fn of_all(devices: &[&DeviceFacts], workload: &Workload, goal: &Goal) -> Option<Plan> {
    let meet = DeviceFacts::meet(devices.iter().copied())?;
    let memory_of = |facts: &&DeviceFacts| DeviceFacts {
        profile: facts.profile.clone(),
        memory_available: facts.memory_available,
        memory_provenance: facts.memory_provenance,
        context: facts.context,
        sm_count: facts.sm_count,
        ..meet.clone()
    };
    core::iter::once(meet.clone()).chain(devices.iter().map(memory_of)).find_map(|facts| {
        let plan = plan(&facts, workload, goal).ok()?;
        let fixed = fixed(goal, &plan);
        devices.iter().all(|facts| fits(facts, workload, &fixed)).then_some(plan)
    })
}

/// The goal with the micro-batch and the checkpointing of a plan.
fn fixed(goal: &Goal, plan: &Plan) -> Goal {
    let batch_size = Some(plan.settings.batch_size);
    let gradient_checkpointing = Some(plan.settings.gradient_checkpointing);
    Goal { pins: Pins { batch_size, gradient_checkpointing, ..goal.pins.clone() }, ..goal.clone() }
}

#[cfg(test)]
mod tests {
    use super::compile;
    use crate::device::GpuReading;
    use crate::resolved::{Resolved, Selected};
    use crate::workload::Transformer;
    use crate::{Bytes, Goal};

    #[test]
    fn native_leaves_the_driver_its_reserve_and_asks_nobody_what_is_free_just_now() {
        let reading = |memory_free| GpuReading {
            name: Some("NVIDIA GeForce RTX 4090".to_owned()),
            memory_total: Some(Bytes::from_mib(24_564)),
            memory_reserved: Some(Bytes::from_mib(473)),
            memory_free,
            ..GpuReading::default()
        };
        let workload = Transformer::new(6, 512, 8192, 256).workload();
        for free in [None, Some(Bytes::from_mib(10_000))] {
            let mut resolved = Resolved::of_builtin("generic").expect("it is shipped");
            resolved.selected = Selected::Native(Box::new(reading(free)));
            let compiled = compile(&resolved, &workload, &Goal::default()).expect("it fits");
            assert_eq!(compiled.target, "native (NVIDIA GeForce RTX 4090)");
            assert_eq!(compiled.plan.memory.available, Bytes::from_mib(24_091), "{free:?}");
        }
    }
}
