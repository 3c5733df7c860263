//! Why there is no session.

use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::{Pins, SetError};
use gpu_tuned_project::resolved::ResolvedError;
use thiserror::Error;

use super::Options;
use crate::decide::{DecideError, GpusError};
use crate::resume::ResumeError;
use crate::selection::Fallback;

/// Why a session could not be started.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// The table in the binary cannot be read.
    #[error(transparent)]
    Table(#[from] ResolvedError),
    /// There is no plan for this device: most often, not even one sample at a time fits.
    #[error(transparent)]
    Plan(#[from] PlanError),
    /// The GPUs asked for cannot be this process's part of the ranks.
    #[error(transparent)]
    Gpus(#[from] GpusError),
    /// The saved run cannot be gone on with.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// [`SET_VARIABLE`](Options::SET_VARIABLE) fixes no settings.
    #[error("{}: {cause}", Options::SET_VARIABLE)]
    Set {
        /// Which word, and what would do.
        cause: SetError,
    },
    /// There is no plan with the settings that were fixed for this start.
    #[error(
        "{cause}\n  help: `{set}` was set for this start, and the samples of a step stay the same: choose other values, \
         or leave it out"
    )]
    SetPlan {
        /// What was set.
        set: Box<Pins>,
        /// Why it makes no plan.
        cause: Box<PlanError>,
    },
    /// A field of the config holds a dimension that no model has.
    #[error("the config describes no model: {message}")]
    Dimensions {
        /// The dimension and its range.
        message: String,
    },
    /// [`STRICT_VARIABLE`](Options::STRICT_VARIABLE) says neither yes nor no.
    #[error("{} is `{said}`: expected 1 or 0", Options::STRICT_VARIABLE)]
    StrictVariable {
        /// What it says.
        said: String,
    },
    /// Strict mode: the constants of the build cannot be used as they are.
    #[error(
        "strict mode, and the constants of the build (for {built_for}) do not hold here: {}",
        fallbacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
    )]
    Strict {
        /// What the build was for.
        built_for: String,
        /// Why its constants do not hold.
        fallbacks: Vec<Fallback>,
    },
    /// The CPU does not take the planned precision.
    #[cfg(feature = "burn")]
    #[error(transparent)]
    Open(#[from] gpu_tuned_train::device::OpenError),
}

impl StartError {
    /// Why there is no decision, with these settings fixed for this start.
    pub(super) fn of(error: DecideError, set: Pins) -> Self {
        match error {
            DecideError::Table(error) => Self::Table(error),
            DecideError::Plan(source) if !set.is_empty() => {
                Self::SetPlan { set: Box::new(set), cause: Box::new(source) }
            }
            DecideError::Plan(error) => Self::Plan(error),
            DecideError::Gpus(error) => Self::Gpus(error),
            DecideError::Resume(error) => Self::Resume(error),
            DecideError::Dimensions(message) => Self::Dimensions { message },
        }
    }
}
