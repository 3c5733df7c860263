//! Chosen devices, and their differences from those of the build.

mod fallback;
mod fit;
mod gpus;
mod preference;

use std::fmt;

use gpu_tuned_core::device::ComputeCapability;
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::{Setting, SettingValue};
use serde::Serialize;

pub use fallback::Fallback;
pub use fit::{FirstFit, Fit};
pub use gpus::{SelectedGpu, Shortfall};
pub use preference::PassedOver;

use crate::resume::Resumed;

/// Choice of the runtime: the device, its match with a profile, and the reasons for differences from the build.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Selection {
    /// Targets of the build: `rtx4090`, `h200 + rtx4090`, `generic`.
    pub built_for: String,
    /// The GPU; `None` on the CPU.
    pub gpu: Option<SelectedGpu>,
    /// GPUs that come before the taken one, and why they are not taken.
    pub passed_over: Vec<PassedOver>,
    /// In what the devices of several ranks are unequal. The plan is for the least of each.
    pub weakest: Vec<Shortfall>,
    /// Why the constants of the build could not be used as they are; empty when they are confirmed, or when the build
    /// left the decision to the runtime.
    pub fallbacks: Vec<Fallback>,
    /// Comparison with the saved run; `None` for a new run.
    pub resumed: Option<Resumed>,
    /// The settings that differ from the constants of the build.
    pub changes: Vec<Change>,
}

/// Match of a device with a profile, from best to worst.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "match", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Recognised {
    /// All readings of the driver match the profile.
    Exact {
        /// The profile's id.
        profile: String,
    },
    /// Nearly the profile's GPU: other memory or multiprocessors, a slice, a modified board.
    Variant {
        /// The nearest profile's id.
        profile: String,
        /// The difference.
        differences: Vec<Difference>,
    },
    /// No profile matches the GPU; its compute capability has the features.
    Class {
        /// The compute capability.
        compute_capability: ComputeCapability,
    },
    /// GPU without identification by the driver.
    Unknown,
    /// The CPU.
    Cpu,
}

impl From<&Match> for Recognised {
    fn from(found: &Match) -> Self {
        match found {
            Match::Exact { profile } => Self::Exact { profile: profile.id.to_string() },
            Match::Variant { profile, differences } => {
                Self::Variant { profile: profile.id.to_string(), differences: differences.clone() }
            }
            Match::Class { compute_capability } => Self::Class { compute_capability: *compute_capability },
            Match::Unknown => Self::Unknown,
        }
    }
}

/// A setting that differs from the constant of the build.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// The constant of the build.
    pub built: SettingValue,
    /// The value that is used.
    pub used: SettingValue,
    /// True if the user set it in the config.
    pub by_user: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.setting, self.built, self.used)?;
        match (self.by_user, self.setting.row().changes_results) {
            (true, true) => f.write_str(" (set by you, changes results)"),
            (true, false) => f.write_str(" (set by you)"),
            (false, true) => f.write_str(" (changes results)"),
            (false, false) => Ok(()),
        }
    }
}

impl Selection {
    /// Returns true if the constants of the build apply unchanged.
    pub fn is_confirmed(&self) -> bool {
        self.fallbacks.is_empty() && self.changes.is_empty()
    }

    /// Match of the device with a profile.
    pub fn device(&self) -> &Recognised {
        self.gpu.as_ref().map_or(&Recognised::Cpu, |gpu| &gpu.device)
    }

    /// Name of the device.
    pub fn device_name(&self) -> String {
        self.gpu.as_ref().map_or_else(|| "CPU".to_owned(), SelectedGpu::name)
    }
}

/// One line for the device, then one a fallback, one for the saved run and one for the changes.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "built for {}, ", self.built_for)?;
        match &self.gpu {
            None => f.write_str("using the CPU")?,
            Some(gpu) => write!(f, "found {gpu}")?,
        }
        if let Some(remark) = self.gpu.as_ref().and_then(|gpu| gpu.memory_remark.as_ref()) {
            write!(f, "\n  {remark}")?;
        }
        for passed_over in &self.passed_over {
            write!(f, "\n  {passed_over}")?;
        }
        if !self.weakest.is_empty() {
            let weakest: Vec<_> = self.weakest.iter().map(ToString::to_string).collect();
            write!(f, "\n  planned for the weakest: {}", weakest.join("; "))?;
        }
        for fallback in &self.fallbacks {
            write!(f, "\n  fallback: {fallback}")?;
        }
        if let Some(resumed) = &self.resumed {
            write!(f, "\n  {resumed}")?;
        }
        if self.is_confirmed() {
            f.write_str("\n  the constants of the build are confirmed")?;
        }
        if !self.changes.is_empty() {
            let changes: Vec<_> = self.changes.iter().map(ToString::to_string).collect();
            write!(f, "\n  changed: {}", changes.join(", "))?;
        }
        Ok(())
    }
}
