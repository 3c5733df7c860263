//! Requests, and the setups that they ask for.

use core::fmt;
use std::path::PathBuf;

use gpu_tuned_core::Precision;
use gpu_tuned_core::measured::Mode;
use serde::{Deserialize, Serialize};

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

/// A configuration for optimizer steps of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Setup {
    /// Precision.
    pub precision: Precision,
    /// Activation checkpointing is on.
    pub checkpointing: bool,
    /// Samples of the micro-batch.
    pub batch: u64,
    /// Loader that prepares the batches; `None` if the batch is on the device all along.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub feed: Option<Feed>,
}

/// A loader that prepares batches during the steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Feed {
    /// Workers; without workers, the training thread prepares each batch when needed.
    pub workers: u64,
    /// Prefetched batches.
    pub prefetch: u64,
}

impl Setup {
    /// Precision and checkpointing.
    pub const fn mode(&self) -> Mode {
        Mode::new(self.precision, self.checkpointing)
    }

    /// Returns the setup without a feed.
    #[must_use]
    pub const fn unfed(self) -> Self {
        Self { feed: None, ..self }
    }
}

/// Formats as `f32-checkpointed, batch 32, 2 workers, prefetch 2`.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch {}", self.mode(), self.batch)?;
        let Some(Feed { workers, prefetch }) = self.feed else { return Ok(()) };
        let s = if workers == 1 { "" } else { "s" };
        write!(f, ", {workers} worker{s}, prefetch {prefetch}")
    }
}
