//! Devices that commands plan for.

mod here;
mod targets;

use gpu_tuned::{Machine, detect};
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::{Goal, Provenance, plan};

pub(crate) use here::first_choice;
pub(crate) use targets::Targets;

use crate::args::GoalArgs;
use crate::error::Error;
use crate::project::{Described, Project};

pub(crate) struct Target {
    /// Name of the profile, or of the device in the driver.
    pub name: String,
    pub facts: DeviceFacts,
    /// The device's profile, or the nearest one.
    pub profile: Option<Profile>,
    /// GPUs of the machine; 0 for a profile.
    pub beside: u64,
}

impl Target {
    pub(crate) fn nominal(profile: &Profile) -> Self {
        Self {
            name: profile.id.to_string(),
            facts: DeviceFacts::nominal(profile),
            profile: Some(profile.clone()),
            beside: 0,
        }
    }

    pub(crate) fn named(project: &Project, name: &str) -> Result<Self, Error> {
        let table = project.profiles();
        let unknown = || Error::UnknownTarget { name: name.to_owned(), hint: project.known().hint(name) };
        table.get(name).map(Self::nominal).ok_or_else(unknown)
    }

    /// Returns true if this is the name of the target or of its profile.
    pub(crate) fn is_named(&self, name: &str) -> bool {
        self.name == name || self.profile.as_ref().is_some_and(|profile| profile.id.as_str() == name)
    }

    /// Devices with these profiles, each once.
    fn all_named(project: &Project, names: &[String]) -> Result<Vec<Self>, Error> {
        let mut targets: Vec<Self> = Vec::new();
        for name in names {
            let target = Self::named(project, name)?;
            if targets.iter().all(|known| known.name != target.name) {
                targets.push(target);
            }
        }
        Ok(targets)
    }

    /// All GPUs that Burn can train on.
    pub(crate) fn all(project: &Project) -> Vec<Self> {
        let table = project.profiles();
        let gpus = table.iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC).map(Self::nominal);
        gpus.filter(|target| target.facts.refusal.is_none()).collect()
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

    /// Returns true if a plan of the workload exists.
    pub(crate) fn fits(&self, described: &Described<'_>, asked: &GoalArgs) -> bool {
        let goal = asked.over(self.goal(described.goal.clone()));
        let facts = self.facts_of(goal.world_size);
        plan(&facts, &described.workload_on(&facts), &goal).is_ok()
    }

    /// The GPU with this reading; `None` if its memory is unknown.
    fn of_gpu(reading: &GpuReading, machine: &Machine, table: &ProfileTable) -> Option<Self> {
        let found = identify(reading, table);
        let facts = DeviceFacts::from_reading(reading, found.profile(), Some(machine.host.cores))?;
        let beside = machine.gpus.len() as u64;
        Some(Self { name: facts.name.clone(), facts, profile: found.profile().cloned(), beside })
    }

    fn cpu(machine: &Machine) -> Self {
        let host = &machine.host;
        let facts = DeviceFacts::cpu(host.memory_total, host.memory_available, host.cores);
        Self { name: facts.name.clone(), facts, profile: None, beside: 0 }
    }

    /// The runtime's goal: on a detected device, the memory headroom is smaller.
    pub(crate) fn goal(&self, mut goal: Goal) -> Goal {
        if self.facts.memory_provenance == Provenance::Measured {
            goal.memory_headroom *= Goal::HEADROOM_KEPT;
        }
        goal
    }
}

/// Profiles of the GPUs, each once.
fn recognised(machine: &Machine, table: &ProfileTable) -> Vec<ProfileId> {
    let mut ids: Vec<_> =
        machine.gpus.iter().filter_map(|gpu| Some(Target::of_gpu(gpu, machine, table)?.profile?.id)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
