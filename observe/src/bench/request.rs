//! Requests.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Feed, Setup};
use gpu_tuned_core::Precision;

/// A request to a program, for one precision: a process selects the precision of a device once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// File of results that lines are appended to.
    pub results: PathBuf,
    /// Precision; `None` for the planned one.
    pub precision: Option<Precision>,
    /// Micro-batches; empty for [those around the planned one](Self::around).
    pub batches: Vec<u64>,
    /// Values of activation checkpointing: off, on, or both.
    pub checkpointing: Vec<bool>,
    /// Feeds, each in addition to none.
    pub feeds: Vec<Feed>,
    /// Seconds for the repeats of a setup.
    pub seconds: f64,
    /// Bytes at the begin of the file of results that are ignored: their setups run again.
    pub ignored_bytes: u64,
}

impl Request {
    /// Environment variable with a request, as JSON.
    pub const VARIABLE: &'static str = "GPU_TUNED_BENCH";

    /// Returns the powers of two from an eighth to four times the planned micro-batch, and that itself, up to `largest`.
    pub fn around(planned: u64, largest: u64) -> Vec<u64> {
        let up_to = planned.saturating_mul(4).min(largest);
        let mut batches = powers_of_two(planned.div_ceil(8), up_to);
        batches.push(planned.min(largest));
        batches.sort_unstable();
        batches.dedup();
        batches
    }

    /// Returns the setups in their order: small batches first, since they predict larger ones, and each without a feed first.
    pub fn setups(&self, precision: Precision, batches: &[u64]) -> Vec<Setup> {
        let mut batches = batches.to_vec();
        batches.sort_unstable();
        batches.dedup();
        let mut setups = Vec::new();
        for &checkpointing in &self.checkpointing {
            for &batch in &batches {
                let unfed = Setup { precision, checkpointing, batch, feed: None };
                setups.push(unfed);
                setups.extend(self.feeds.iter().map(|feed| Setup { feed: Some(*feed), ..unfed }));
            }
        }
        setups
    }
}

/// Returns the powers of two between two numbers, both included.
pub fn powers_of_two(from: u64, to: u64) -> Vec<u64> {
    (0..u64::BITS).map(|power| 1 << power).filter(|batch| (from..=to).contains(batch)).collect()
}
