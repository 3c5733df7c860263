//! Files drawn at random.

pub(crate) mod locks;
pub(crate) mod mutated;
#[path = "../../../../core/src/plan/tests/planner/workloads.rs"]
pub(crate) mod workloads;
pub(crate) mod written;

use gpu_tuned_core::source::FileError;

/// Returns true if the error's place is in the text, or just behind its line.
pub(crate) fn is_in(error: &FileError, text: &str) -> bool {
    let line = text.split('\n').nth(error.place.line.wrapping_sub(1));
    let length = line.map(|line| line.chars().count());
    error.place.column >= 1 && length.is_some_and(|length| error.place.column <= length + 1)
}
