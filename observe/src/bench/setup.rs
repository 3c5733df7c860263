//! Setups.

use core::fmt;

use serde::{Deserialize, Serialize};

use gpu_tuned_core::Precision;
use gpu_tuned_core::measured::Mode;

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
