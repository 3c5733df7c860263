use std::fmt;

use gpu_tuned_core::{Bytes, Precision};
use serde::Serialize;

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
}

impl Fallback {
    /// Returns true if the fallback changes the results of the run.
    pub fn changes_meaning(&self) -> bool {
        matches!(
            self,
            Self::Precision { .. } | Self::NotReady { .. } | Self::BatchStatistics { .. } | Self::Tf32 { .. }
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
        }
    }
}
