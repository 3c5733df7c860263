use gpu_tuned_core::plan::PlanError;
use gpu_tuned_project::resolved::ResolvedError;
use thiserror::Error;

use crate::resume::ResumeError;
use crate::saved::SavedRun;

/// Why there is no decision.
#[derive(Debug, Error)]
pub(crate) enum DecideError {
    #[error(transparent)]
    Table(#[from] ResolvedError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{0}")]
    Dimensions(String),
    #[error("`{0}` names no precision")]
    Precision(&'static str),
    #[error(transparent)]
    Gpus(#[from] GpusError),
    #[error(transparent)]
    Resume(#[from] ResumeError),
}

/// Reason why this process cannot train on the requested GPUs, as one of several processes.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GpusError {
    /// The goal's ranks are no multiple of the GPUs here.
    #[error(
        "{world_size} ranks cannot be made of machines with {local} GPUs each; {} would do, or another world_size",
        would_do.iter().map(u64::to_string).collect::<Vec<_>>().join(" or ")
    )]
    Share {
        /// GPUs asked for here.
        local: u64,
        /// Ranks that train together.
        world_size: u64,
        /// The numbers of GPUs here that divide the ranks.
        would_do: Vec<u64>,
    },
    /// Not all of the GPUs are usable, and other machines count on them.
    #[error(
        "{usable} of the {asked} GPUs asked for can be used ({}), and other machines of the {world_size} ranks count on all \
         of them: repair this, or set world_size and the machines' GPUs anew",
        because.join("; ")
    )]
    Missing {
        /// GPUs asked for here.
        asked: u64,
        /// Usable GPUs.
        usable: u64,
        /// Ranks that train together.
        world_size: u64,
        /// Why not all can be used: one sentence each.
        because: Vec<String>,
    },
}

impl DecideError {
    /// Returns true if the device lacks the precision that the plan or the saved run needs.
    pub(super) const fn is_of_precision(&self) -> bool {
        matches!(
            self,
            Self::Plan(PlanError::PrecisionUnsupported { .. }) | Self::Resume(ResumeError::PrecisionUnsupported { .. })
        )
    }

    /// The error as that of a resumed run, when there is a run to resume: its global batch is not to be argued with.
    pub(super) fn for_run(self, saved: Option<&SavedRun>) -> Self {
        match self {
            Self::Plan(PlanError::WorldSize { global_batch, world_size, would_do }) if saved.is_some() => {
                ResumeError::WorldSize { global_batch, world_size, would_do }.into()
            }
            other => other,
        }
    }
}
