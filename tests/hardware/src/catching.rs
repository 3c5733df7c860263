//! Failures on a GPU, which come as errors of a read or as panics.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

use gpu_tuned::train::is_out_of_memory;
use serde::Serialize;

/// Failure of training on a batch.
#[derive(Clone, Debug, Serialize, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// True if the message mentions memory.
    pub out_of_memory: bool,
    /// Burn's message.
    pub message: String,
}

impl Failure {
    fn new(message: String) -> Self {
        Self { out_of_memory: is_out_of_memory(&message), message }
    }
}

/// Runs `step`; converts panics to failures, like errors.
pub fn catching<T>(step: impl FnOnce() -> anyhow::Result<T>) -> Result<T, Failure> {
    match catch_unwind(AssertUnwindSafe(step)) {
        Ok(outcome) => outcome.map_err(|error| Failure::new(format!("{error:#}"))),
        Err(payload) => Err(Failure::new(message(payload.as_ref()))),
    }
}

fn message(payload: &(dyn Any + Send)) -> String {
    let text = payload.downcast_ref::<&str>().copied().map(str::to_owned);
    text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without a message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::catching;

    #[test]
    fn errors_and_panics_are_failures() {
        assert_eq!(catching(|| Ok(1)).expect("no failure"), 1);
        let lost = catching::<()>(|| anyhow::bail!("lost")).expect_err("an error");
        assert!(!lost.out_of_memory && lost.message == "lost");
        let full = catching::<()>(|| panic!("can't allocate buffer of size 7")).expect_err("a panic");
        assert!(full.out_of_memory);
    }
}
