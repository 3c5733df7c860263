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
mod tests;
