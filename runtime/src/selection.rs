//! The chosen device, and its differences from those of the build.

use std::fmt;

use gpu_tuned_core::matching::Match;
use gpu_tuned_core::{Bytes, Precision, Setting, SettingValue};
use gpu_tuned_nvml::{PassedOver, UsableGpu};
use serde::{Deserialize, Serialize};

use crate::resume::Resumed;

/// Choice of the runtime: the device, its match with a profile, and the reasons for differences from the build.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Selection {
    /// Targets of the build: `rtx4090`, `h200 + rtx4090`, `generic`.
    pub built_for: String,
    /// The GPU; `None` on the CPU.
    pub gpu: Option<UsableGpu>,
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

    /// Match of the GPU with a profile; `None` on the CPU.
    pub fn device(&self) -> Option<&Match> {
        self.gpu.as_ref().map(|gpu| &gpu.found)
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
        /// Name in the driver.
        found: String,
    },
    /// The GPU has too little free memory for the planned settings.
    Memory {
        /// Memory needed by the planned settings.
        needed: Bytes,
        /// Available memory.
        available: Bytes,
    },
    /// The micro-batch of the saved run does not fit. Another one makes up the same global batch.
    SavedMicroBatch {
        /// The micro-batch of the saved run.
        saved: u64,
        /// The micro-batch that is used.
        used: u64,
        /// The device.
        device: String,
        /// Available memory of the device.
        available: Bytes,
    },
    /// The micro-batch of the saved run exceeds a rank's part of a step. Another micro-batch makes up the same global
    /// batch.
    SavedShare {
        /// The micro-batch of the saved run.
        saved: u64,
        /// The micro-batch that is used.
        used: u64,
        /// Samples of an optimizer step on one rank.
        share: u64,
    },
    /// The device trains in another precision than was requested or planned. This changes what the run computes.
    Precision {
        /// The requested precision, or the one of the build.
        asked: Precision,
        /// The precision that is used.
        used: Precision,
    },
    /// The model is not ready for 16 bits, and the planner chose the precision: it trains in f32. This changes what the run
    /// computes.
    NotReady {
        /// Why not, and the edit to make.
        because: String,
    },
    /// The micro-batch of a model that computes statistics over it had to change. This changes what the run computes.
    BatchStatistics {
        /// The micro-batch that was planned.
        planned: u64,
    },
    /// TF32 could not be switched off. This changes what the run computes.
    Tf32 {
        /// Why not, and what to do.
        because: String,
    },
    /// The kernels of the library cannot be used: Burn's compute. This changes the results by rounding.
    Kernels {
        /// Why not, and what to do.
        because: String,
    },
}

impl Fallback {
    /// Returns true if the fallback changes the results of the run.
    pub fn changes_meaning(&self) -> bool {
        matches!(
            self,
            Self::Precision { .. }
                | Self::NotReady { .. }
                | Self::BatchStatistics { .. }
                | Self::Tf32 { .. }
                | Self::Kernels { .. }
        )
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
            Self::SavedMicroBatch { saved, used, device, available } => {
                write!(f, "the saved micro-batch of {saved} does not fit {device} with {available} free, {used} does")
            }
            Self::SavedShare { saved, used, share } => {
                write!(f, "the saved micro-batch of {saved} is more than a rank's {share} samples, {used} is used")
            }
            Self::Precision { asked, used } => {
                write!(f, "precision {used} in place of {asked}, which changes the results")
            }
            Self::NotReady { because } => {
                write!(f, "precision f32 in place of 16 bits, which changes the results: {because}")
            }
            Self::BatchStatistics { planned } => {
                write!(f, "the micro-batch of {planned} cannot be kept; another one changes the batch statistics")
            }
            Self::Tf32 { because } => write!(f, "TF32 stays on, which changes the results: {because}"),
            Self::Kernels { because } => {
                write!(f, "kernels burn in place of library, which changes the results by rounding: {because}")
            }
        }
    }
}

/// A figure in which the device of one of several ranks falls behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "figure", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shortfall {
    /// Memory that a new process could take.
    Memory {
        /// The rank with the least.
        rank: usize,
        /// Its host.
        host: String,
        /// Free memory of its device.
        free: Bytes,
        /// Free memory of another device.
        most: Bytes,
    },
    /// Peak f32 rate, 10^12 operations per second.
    Rate {
        /// The rank with the least.
        rank: usize,
        /// Its host.
        host: String,
        /// Rate of its device.
        tflops: f64,
        /// Rate of another device.
        most: f64,
    },
    /// Peak memory bandwidth, 10^9 bytes per second.
    Bandwidth {
        /// The rank with the least.
        rank: usize,
        /// Its host.
        host: String,
        /// Bandwidth of its device.
        gb_s: f64,
        /// Bandwidth of another device.
        most: f64,
    },
    /// Tensor cores that take bf16.
    Bf16 {
        /// A rank without them.
        rank: usize,
        /// Its host.
        host: String,
    },
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Memory { rank, host, .. }
        | Self::Rate { rank, host, .. }
        | Self::Bandwidth { rank, host, .. }
        | Self::Bf16 { rank, host }) = self;
        write!(f, "rank {rank} on {host} ")?;
        match self {
            Self::Memory { free, most, .. } => write!(f, "has {free} free, not {most}"),
            Self::Rate { tflops, most, .. } => write!(f, "does {tflops:.0} TFLOP/s in f32, not {most:.0}"),
            Self::Bandwidth { gb_s, most, .. } => write!(f, "reads {gb_s:.0} GB/s, not {most:.0}"),
            Self::Bf16 { .. } => f.write_str("has no bf16 tensor cores"),
        }
    }
}
