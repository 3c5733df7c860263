use core::fmt;

use serde::{Deserialize, Serialize};

use gpu_tuned_core::Precision;
use gpu_tuned_core::measured::Mode;

/// A way to take optimizer steps of one micro-batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Setup {
    /// Number formats.
    pub precision: Precision,
    /// Whether activations are recomputed.
    pub checkpointing: bool,
    /// Samples of the micro-batch.
    pub batch: u64,
    /// What the steps wait for; `None` where the batch is there all along.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub feed: Option<Feed>,
}

/// Threads that prepare the batches while steps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Feed {
    /// Threads; with none each batch is prepared by the thread that takes the steps, when it is needed.
    pub workers: u64,
    /// Prepared batches that wait at most.
    pub prefetch: u64,
}

impl Setup {
    /// Precision and checkpointing.
    pub const fn mode(&self) -> Mode {
        Mode::new(self.precision, self.checkpointing)
    }

    /// The same with the batch there all along.
    #[must_use]
    pub const fn unfed(self) -> Self {
        Self { feed: None, ..self }
    }
}

/// Such as `f32-checkpointed, batch 32, 2 workers, prefetch 2`.
impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, batch {}", self.mode(), self.batch)?;
        let Some(Feed { workers, prefetch }) = self.feed else { return Ok(()) };
        let s = if workers == 1 { "" } else { "s" };
        write!(f, ", {workers} worker{s}, prefetch {prefetch}")
    }
}
