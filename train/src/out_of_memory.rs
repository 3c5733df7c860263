//! Out-of-memory errors, which Burn reports as text only.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use serde::Serialize;

use crate::device::panic_message;

/// Phrases of `CubeCL` 0.11 and of the CUDA driver for an allocation that failed.
///
/// The last three report a consequence. A buffer without memory has no address, so its kernel is not launched. Other outputs
/// of that kernel then carry "never initialized" as the root of their failure; only the buffer itself carries the
/// allocation's error. An allocation alone gives a buffer its address, so these phrases have no other cause.
const WORDS: [&str; 6] = [
    "out of device memory",
    "can't allocate buffer of size",
    "OUT_OF_MEMORY",
    "every page size the memory tracks still holds live allocations",
    "Memory location was never initialized",
    "the reservation behind it failed",
];
/// Phrases for a device that a fault has made unusable. Allocations fail there too, for another reason.
const LOST: [&str; 2] = ["device is poisoned", "device was poisoned"];

/// Returns true for the message of a Burn error or panic that reports an out-of-memory error.
///
/// Burn has no error type for it. A failed allocation on a lost device counts as out of memory, unless the message names the
/// lost device.
pub fn is_out_of_memory(message: &str) -> bool {
    let has = |words: &[&str]| words.iter().any(|words| message.contains(words));
    has(&WORDS) && !has(&LOST)
}

/// Phase of a step in which memory ran out.
///
/// CubeCL skips work without memory, and all dependent work, silently until a value is read. The phase is therefore the
/// latest possible one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Moment {
    /// Upload of a micro-batch.
    Upload,
    /// Forward pass.
    Forward,
    /// Backward pass and gradient accumulation.
    Backward,
    /// Parameter update.
    Optimizer,
    /// Unknown phase: the step's results could not be read.
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

/// Failed allocation.
#[derive(Clone, Debug)]
pub(crate) struct OutOfMemory {
    pub moment: Moment,
    /// Burn's message.
    pub message: String,
}

/// Runs a part of a step. Turns an out-of-memory panic into an error, and resumes any other panic.
pub(crate) fn watched<T>(moment: Moment, part: impl FnOnce() -> T) -> Result<T, OutOfMemory> {
    catch_unwind(AssertUnwindSafe(part)).or_else(|payload| match panic_message(payload.as_ref()) {
        Some(message) if is_out_of_memory(message) => Err(OutOfMemory { moment, message: message.to_owned() }),
        _ => resume_unwind(payload),
    })
}

#[cfg(test)]
mod tests {
    use std::panic::catch_unwind;

    use super::{Moment, is_out_of_memory, watched};

    /// Message from an H200 without memory for the optimizer: a fused kernel of several outputs, one without an address.
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
