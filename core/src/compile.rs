//! From a resolved table to the constants of a build.

use thiserror::Error;

use crate::Goal;
use crate::device::DeviceFacts;
use crate::plan::{Misfit, Plan, PlanError, plan};
use crate::profile::{Profile, ProfileId};
use crate::resolved::{Resolved, Selected};
use crate::workload::Workload;

/// The constants of a build.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compiled {
    /// What the build is for, in words: `rtx4090`, `h200 + rtx4090`, `generic`, `native (NVIDIA H200)`.
    pub target: String,
    /// The plan whose settings become constants.
    pub plan: Plan,
    /// Selected targets that cannot hold the workload; the plan is for the others.
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

/// Plans for what the build selects: one target, the meet of those of several that can hold the workload, the GPU in the
/// build machine, or the conservative profile.
///
/// # Errors
///
/// When no selected target can hold the workload, or the goal cannot be met on any device.
pub fn compile(resolved: &Resolved, workload: &Workload, goal: &Goal) -> Result<Compiled, CompileError> {
    let devices = devices(resolved)?;
    let mut fitting = Vec::new();
    let mut misfits = Vec::new();
    for facts in devices {
        match plan(&facts, workload, goal) {
            Ok(_) => fitting.push(facts),
            Err(PlanError::DoesNotFit(misfit)) => misfits.push(*misfit),
            Err(other) => return Err(CompileError::Plan(other)),
        }
    }
    let Some(meet) = DeviceFacts::meet(&fitting) else { return Err(CompileError::NothingFits { misfits }) };
    let plan = plan(&meet, workload, goal).map_err(|error| match error {
        PlanError::DoesNotFit(misfit) => CompileError::NothingFits { misfits: vec![*misfit] },
        other => CompileError::Plan(other),
    })?;
    let target = match &resolved.selected {
        Selected::Native(_) => format!("native ({})", meet.name),
        Selected::Generic | Selected::Targets(_) => meet.name,
    };
    Ok(Compiled { target, plan, misfits })
}

/// The plan of every declared target on its own, for documentation.
pub fn declared(resolved: &Resolved, workload: &Workload, goal: &Goal) -> Vec<(ProfileId, Result<Plan, PlanError>)> {
    let profiles = resolved.declared.iter().filter_map(|id| resolved.profile.get(id.as_str()));
    profiles.map(|profile| (profile.id.clone(), plan(&DeviceFacts::nominal(profile), workload, goal))).collect()
}

fn devices(resolved: &Resolved) -> Result<Vec<DeviceFacts>, CompileError> {
    let nominal = |id: &str| {
        let profile: Option<&Profile> = resolved.profile.get(id);
        profile.map(DeviceFacts::nominal).ok_or_else(|| CompileError::NoProfile { id: id.to_owned() })
    };
    match &resolved.selected {
        Selected::Generic => Ok(vec![nominal(ProfileId::GENERIC)?]),
        Selected::Targets(ids) => ids.iter().map(|id| nominal(id.as_str())).collect(),
        Selected::Native(reading) => {
            let found = crate::matching::identify(reading, &resolved.profile);
            match DeviceFacts::of_gpu(reading, found.profile(), None) {
                // The constants are for the GPU, not for what its neighbours held while this was built.
                Some(facts) => Ok(vec![DeviceFacts { memory_available: facts.memory_total, ..facts }]),
                None => Ok(vec![nominal(ProfileId::GENERIC)?]),
            }
        }
    }
}
