//! Devices that commands plan for.

use gpu_tuned::{Machine, detect};
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::{Goal, Provenance};

use crate::error::Error;
use crate::project::Project;

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

    /// The requested device: by name, or the first one of this machine; else the only one that the package declares. With
    /// problems of detection.
    pub(crate) fn one(project: &Project, name: Option<&str>, here: bool) -> Result<(Self, Vec<String>), Error> {
        if here {
            return Ok(Self::first_here(project));
        }
        if let Some(name) = name {
            return Ok((Self::named(project, name)?, Vec::new()));
        }
        let mut declared = Self::declared(project);
        match (declared.pop(), declared.is_empty()) {
            (None, _) => Err(project.without_targets()),
            (Some(only), true) => Ok((only, Vec::new())),
            (Some(last), false) => {
                let names = declared.into_iter().chain([last]).map(|target| target.name).collect();
                Err(Error::SeveralTargets { package: project.name().to_owned(), names })
            }
        }
    }

    /// The requested devices: by name, all, or those of this machine; else those that the package declares. With problems of
    /// detection.
    pub(crate) fn wanted(
        project: &Project,
        names: &[String],
        all: bool,
        here: bool,
    ) -> Result<(Vec<Self>, Vec<String>), Error> {
        if here {
            return Ok(Self::here(project));
        }
        if all {
            return Ok((Self::all(project), Vec::new()));
        }
        let targets = match names {
            [] => Self::declared(project),
            names => Self::all_named(project, names)?,
        };
        if targets.is_empty() {
            return Err(project.without_targets());
        }
        Ok((targets, Vec::new()))
    }

    pub(crate) fn all(project: &Project) -> Vec<Self> {
        let table = project.profiles();
        table.iter().filter(|profile| profile.id.as_str() != ProfileId::GENERIC).map(Self::nominal).collect()
    }

    pub(crate) fn declared(project: &Project) -> Vec<Self> {
        let table = project.profiles();
        project.declared().iter().filter_map(|id| table.get(id.as_str())).map(Self::nominal).collect()
    }

    /// GPUs of this machine, or its CPU without any; with problems of detection.
    pub(crate) fn here(project: &Project) -> (Vec<Self>, Vec<String>) {
        Self::here_among(&project.profiles())
    }

    /// GPUs of this machine, recognised among these profiles.
    pub(crate) fn here_among(table: &ProfileTable) -> (Vec<Self>, Vec<String>) {
        let machine = detect();
        let gpus = gpus(&machine, table);
        let found = if gpus.is_empty() { vec![Self::cpu(&machine)] } else { gpus };
        (found, machine.trouble)
    }

    /// Profiles of the GPUs in this machine, each once.
    pub(crate) fn recognised_here(project: &Project) -> Vec<ProfileId> {
        recognised(&detect(), &project.profiles())
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

    fn first_here(project: &Project) -> (Self, Vec<String>) {
        let (mut all, trouble) = Self::here(project);
        (all.swap_remove(0), trouble)
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
    let mut ids: Vec<_> = gpus(machine, table).into_iter().filter_map(|gpu| Some(gpu.profile?.id)).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// GPUs with a known amount of memory.
fn gpus(machine: &Machine, table: &ProfileTable) -> Vec<Target> {
    let beside = machine.gpus.len() as u64;
    let target = |reading| {
        let found = identify(reading, table);
        let facts = DeviceFacts::from_reading(reading, found.profile(), Some(machine.host.cores))?;
        Some(Target { name: facts.name.clone(), facts, profile: found.profile().cloned(), beside })
    };
    machine.gpus.iter().filter_map(target).collect()
}
