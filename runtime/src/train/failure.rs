//! Out-of-memory, which Burn reports in words alone.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde::Serialize;

use super::outcome::StepError;
use crate::mixed::MixedError;

/// Whether an error or a panic of Burn's speaks of memory that could not be had.
///
/// Burn keeps no type for it: these are the words of `CubeCL` 0.11 and of the CUDA driver.
pub fn is_out_of_memory(message: &str) -> bool {
    ["out of device memory", "can't allocate buffer of size", "OUT_OF_MEMORY"]
        .iter()
        .any(|words| message.contains(words))
}

/// What was done when memory ran out.
///
/// The stack stays silent about most of it: work that has no memory is skipped, and so is all that depends on it, until a
/// value is read. Then it is only known what it struck at the latest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Moment {
    /// A micro-batch was brought to the device.
    Upload,
    /// The loss was computed.
    Forward,
    /// Gradients were computed and added up.
    Backward,
    /// The optimizer changed the parameters.
    Optimizer,
    /// Anything of it: the step's results could not be read.
    Step,
}

impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upload => "while a micro-batch was brought to the device",
            Self::Forward => "in the forward pass",
            Self::Backward => "in the backward pass",
            Self::Optimizer => "in the optimizer",
            Self::Step => "somewhere in the step",
        })
    }
}

/// Memory that could not be had.
#[derive(Clone, Debug)]
pub(crate) struct OutOfMemory {
    pub moment: Moment,
    /// Burn's words.
    pub message: String,
}

/// Why an attempt did not become a step.
pub(super) enum Stopped {
    OutOfMemory(OutOfMemory),
    Error(StepError),
}

impl From<OutOfMemory> for Stopped {
    fn from(failure: OutOfMemory) -> Self {
        Self::OutOfMemory(failure)
    }
}

impl From<StepError> for Stopped {
    fn from(error: StepError) -> Self {
        Self::Error(error)
    }
}

impl From<MixedError> for Stopped {
    fn from(error: MixedError) -> Self {
        Self::Error(error.into())
    }
}

/// Runs a part of a step. A panic for want of memory becomes an error, any other goes on.
pub(crate) fn watched<T>(moment: Moment, part: impl FnOnce() -> T) -> Result<T, OutOfMemory> {
    catch_unwind(AssertUnwindSafe(part)).or_else(|payload| match message(payload.as_ref()) {
        Some(message) if is_out_of_memory(message) => Err(OutOfMemory { moment, message: message.to_owned() }),
        _ => resume_unwind(payload),
    })
}

fn message(payload: &(dyn Any + Send)) -> Option<&str> {
    let text = payload.downcast_ref::<&str>().copied();
    text.or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::{Moment, watched};

    #[test]
    fn a_panic_for_want_of_memory_is_told_from_others() {
        let words = "Failed to read: out of device memory allocating 4096 bytes";
        let failure = watched::<()>(Moment::Forward, || panic!("{words}")).unwrap_err();
        assert_eq!((failure.moment, failure.message.as_str()), (Moment::Forward, words));
        assert!(catch_unwind(|| watched(Moment::Forward, || panic!("index out of bounds"))).is_err());
        assert_eq!(watched(Moment::Forward, || 7).unwrap(), 7);
    }
}
