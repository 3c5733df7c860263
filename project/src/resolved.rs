//! The resolved table: the build script writes it, the attribute and the runtime read it.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use gpu_tuned_core::Goal;
use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::{Profile, ProfileId, ProfileTable};
use gpu_tuned_core::source::{FileError, Source};
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::de::{DeTable, Deserializer};

use crate::config::{ConfigFile, as_table};
use crate::lock::Lock;

/// The selection of a build, with every profile, workload and goal that the build may need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolved {
    /// The layout's version. A build script and an attribute of different releases refuse each other by this number.
    pub format: u32,
    /// The package whose build script wrote the table; `None` for the runtime's part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub package: Option<String>,
    /// The path of the package's `gpu-tuned.toml`, from its folder; `None` for the package's own under the usual name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The profiles that the package offers as Cargo features, sorted.
    #[serde(default)]
    pub declared: Vec<ProfileId>,
    /// The targets that the enabled features select.
    pub selected: Selected,
    /// The default goal of every struct.
    #[serde(default)]
    pub goal: Goal,
    /// Workloads by name.
    #[serde(default)]
    pub workload: BTreeMap<String, WorkloadSpec>,
    /// The measurements of `gpu-tuned.lock`, with the keys of that file.
    #[serde(skip_deserializing, skip_serializing_if = "Lock::is_empty")]
    pub measured: Lock,
    /// The generic, declared, selected and user-defined profiles.
    #[serde(default)]
    pub profile: ProfileTable,
}

/// The targets that the enabled features select.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selected {
    /// Any GPU: none is named, or `native` found none. The conservative profile stands in, with more memory if that is needed.
    Generic,
    /// Profiles, at least one, sorted by name. `generic` is named alone.
    Targets(Vec<ProfileId>),
    /// The GPU in the build machine.
    Native(Box<GpuReading>),
}

/// A selected profile that the table lacks.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("there is no profile `{id}` in the table that the build script wrote")]
pub struct NoProfile {
    /// The profile.
    pub id: String,
}

/// A resolved table that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResolvedError {
    /// The text is no resolved table.
    #[error(
        "the table written by the build script cannot be read; use the same version of gpu-tuned and gpu-tuned-build: {0}"
    )]
    Syntax(#[from] toml::de::Error),
    /// A figure is out of range.
    #[error("the table written by the build script is damaged: {message}; save build.rs, and build again")]
    Figure {
        /// The figure and its range.
        message: String,
    },
    /// Another release wrote the table.
    #[error(
        "the build script wrote format {found}, this release reads format {}; use the same version of gpu-tuned and \
         gpu-tuned-build",
        Resolved::FORMAT
    )]
    Format {
        /// The format found.
        found: u32,
    },
}

impl Resolved {
    /// The layout's version in this release.
    pub const FORMAT: u32 = 1;
    /// The environment variable with the table's path, for the attribute.
    pub const VARIABLE: &'static str = "GPU_TUNED_TABLE";
    /// The environment variable with the path of the [runtime's part](Self::for_runtime), for generated code.
    pub const RUNTIME_VARIABLE: &'static str = "GPU_TUNED_RUNTIME_TABLE";

    /// Collects the parts that a build needs. `table` has to include the profiles of `selected`.
    pub fn new(selected: Selected, mut declared: Vec<ProfileId>, file: &ConfigFile, table: &ProfileTable) -> Self {
        declared.sort();
        declared.dedup();
        let named: &[ProfileId] = if let Selected::Targets(targets) = &selected { targets } else { &[] };
        let generic = core::iter::once(ProfileId::GENERIC);
        let ids = named.iter().chain(file.profiles.iter().map(|profile| &profile.id));
        let needed = generic.chain(ids.map(ProfileId::as_str)).filter_map(|id| table.get(id));
        let profile = needed.cloned().collect();
        Self {
            format: Self::FORMAT,
            package: None,
            file: None,
            declared,
            selected,
            goal: file.goal.clone(),
            workload: file.workloads.clone(),
            measured: Lock::default(),
            profile,
        }
    }

    /// Adds the name of the package whose build script writes the table.
    #[must_use]
    pub fn with_package(mut self, name: &str) -> Self {
        self.package = (!name.is_empty()).then(|| name.to_owned());
        self
    }

    /// Returns true for the package that wrote the table, and for a compile test of it. A program or test that cargo runs passes
    /// the variables of its build script on to any cargo that it runs.
    pub fn is_of(&self, package: &str) -> bool {
        // Trybuild adds the ending.
        self.package
            .as_deref()
            .is_none_or(|own| package.strip_suffix("-tests").unwrap_or(package) == own || package == own)
    }

    /// Adds the path of the file that the table was read from.
    #[must_use]
    pub fn with_file(mut self, path: &Path) -> Self {
        self.file = (path != Path::new(ConfigFile::NAME)).then(|| path.display().to_string());
        self
    }

    /// Returns the path of the package's `gpu-tuned.toml` for messages.
    pub fn file(&self) -> &str {
        self.file.as_deref().unwrap_or(ConfigFile::NAME)
    }

    /// Adds measurements. Their goals are left out, because plans are made for the goal of the file or the attribute.
    #[must_use]
    pub fn with_measured(mut self, mut lock: Lock) -> Self {
        for entry in lock.workload.values_mut() {
            entry.goal = None;
        }
        self.measured = lock;
        self
    }

    /// Returns the costs of one training step: measured costs if this description was measured, else derived ones. Of several
    /// measurements, those under `name` come first, then those of the selected devices.
    pub fn workload(&self, name: Option<&str>, spec: &WorkloadSpec) -> Workload {
        self.workload_on(name, spec, &self.devices().unwrap_or_default())
    }

    /// Returns the costs of one training step, with a preference for measurements on `devices`.
    pub fn workload_on(&self, name: Option<&str>, spec: &WorkloadSpec, devices: &[DeviceFacts]) -> Workload {
        match self.measured.measured_for(name, spec, devices) {
            Some((_, entry)) => spec.workload().with_measured(entry.measured.clone()),
            None => spec.workload(),
        }
    }

    /// Returns the facts of the selected devices.
    ///
    /// # Errors
    ///
    /// When the table lacks a selected profile.
    pub fn devices(&self) -> Result<Vec<DeviceFacts>, NoProfile> {
        let nominal = |id: &str| {
            let profile: Option<&Profile> = self.profile.get(id);
            profile.map(DeviceFacts::nominal).ok_or_else(|| NoProfile { id: id.to_owned() })
        };
        match &self.selected {
            Selected::Generic => Ok(vec![nominal(ProfileId::GENERIC)?]),
            Selected::Targets(ids) => ids.iter().map(|id| nominal(id.as_str())).collect(),
            Selected::Native(reading) => {
                let found = identify(reading, &self.profile);
                // The constants are for the GPU alone, without the memory that other processes use at build time.
                let mut alone = (**reading).clone();
                alone.memory_free = None;
                match DeviceFacts::from_reading(&alone, found.profile(), None) {
                    Some(facts) => Ok(vec![facts]),
                    None => Ok(vec![nominal(ProfileId::GENERIC)?]),
                }
            }
        }
    }

    /// Returns the generic profile, if no GPU is named.
    pub fn for_any_gpu(&self) -> Option<&Profile> {
        matches!(self.selected, Selected::Generic).then(|| self.profile.get(ProfileId::GENERIC))?
    }

    /// Returns the runtime's part of the table. The workloads and the declared targets are in the generated code.
    #[must_use]
    pub fn for_runtime(&self) -> Self {
        Self { package: None, declared: Vec::new(), workload: BTreeMap::new(), ..self.clone() }
    }

    /// Returns a table without a build script: one shipped profile by its name, which may be `generic`.
    pub fn from_builtin(target: &str) -> Option<Self> {
        let profile = ProfileTable::builtin_profile(target)?;
        let selected = Selected::Targets(vec![profile.id.clone()]);
        Some(Self::new(selected, Vec::new(), &ConfigFile::default(), &ProfileTable::from_iter([profile])))
    }

    /// Parses the output of [`to_toml`](Self::to_toml).
    ///
    /// # Errors
    ///
    /// When the text is no resolved table, or another release wrote it.
    pub fn from_toml(text: &str) -> Result<Self, ResolvedError> {
        let mut table = DeTable::parse(text)?;
        let format =
            table.get_ref().get("format").and_then(|value| value.get_ref().as_integer()?.as_str().parse().ok());
        if let Some(found) = format.filter(|found| *found != Self::FORMAT) {
            // Checked first: the rest of another format may mean anything.
            return Err(ResolvedError::Format { found });
        }
        let measured = table.get_mut().remove("measured").map(|value| {
            let source = Source { file: Lock::NAME, text };
            let measured = as_table(value).map_err(|place| vec![source.error(&place, "measured: expected a table")])?;
            Lock::from_table(measured.into_inner(), source)
        });
        let measured = measured.transpose().map_err(|mistakes: Vec<FileError>| {
            let message = mistakes.into_iter().map(|mistake| mistake.message).next().unwrap_or_default();
            ResolvedError::Figure { message }
        })?;
        let mut resolved = Self::deserialize(Deserializer::from(table))?;
        resolved.measured = measured.unwrap_or_default();
        // The build script would have refused these figures.
        let of_workloads = resolved.workload.values().find_map(|spec| spec.mistakes().into_iter().next());
        match resolved.goal.mistakes().into_iter().next().or(of_workloads) {
            Some((_, message)) => Err(ResolvedError::Figure { message }),
            None => Ok(resolved),
        }
    }

    /// Parses the table that generated code embeds, once a process.
    ///
    /// # Errors
    ///
    /// As [`from_toml`](Self::from_toml).
    pub fn embedded(text: &'static str) -> Result<&'static Self, ResolvedError> {
        static PARSED: Mutex<Vec<(&str, &Resolved)>> = Mutex::new(Vec::new());
        let mut parsed = PARSED.lock().unwrap_or_else(PoisonError::into_inner);
        // Programs have one table, or a few.
        if let Some((_, resolved)) = parsed.iter().find(|(known, _)| core::ptr::eq(*known, text)) {
            return Ok(resolved);
        }
        let resolved: &'static Self = Box::leak(Box::new(Self::from_toml(text)?));
        parsed.push((text, resolved));
        Ok(resolved)
    }

    /// Formats the table as TOML: sorted, without times or paths.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("BUG: a resolved table is always TOML")
    }
}

#[cfg(test)]
mod tests;
