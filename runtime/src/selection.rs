use std::fmt;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, GpuReading};
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::{Precision, Setting, SettingValue};
use serde::Serialize;

/// What the runtime settled on: which device, what it was recognised as, and why it is not what the build was for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Selection {
    /// What the build was for: `rtx4090`, `h200 + rtx4090`, `generic`.
    pub built_for: String,
    /// The device.
    pub device: Recognised,
    /// The GPU as its driver describes it; `None` on the CPU.
    pub gpu: Option<GpuReading>,
    /// Why the constants of the build could not be used as they are; empty when they are confirmed, or when the build
    /// left the decision to the runtime.
    pub fallbacks: Vec<Fallback>,
    /// The settings that differ from the constants of the build.
    pub changes: Vec<Change>,
}

/// The rungs of the ladder, from sure to unsure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "rung", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Recognised {
    /// Everything that the driver answered is as the profile says.
    Exact {
        /// The profile's id.
        profile: String,
    },
    /// Nearly the profile's GPU: other memory or multiprocessors, a slice, a modified board.
    Variant {
        /// The nearest profile's id.
        profile: String,
        /// What differs.
        differences: Vec<Difference>,
    },
    /// No profile has this GPU; what it can do is known from its compute capability.
    Class {
        /// The compute capability.
        compute_capability: ComputeCapability,
    },
    /// A GPU of which the driver says nothing that identifies it.
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

/// Why the constants of a build could not be used as they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fallback {
    /// There is no GPU that this program can use.
    NoGpu {
        /// Why not: one sentence each.
        because: Vec<String>,
    },
    /// The GPU is not the one that the build was for.
    OtherGpu {
        /// What the driver calls it.
        found: String,
    },
    /// The GPU has too little free memory for the planned settings.
    Memory {
        /// What the planned settings need.
        needed: Bytes,
        /// What is free.
        available: Bytes,
    },
    /// The device cannot carry the precision out. This changes what the run computes.
    Precision {
        /// What was asked for.
        asked: Precision,
    },
    /// The micro-batch of a model that computes statistics over it had to change. This changes what the run computes.
    BatchStatistics {
        /// The micro-batch that was planned.
        planned: u64,
    },
}

impl Fallback {
    /// Whether the run computes something else because of it, rather than the same in another way.
    pub fn changes_meaning(&self) -> bool {
        matches!(self, Self::Precision { .. } | Self::BatchStatistics { .. })
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpu { because } if because.is_empty() => f.write_str("no GPU found"),
            Self::NoGpu { because } => write!(f, "no usable GPU: {}", because.join("; ")),
            Self::OtherGpu { found } => write!(f, "another GPU is there: {found}"),
            Self::Memory { needed, available } => {
                write!(f, "not enough memory: the planned settings need {needed}, {available} are free")
            }
            Self::Precision { asked } => write!(f, "this device cannot train in {asked}; f32 changes the results"),
            Self::BatchStatistics { planned } => {
                write!(f, "the micro-batch of {planned} does not fit; another one changes the batch statistics")
            }
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
    /// Whether the user set it in the config.
    pub by_user: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.setting, self.built, self.used)?;
        if self.by_user { f.write_str(" (set in the config)") } else { Ok(()) }
    }
}

impl Selection {
    /// Whether the constants of the build are used as they are.
    pub fn is_confirmed(&self) -> bool {
        self.fallbacks.is_empty() && self.changes.is_empty()
    }

    /// What the device is called.
    pub fn device_name(&self) -> String {
        let Some(gpu) = &self.gpu else { return "CPU".to_owned() };
        gpu.name.clone().unwrap_or_else(|| format!("GPU {}", gpu.index))
    }
}

/// One line for the device, then one for each fallback and one for the changes.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "built for {}, ", self.built_for)?;
        match (&self.device, &self.gpu) {
            (Recognised::Exact { profile }, _) => write!(f, "found {} ({profile}, exact)", self.device_name())?,
            (Recognised::Variant { profile, differences }, _) => {
                let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
                write!(f, "found {}: like {profile}, but {}", self.device_name(), differences.join(", "))?;
            }
            (Recognised::Class { compute_capability }, _) => {
                write!(f, "found {}: no profile, compute capability {compute_capability}", self.device_name())?;
            }
            (Recognised::Unknown, _) => write!(f, "found {}, which no profile describes", self.device_name())?,
            (Recognised::Cpu, _) => f.write_str("using the CPU")?,
        }
        for fallback in &self.fallbacks {
            write!(f, "\n  fallback: {fallback}")?;
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
