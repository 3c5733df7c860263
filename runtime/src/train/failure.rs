//! Out-of-memory, which Burn reports in words alone.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde::Serialize;

use super::outcome::StepError;
use crate::mixed::MixedError;

/// What is said of an allocation that failed, in the words of `CubeCL` 0.11 and of the CUDA driver.
///
/// The last three are about what follows from one. A buffer that could not be allocated has no place, so that a kernel
/// that would have written it is not launched; what else that kernel would have written then carries "never initialized"
/// as the root of its failure, and only the buffer itself carries the allocation's own error. Nothing but an allocation
/// gives a buffer its place, and work on it is queued behind the allocation, so that these words have no other cause.
const WORDS: [&str; 6] = [
    "out of device memory",
    "can't allocate buffer of size",
    "OUT_OF_MEMORY",
    "every page size the memory tracks still holds live allocations",
    "Memory location was never initialized",
    "the reservation behind it failed",
];
/// What is said of a device that a fault has made useless: allocations fail there, too, and not for want of memory.
const LOST: [&str; 2] = ["device is poisoned", "device was poisoned"];

/// Whether an error or a panic of Burn's speaks of memory that could not be had.
///
/// Burn keeps no type for it. An allocation that failed because the device is lost is told from others only where the
/// message says so.
pub fn is_out_of_memory(message: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|words| message.contains(words));
    has(&WORDS) && !has(&LOST)
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

    use super::{Moment, is_out_of_memory, watched};

    /// What was read on an H200 when no memory was left for the optimizer: a fused kernel of several results, one of
    /// which had no place.
    const ONE_OF_SEVERAL: &str = "An error happened during execution
Caused by:
  Several failures at once
Caused by:
  The bytes were never written (failure #168866, still claiming 6 buffer(s))
  skipped `ElemwiseFuse`: it needed memory ManagedMemoryId { value: 277495 }, which carried the failure
  skipped `ReduceKernel`: it needed memory ManagedMemoryId { value: 277489 }, which carried the failure
  skipped `ElemwiseFuse`: it needed memory ManagedMemoryId { value: 277311 }, which carried the failure
  skipped `SliceKernel`: it needed memory ManagedMemoryId { value: 276482 }, which carried the failure
Caused by:
  An IO error happened
Caused by:
  couldn't find resource for that handle: Memory location was never initialized
No backtrace available
Asked at:
No backtrace available";

    /// The same chain, with another root.
    fn rooted(root: &str) -> String {
        ONE_OF_SEVERAL.replace("couldn't find resource for that handle: Memory location was never initialized", root)
    }

    #[test]
    fn what_follows_from_an_allocation_that_failed_is_want_of_memory() {
        let roots = [
            "out of device memory allocating 4096 bytes",
            "can't allocate buffer of size: 68719476736",
            "couldn't find resource for that handle: memory ManagedMemoryId { value: 7 } was never allocated: the \
             reservation behind it failed",
            "Can't allocate 4096 bytes: every page size the memory tracks still holds live allocations",
        ];
        assert!(is_out_of_memory(ONE_OF_SEVERAL));
        for root in roots {
            assert!(is_out_of_memory(&rooted(root)), "{root}");
        }
    }

    #[test]
    fn other_roots_of_work_that_was_skipped_are_errors() {
        let roots = [
            "couldn't find resource for that handle: Memory location points to a different allocation",
            "couldn't find resource for that handle: Memory pool 3 doesn't exist",
            "the storage holds no allocation for that handle: StorageId { value: 5 }",
            "A launch error happened\nCaused by:\n  A compilation error happened during launch\nCaused by:\n  ptxas: syntax",
            "The device is poisoned: cuStreamSynchronize: CUDA_ERROR_ILLEGAL_ADDRESS",
            "The work writing this buffer was torn down before it could say what went wrong",
            "CUDA allocation error: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS)",
        ];
        for root in roots {
            assert!(!is_out_of_memory(&rooted(root)), "{root}");
        }
        // Allocations fail on a device that is lost, and what would have used them.
        let poison = "The device is poisoned\nCaused by:\n  cuLaunchKernel: CUDA_ERROR_ILLEGAL_ADDRESS";
        assert!(!is_out_of_memory(&format!("{ONE_OF_SEVERAL}\n{poison}")));
    }

    #[test]
    fn a_panic_for_want_of_memory_is_told_from_others() {
        let words = "Failed to read: out of device memory allocating 4096 bytes";
        let failure = watched::<()>(Moment::Forward, || panic!("{words}")).unwrap_err();
        assert_eq!((failure.moment, failure.message.as_str()), (Moment::Forward, words));
        assert!(catch_unwind(|| watched(Moment::Forward, || panic!("index out of bounds"))).is_err());
        assert_eq!(watched(Moment::Forward, || 7).unwrap(), 7);
    }
}
