use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::{Feed, Setup};
use gpu_tuned_core::Precision;

/// What a program is asked for. It is for one precision: the numbers of a device are chosen once in a process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Request {
    /// The file of results that lines are appended to.
    pub results: PathBuf,
    /// Number formats; `None` for those that are planned.
    pub precision: Option<Precision>,
    /// Micro-batches; with none, [those around the planned one](Self::around).
    pub batches: Vec<u64>,
    /// Without gradient checkpointing, with it, or both.
    pub checkpointing: Vec<bool>,
    /// Ways to prepare batches meanwhile, each in addition to none.
    pub feeds: Vec<Feed>,
    /// What the repeats of a setup may take.
    pub seconds: f64,
    /// Bytes of the file of results that count for nothing: what they tell is done again.
    pub ignored_bytes: u64,
}

impl Request {
    /// The environment variable that has a request, as JSON.
    pub const VARIABLE: &'static str = "GPU_TUNED_BENCH";

    /// Powers of two from an eighth of the planned micro-batch up to four times as much, the planned one itself, and no more than
    /// a step has.
    pub fn around(planned: u64, largest: u64) -> Vec<u64> {
        let up_to = planned.saturating_mul(4).min(largest);
        let mut batches = powers_of_two(planned.div_ceil(8), up_to);
        batches.push(planned.min(largest));
        batches.sort_unstable();
        batches.dedup();
        batches
    }

    /// The setups in the order in which they are run: batches upwards, so that what small ones take tells what larger ones
    /// would, and each by itself before it is fed.
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

/// The powers of two between two numbers, themselves included.
pub fn powers_of_two(from: u64, to: u64) -> Vec<u64> {
    (0..u64::BITS).map(|power| 1 << power).filter(|batch| (from..=to).contains(batch)).collect()
}
