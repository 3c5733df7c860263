//! Devices that commands plan for.

mod here;
mod targets;

use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::{Goal, Precision, PrecisionPolicy, Provenance, plan};
use gpu_tuned_nvml::{Fit, Host, Machine, UsableGpu, detect};
use gpu_tuned_project::gpu_names::profiles;

pub(crate) use here::{Here, is_describable};
pub(crate) use targets::Targets;

use crate::args::{GoalArgs, GpuNames};
use crate::error::Error;
use crate::project::{Described, Project};

pub(crate) struct Target {
    /// Name of the profile, or of the device in the driver.
    pub name: String,
    pub facts: DeviceFacts,
    /// The device's profile, or the nearest one.
    pub profile: Option<Profile>,
    /// Number of a GPU of this machine in CUDA's order.
    pub position: Option<usize>,
    /// GPUs of the machine; 0 for a profile.
    pub beside: u64,
}

impl Target {
    pub(crate) fn nominal(profile: &Profile) -> Self {
        Self {
            name: profile.id.to_string(),
            facts: DeviceFacts::nominal(profile),
            profile: Some(profile.clone()),
            position: None,
            beside: 0,
        }
    }

    /// Devices with these profiles, each once.
    pub(crate) fn all_named(table: &ProfileTable, names: &GpuNames) -> Result<Vec<Self>, Error> {
        Ok(profiles(table, &names.items())?.into_iter().map(Self::nominal).collect())
    }

    /// All GPUs that Burn can train on, and the names of the others.
    pub(crate) fn all(project: &Project) -> (Vec<Self>, Vec<String>) {
        let table = project.profiles();
        let gpus = table.iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC).map(Self::nominal);
        let (usable, refused): (Vec<_>, Vec<_>) = gpus.partition(|target| target.facts.refusal.is_none());
        (usable, refused.into_iter().map(|target| target.name).collect())
    }

    pub(crate) fn declared(project: &Project) -> Vec<Self> {
        let table = project.profiles();
        project.declared().iter().filter_map(|id| table.get(id.as_str())).map(Self::nominal).collect()
    }

    /// Sets the CPU cores of devices that are in this machine. Memory and speed stay those of the profile.
    pub(crate) fn take_cores_here(targets: &mut [Self], table: &ProfileTable) {
        let machine = detect();
        let here = recognised(&machine, table);
        for target in targets {
            if target.profile.as_ref().is_some_and(|profile| here.contains(&profile.id)) {
                target.facts.host_cores = Some(machine.host.cores);
                target.beside = machine.gpus.len() as u64;
            }
        }
    }

    /// Facts for one of several ranks: ranks on one machine share its CPU cores.
    pub(crate) fn facts_of(&self, ranks: u64) -> DeviceFacts {
        let sharing = ranks.clamp(1, self.beside.max(1));
        let host_cores = self.facts.host_cores.map(|cores| (cores / sharing).max(1));
        DeviceFacts { host_cores, ..self.facts.clone() }
    }

    /// Plans the workload.
    pub(crate) fn fit(&self, described: &Described<'_>, asked: &GoalArgs) -> Fit<()> {
        let goal = asked.over(self.goal(described.goal.clone()));
        let facts = self.facts_of(goal.world_size);
        let workload = described.workload_on(&facts);
        match plan(&facts, &workload, &goal) {
            Ok(_) => Fit::Whole(()),
            Err(error @ PlanError::PrecisionUnsupported { .. }) => {
                let because = error.to_string();
                let is_pinned = goal.pins.precision.is_some();
                let without = Goal { precision: None, ..goal };
                if !is_pinned && plan(&facts, &workload, &without).is_ok() {
                    Fit::OtherPrecision { plan: (), because }
                } else {
                    Fit::No { because: Some(because) }
                }
            }
            Err(_) => Fit::No { because: None },
        }
    }

    fn of_gpu(gpu: &UsableGpu, machine: &Machine) -> Self {
        let UsableGpu { position, found, facts, .. } = gpu;
        let beside = machine.gpus.len() as u64;
        let (name, profile) = (facts.name.clone(), found.profile().cloned());
        Self { name, facts: facts.clone(), profile, position: Some(*position), beside }
    }

    fn cpu(host: &Host) -> Self {
        let facts = host.facts();
        Self { name: facts.name.clone(), facts, profile: None, position: None, beside: 0 }
    }

    /// The goal of a plan. On this machine a precision of the package that the device lacks becomes fp32, as in a program.
    pub(crate) fn goal_for(&self, described: &Described<'_>, asked: &GoalArgs) -> Goal {
        let goal = asked.over(self.goal(described.goal.clone()));
        if self.missing_precision(&goal, asked).is_some() { Goal { precision: None, ..goal } } else { goal }
    }

    /// Note on a precision of the package that the device lacks.
    pub(crate) fn precision_note(&self, described: &Described<'_>, asked: &GoalArgs) -> Option<String> {
        let missing = self.missing_precision(&described.goal, asked)?;
        Some(format!("{}: fp32 in place of {missing}, for which it has no tensor cores", self.name))
    }

    fn missing_precision(&self, goal: &Goal, asked: &GoalArgs) -> Option<Precision> {
        let is_here = self.position.is_some() || self.facts.kind == DeviceKind::Cpu;
        let Some(PrecisionPolicy::Fixed(precision)) = goal.precision else { return None };
        let is_open = is_here && asked.precision().is_none() && goal.pins.precision.is_none();
        (is_open && !self.facts.has_units_for(precision)).then_some(precision)
    }

    /// The runtime's goal: on a detected device, the memory headroom is smaller.
    pub(crate) fn goal(&self, mut goal: Goal) -> Goal {
        if self.facts.memory_provenance == Provenance::Measured {
            goal.memory_headroom *= Goal::HEADROOM_KEPT;
        }
        goal
    }
}

/// Profiles of the usable GPUs, each once.
fn recognised(machine: &Machine, table: &ProfileTable) -> Vec<ProfileId> {
    let usable = (0..machine.gpus.len()).filter_map(|position| machine.usable(position, table).ok());
    let mut ids: Vec<_> = usable.filter_map(|gpu| Some(gpu.found.profile()?.id.clone())).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
