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
    #[error("`{field}` is {count}")]
    Negative { field: &'static str, count: i64 },
    #[error(transparent)]
    Resume(#[from] ResumeError),
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
