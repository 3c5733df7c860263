//! The table that a build script resolves, for the attribute and the runtime: one file, everything in it.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use thiserror::Error;
use toml::de::{DeTable, Deserializer};

use crate::config::ConfigFile;
use crate::device::{DeviceFacts, GpuReading};
use crate::lock::Lock;
use crate::profile::{Profile, ProfileId, ProfileTable};
use crate::workload::{Workload, WorkloadSpec};
use crate::{Goal, compile};

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
    /// What was measured of workloads, as `gpu-tuned.lock` has it.
    #[serde(default, skip_serializing_if = "Lock::is_empty")]
    pub measured: Lock,
    /// The generic, declared, selected and user-defined profiles.
    #[serde(default)]
    pub profile: ProfileTable,
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
    /// A figure that no build script writes.
    #[error("the table written by the build script is damaged: {message}; build again")]
    Figure {
        /// The figure and its range.
        message: String,
    },
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
    /// The environment variable through which generated code learns where the [part of the table](Self::for_runtime) is
    /// that it takes along.
    pub const RUNTIME_VARIABLE: &'static str = "GPU_TUNED_RUNTIME_TABLE";

    /// Puts together what a build needs. `selected` and `declared` must be known to `table`.
    pub fn new(selected: Selected, mut declared: Vec<ProfileId>, file: &ConfigFile, table: &ProfileTable) -> Self {
        declared.sort();
        declared.dedup();
        let named: &[ProfileId] = if let Selected::Targets(targets) = &selected { targets } else { &[] };
        let generic = core::iter::once(ProfileId::GENERIC);
        let ids = named.iter().chain(&declared).chain(file.profiles.iter().map(|profile| &profile.id));
        let needed = generic.chain(ids.map(ProfileId::as_str)).filter_map(|id| table.get(id));
        let profile = needed.cloned().collect();
        Self {
            format: Self::FORMAT,
            declared,
            selected,
            goal: file.goal.clone(),
            workload: file.workloads.clone(),
            measured: Lock::default(),
            profile,
        }
    }

    /// The table with what was measured. Goals are left out: a plan is made for those above.
    #[must_use]
    pub fn with_measured(mut self, mut lock: Lock) -> Self {
        for entry in lock.workload.values_mut() {
            entry.goal = None;
        }
        self.measured = lock;
        self
    }

    /// What one training step costs: by what was measured of this very description, if anything was. Of several measurements
    /// those under the workload's own `name` count, else those of the devices that are selected.
    pub fn workload(&self, name: Option<&str>, spec: &WorkloadSpec) -> Workload {
        self.workload_on(name, spec, &compile::devices(self).unwrap_or_default())
    }

    /// The same, rather by what was measured on these devices.
    pub fn workload_on(&self, name: Option<&str>, spec: &WorkloadSpec, devices: &[DeviceFacts]) -> Workload {
        match self.measured.measured_for(name, spec, devices) {
            Some((_, entry)) => spec.workload().with_measured(entry.measured.clone()),
            None => spec.workload(),
        }
    }

    /// What a program needs of the table when it runs: the selection, its profiles, and those that are the user's own.
    /// The rest is in the generated code, or ships with this crate.
    #[must_use]
    pub fn for_runtime(&self) -> Self {
        let named: &[ProfileId] = if let Selected::Targets(targets) = &self.selected { targets } else { &[] };
        let is_own = |profile: &Profile| ProfileTable::builtin_profile(profile.id.as_str()).as_ref() != Some(profile);
        let needed = |profile: &&Profile| {
            profile.id.as_str() == ProfileId::GENERIC || named.contains(&profile.id) || is_own(profile)
        };
        let profile = self.profile.iter().filter(needed).cloned().collect();
        Self { declared: Vec::new(), workload: BTreeMap::new(), profile, ..self.clone() }
    }

    /// The table without a build script: one shipped profile, or the generic one.
    pub fn of_builtin(target: &str) -> Option<Self> {
        let profile = ProfileTable::builtin_profile(target)?;
        let selected = match target {
            ProfileId::GENERIC => Selected::Generic,
            _ => Selected::Targets(vec![profile.id.clone()]),
        };
        let profile = ProfileTable::from_iter([profile]);
        let (declared, goal, workload) = (Vec::new(), Goal::default(), BTreeMap::new());
        Some(Self { format: Self::FORMAT, declared, selected, goal, workload, measured: Lock::default(), profile })
    }

    /// Reads what [`to_toml`](Self::to_toml) wrote.
    ///
    /// # Errors
    ///
    /// When the text is not such a table, or one of another release.
    pub fn from_toml(text: &str) -> Result<Self, ResolvedError> {
        let table = DeTable::parse(text)?;
        let format =
            table.get_ref().get("format").and_then(|value| value.get_ref().as_integer()?.as_str().parse().ok());
        match format {
            // Looked at first, because what else is in another format means nothing here.
            Some(found) if found != Self::FORMAT => Err(ResolvedError::Format { found }),
            _ => Self::deserialize(Deserializer::from(table))?.checked(),
        }
    }

    /// Figures that a build script would have refused come from a damaged file.
    fn checked(self) -> Result<Self, ResolvedError> {
        let described = self.measured.workload.values().filter_map(|entry| entry.described.as_ref());
        let of_workloads = self.workload.values().chain(described).find_map(|spec| spec.mistakes().into_iter().next());
        let mistake = self.goal.mistakes().into_iter().next().or(of_workloads).map(|(_, message)| message);
        match mistake.or_else(|| self.measured.mistake()) {
            Some(message) => Err(ResolvedError::Figure { message }),
            None => Ok(self),
        }
    }

    /// The table as TOML: sorted, without times or paths.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("BUG: a resolved table is always TOML")
    }
}

#[cfg(test)]
mod tests {
    use super::{Resolved, Selected};
    use crate::config::ConfigFile;
    use crate::device::DeviceFacts;
    use crate::lock::Lock;
    use crate::profile::ProfileTable;
    use crate::source::Source;
    use crate::workload::{Mlp, Transformer, WorkloadSpec};

    #[test]
    fn a_program_takes_along_what_is_selected_and_what_is_the_users_own() {
        let text = "[profile.mine]\nbase = \"l4\"\n\n[profile.t4]\nboard.tdp_w = 60.0\n";
        let file = ConfigFile::parse(Source { file: "gpu-tuned.toml", text }).expect("valid");
        let mut table = ProfileTable::builtin().clone();
        file.profiles.iter().cloned().for_each(|profile| table.insert(profile));
        let id = |id: &str| id.parse().expect("an id");
        let declared = ["h200", "rtx4090", "t4", "a100-sxm4-80gb"].map(id).to_vec();
        let resolved = Resolved::new(Selected::Targets(vec![id("h200")]), declared, &file, &table);
        let taken = resolved.for_runtime();
        let ids: Vec<_> = taken.profile.iter().map(|profile| profile.id.as_str()).collect();
        assert_eq!(ids, ["generic", "h200", "mine", "t4"]);
        assert_eq!(Resolved::from_toml(&taken.to_toml()).expect("it reads back"), taken);
    }

    const LOCK: &str = r#"format = 1

[workload.lm]
host_ms_per_sample = 0.5
parameters = 1_000
shape = "00ff"

[workload.lm.described.transformer]
d_model = 64
layers = 2
seq = 64
vocab = 256

[workload.lm.goal]
global_batch = 64

[workload.lm.on.t4]
burn = "0.22.1"
device = "Tesla T4"
kind = "gpu"
memory_bytes = 16_000_000_000
sm_count = 40

[workload.lm.on.t4.mode.f32]
way = "executed"

[workload.lm.on.t4.mode.f32.batch.8]
micro_step_ms = 10.5
reserved_bytes = 4_000_000
residual = 0.01
"#;

    fn with_measured() -> Resolved {
        let lock =
            Lock::parse(Source { file: Lock::NAME, text: &format!("{LOCK}{}", Lock::END) }).expect("it is valid");
        Resolved::of_builtin("t4").expect("it is shipped").with_measured(lock)
    }

    #[test]
    fn measurements_go_along_and_belong_to_their_description() {
        let resolved = with_measured();
        let taken = Resolved::from_toml(&resolved.for_runtime().to_toml()).expect("it reads back");
        assert_eq!(taken.measured, resolved.measured);
        let lm = Transformer::new(2, 64, 256, 64);
        let measured = taken.workload(None, &lm.clone().into());
        assert_eq!((measured.measured.on.len(), measured.sample.host_ms), (1, Some(0.5)));
        let deeper = Transformer { layers: 3, ..lm.clone() };
        assert_eq!(taken.workload(None, &deeper.clone().into()), deeper.workload());
        let before = taken.measured.measured_before(None, &deeper.into()).expect("it is of the same kind");
        let said = "gpu-tuned.lock: `lm` was measured with layers = 2, now 3: run `cargo gpu-tuned measure`";
        assert_eq!(before.to_string(), said);
        let images: WorkloadSpec = Mlp { widths: vec![8, 8] }.into();
        assert_eq!(taken.measured.measured_before(None, &images), None);
        assert_eq!(taken.measured.measured_before(Some("other"), &images), None);
        assert!(taken.measured.measured_before(Some("lm"), &images).is_some());
        assert_eq!(taken.measured.measured_before(Some("lm"), &lm.into()), None);
    }

    /// What `LOCK` has of a T4, and of an H200 under an older name.
    fn with_renamed(target: &str) -> Resolved {
        let (_, lm) = LOCK.split_once('\n').expect("lines");
        let older = lm.replace("workload.lm", "workload.a-old").replace("ms_per_sample = 0.5", "ms_per_sample = 0.25");
        let older = older.replace("on.t4", "on.h200").replace("Tesla T4", "NVIDIA H200").replace("= 40", "= 132");
        let lock = Lock::parse(Source { file: Lock::NAME, text: &format!("{LOCK}{older}{}", Lock::END) })
            .expect("it is valid");
        Resolved::of_builtin(target).expect("it is shipped").with_measured(lock)
    }

    #[test]
    fn of_equal_descriptions_the_own_name_counts_then_the_device() {
        let (lm, older) = (Some(0.5), Some(0.25));
        let spec = Transformer::new(2, 64, 256, 64).into();
        let host_ms = |target: &str, name| with_renamed(target).workload(name, &spec).sample.host_ms;
        for target in ["t4", "h200", "generic"] {
            assert_eq!((host_ms(target, Some("lm")), host_ms(target, Some("a-old"))), (lm, older), "{target}");
        }
        assert_eq!((host_ms("t4", None), host_ms("h200", None)), (lm, older));
        // A name that was not measured says nothing.
        assert_eq!((host_ms("t4", Some("other")), host_ms("h200", Some("other"))), (lm, older));
        let found = |id: &str| {
            let facts = DeviceFacts::nominal(ProfileTable::builtin().get(id).expect("it is shipped"));
            with_renamed("generic").workload_on(None, &spec, &[facts]).sample.host_ms
        };
        assert_eq!((found("t4"), found("h200")), (lm, older));
        // Nothing is left of figures of another Burn.
        let mut emptied = with_renamed("generic");
        emptied.measured.workload.get_mut("a-old").expect("it is there").measured.on.clear();
        assert_eq!(emptied.workload(None, &spec).sample.host_ms, lm);
    }

    #[test]
    fn a_measurement_that_no_lock_may_hold_is_a_damaged_table() {
        let text = with_measured().to_toml();
        for (good, bad) in [
            ("host_ms_per_sample = 0.5", "host_ms_per_sample = nan"),
            ("micro_step_ms = 10.5", "micro_step_ms = -10.5"),
            ("batch.8]", "batch.0]"),
            ("reserved_bytes = 4000000", "reserved_bytes = 2251799813685248"),
            ("residual = 0.01", "residual = inf"),
            ("layers = 2", "layers = 0"),
        ] {
            assert!(text.contains(good), "{text}");
            let error = Resolved::from_toml(&text.replace(good, bad)).expect_err(bad);
            assert!(error.to_string().ends_with("; build again"), "{error}");
        }
    }
}
