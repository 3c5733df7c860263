//! Ranks of a session.

use std::ops::Range;

use gpu_tuned_train::load::Share;

use super::Session;
use crate::ranks::RanksError;

impl<C> Session<C> {
    /// Number of this process among those that train together, from 0; 0 for the only one.
    pub fn rank(&self) -> usize {
        self.ranks.as_ref().map_or(0, crate::ranks::Connection::number)
    }

    /// Number of processes that train together.
    pub fn world_size(&self) -> usize {
        self.share().ranks()
    }

    /// Returns true for the first rank, which logs, evaluates and saves the model. All ranks have equal parameters.
    pub fn is_first_rank(&self) -> bool {
        self.rank() == 0
    }

    /// This rank's part of so many samples, for batches that do not come from the session's loader: consecutive ones, as many
    /// as those of other ranks, or one more where they cannot be shared evenly. A step may be given an empty part.
    pub fn part(&self, samples: usize) -> Range<usize> {
        self.share().part(samples)
    }

    /// Waits for all ranks: for example while the first one prepares the data.
    ///
    /// # Errors
    ///
    /// [`RanksError::Ended`] if a rank failed.
    pub fn wait_for_ranks(&self) -> Result<(), RanksError> {
        Ok(self.ranks.as_ref().map_or(Ok(()), crate::ranks::Connection::barrier)?)
    }

    fn share(&self) -> Share {
        match &self.ranks {
            Some(ranks) => ranks.share(self.schedule()),
            None => Share::whole(usize::try_from(self.schedule().global_batch).unwrap_or(usize::MAX)),
        }
    }
}
