//! Failures inside an attempt at a step.

use super::outcome::StepError;
use crate::out_of_memory::{Moment, OutOfMemory};

/// Failure of an attempt: out of memory leads to another attempt, an error ends the step.
pub(super) enum StepFailure {
    OutOfMemory(OutOfMemory),
    Error(StepError),
}

impl StepFailure {
    /// Replaces the moment of an out-of-memory error.
    pub(super) fn at(self, moment: Moment) -> Self {
        match self {
            Self::OutOfMemory(failure) => Self::OutOfMemory(OutOfMemory { moment, ..failure }),
            error @ Self::Error(_) => error,
        }
    }

    /// Message of the failure.
    pub(super) fn into_message(self) -> String {
        match self {
            Self::OutOfMemory(failure) => failure.message,
            Self::Error(error) => error.to_string(),
        }
    }

    /// Turns a failure of the device, out-of-memory included, into an error with its message. Keeps other errors.
    pub(super) fn into_final(self, error: impl FnOnce(String) -> StepError) -> Self {
        Self::Error(match self {
            Self::OutOfMemory(failure) => error(failure.message),
            Self::Error(StepError::Device(failure)) => error(failure.to_string()),
            Self::Error(other) => other,
        })
    }
}

impl From<OutOfMemory> for StepFailure {
    fn from(failure: OutOfMemory) -> Self {
        Self::OutOfMemory(failure)
    }
}

impl<E: Into<StepError>> From<E> for StepFailure {
    fn from(error: E) -> Self {
        Self::Error(error.into())
    }
}
