//! Failures inside an attempt at a step.

use super::outcome::StepError;
use super::ranks::Ended;
use crate::mixed::MixedError;
use crate::out_of_memory::OutOfMemory;

/// Failure of an attempt: out of memory leads to another attempt, an error ends the step.
pub(super) enum StepFailure {
    OutOfMemory(OutOfMemory),
    Error(StepError),
}

impl From<OutOfMemory> for StepFailure {
    fn from(failure: OutOfMemory) -> Self {
        Self::OutOfMemory(failure)
    }
}

impl From<StepError> for StepFailure {
    fn from(error: StepError) -> Self {
        Self::Error(error)
    }
}

impl From<MixedError> for StepFailure {
    fn from(error: MixedError) -> Self {
        Self::Error(error.into())
    }
}

impl From<Ended> for StepFailure {
    fn from(ended: Ended) -> Self {
        Self::Error(ended.into())
    }
}
