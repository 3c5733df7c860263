//! Why there is no session.

use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::{Kernels, Pins, Precision, SetError};
use gpu_tuned_project::resolved::ResolvedError;
use thiserror::Error;

use super::Options;
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
    /// This process cannot train with the other ranks.
    #[cfg(feature = "distributed")]
    #[error(transparent)]
    Ranks(#[from] crate::ranks::RanksError),
    /// A launcher started several processes, and the program trains in one: each would train a copy of the model.
    #[error(
        "a launcher started {world_size} processes ({variable}), and each would train its own copy of the model: {}, or \
         for separate runs call `Options::independent` or set {}=1",
        if cfg!(feature = "distributed") {
            "start the session with `Options::distributed` or `Options::distributed_if_launched`"
        } else {
            "enable feature `distributed` of gpu-tuned and start the session with `Options::distributed`"
        },
        Options::INDEPENDENT_VARIABLE
    )]
    Copies {
        /// Processes of the launch.
        world_size: usize,
        /// Variable with that number.
        variable: &'static str,
    },
    /// An environment variable that switches an option is neither yes nor no.
    #[error("{variable} is `{value}`: expected 1 or 0")]
    Switch {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
    },
    /// The saved run cannot be resumed.
    #[error(transparent)]
    Resume(#[from] ResumeError),
    /// [`SET_VARIABLE`](Options::SET_VARIABLE) fixes no settings.
    #[error("{}: {cause}", Options::SET_VARIABLE)]
    Set {
        /// The word, with valid ones.
        cause: SetError,
    },
    /// There is no plan with the settings that were fixed for this start.
    #[error(
        "{cause}\n  help: `{set}` was set for this start, and the samples of a step stay the same: choose other values, \
         or leave it out"
    )]
    SetPlan {
        /// Settings of this start.
        set: Box<Pins>,
        /// Why it makes no plan.
        cause: Box<PlanError>,
    },
    /// A config field is out of the range of a model dimension.
    #[error("the config describes no model: {message}")]
    Dimensions {
        /// The dimension and its range.
        message: String,
    },
    /// The value of a tuned field is no precision.
    #[error(
        "the config's `{field}` names no precision: expected {}, or a usual name of one, such as bf16",
        Precision::ALL.map(Precision::name).join(", ")
    )]
    Precision {
        /// The field.
        field: &'static str,
    },
    /// The value of a tuned field names no kernels.
    #[error("the config's `{field}` names no kernels: expected {}", Kernels::ALL.map(Kernels::name).join(" or "))]
    Kernels {
        /// The field.
        field: &'static str,
    },
    /// The value of a tuned field is a negative count.
    #[error("the config's `{field}` is {count}: expected a count, which is not negative")]
    Negative {
        /// The field.
        field: &'static str,
        /// The value.
        count: i64,
    },
    /// Strict mode: the constants of the build cannot be used as they are.
    #[error(
        "strict mode: the settings of the build (for {built_for}) do not suit this machine: {}; build for this machine, or train \
         without {}",
        fallbacks.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Options::STRICT_VARIABLE
    )]
    Strict {
        /// Targets of the build.
        built_for: String,
        /// Reasons why its constants do not apply.
        fallbacks: Vec<Fallback>,
    },
    /// `cargo gpu-tuned measure` or `bench` asks for steps with the library's kernels, which cannot be used.
    #[error("the library's kernels cannot be measured: {because}")]
    NotMeasured {
        /// Why the library cannot be used, and what to do.
        because: String,
    },
    /// The CPU does not take the planned precision.
    #[cfg(feature = "burn")]
    #[error(transparent)]
    Open(#[from] gpu_tuned_train::device::OpenError),
}

impl StartError {
    /// The error with the settings that were fixed for this start.
    pub(super) fn with_pins(self, set: Pins) -> Self {
        match self {
            Self::Plan(cause) if !set.is_empty() => Self::SetPlan { set: Box::new(set), cause: Box::new(cause) },
            other => other,
        }
    }
}
