//! The table that a build script resolves, for the attribute and the runtime: one file, everything in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Goal;
use crate::config::ConfigFile;
use crate::device::GpuReading;
use crate::profile::{Profile, ProfileId, ProfileTable};
use crate::workload::WorkloadSpec;

/// What a build was asked for, with every profile, workload and goal that it may need.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resolved {
    /// The layout of this file; a build script and an attribute of different releases notice each other by it.
    pub format: u32,
    /// The profiles that the package offers as Cargo features, sorted.
    #[serde(default)]
    pub declared: Vec<ProfileId>,
    /// What the enabled features select.
    pub selected: Selected,
    /// The goal for every struct that does not say otherwise.
    #[serde(default)]
    pub goal: Goal,
    /// Workloads by name.
    #[serde(default)]
    pub workload: BTreeMap<String, WorkloadSpec>,
    /// The generic, declared, selected and user-defined profiles.
    #[serde(default)]
    pub profile: BTreeMap<ProfileId, Profile>,
}

/// What the enabled features select.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Selected {
    /// No GPU was named, or `native` found none: the conservative profile.
    Generic,
    /// One or several profiles by name, sorted.
    Targets(Vec<ProfileId>),
    /// The GPU in the build machine.
    Native(Box<GpuReading>),
}

/// A resolved table that cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ResolvedError {
    /// The text is not a resolved table.
    #[error("the table written by the build script cannot be read: {0}")]
    Syntax(#[from] toml::de::Error),
    /// The build script is of another release.
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
    /// The layout that this release writes and reads.
    pub const FORMAT: u32 = 1;
    /// The environment variable through which the attribute learns where the table is.
    pub const VARIABLE: &'static str = "GPU_TUNED_TABLE";

    /// Puts together what a build needs. `selected` and `declared` must be known to `table`.
    pub fn new(selected: Selected, mut declared: Vec<ProfileId>, file: &ConfigFile, table: &ProfileTable) -> Self {
        declared.sort();
        declared.dedup();
        let named: &[ProfileId] = if let Selected::Targets(targets) = &selected { targets } else { &[] };
        let generic = core::iter::once(ProfileId::GENERIC);
        let ids = named.iter().chain(&declared).chain(file.profiles.iter().map(|profile| &profile.id));
        let needed = generic.chain(ids.map(ProfileId::as_str)).filter_map(|id| table.get(id));
        let profile = needed.map(|profile| (profile.id.clone(), profile.clone())).collect();
        Self {
            format: Self::FORMAT,
            declared,
            selected,
            goal: file.goal.clone(),
            workload: file.workloads.clone(),
            profile,
        }
    }

    /// The table without a build script: one shipped profile, or the generic one.
    pub fn of_builtin(target: &str) -> Option<Self> {
        let profile = ProfileTable::builtin_profile(target)?;
        let selected = match target {
            ProfileId::GENERIC => Selected::Generic,
            _ => Selected::Targets(vec![profile.id.clone()]),
        };
        let profile = BTreeMap::from([(profile.id.clone(), profile)]);
        let (declared, goal, workload) = (Vec::new(), Goal::default(), BTreeMap::new());
        Some(Self { format: Self::FORMAT, declared, selected, goal, workload, profile })
    }

    /// Reads what [`to_toml`](Self::to_toml) wrote.
    ///
    /// # Errors
    ///
    /// When the text is not such a table, or one of another release.
    pub fn from_toml(text: &str) -> Result<Self, ResolvedError> {
        #[derive(Deserialize)]
        struct Head {
            format: u32,
        }
        let Head { format } = toml::from_str(text)?;
        if format != Self::FORMAT {
            return Err(ResolvedError::Format { found: format });
        }
        Ok(toml::from_str(text)?)
    }

    /// The table as TOML: sorted, without times or paths.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("BUG: a resolved table is always TOML")
    }

    /// The shipped profiles, with this table's own over them.
    pub fn profiles(&self) -> ProfileTable {
        let mut table = ProfileTable::builtin().clone();
        for profile in self.profile.values() {
            table.insert(profile.clone());
        }
        table
    }
}
