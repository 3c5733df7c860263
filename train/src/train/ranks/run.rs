//! Threads of ranks and their outcomes.

use std::error::Error;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use burn::tensor::Device;

use super::group::Group;
use super::{Ended, Rank, Ranks, RanksError};
use crate::device::{catching, has_collectives};

/// Interval of checks for an exchange that hangs.
const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// Outcome of a rank's thread.
enum Outcome<T> {
    Done(T),
    Failed(Box<dyn Error + Send + Sync>),
    Panicked(String),
}

impl Ranks {
    /// Runs `body` for each rank, in one thread a rank, and returns the results.
    ///
    /// When a rank fails, the others end too: their next step is a [`StepError`](super::super::StepError) with its error.
    ///
    /// # Errors
    ///
    /// [`RanksError`]: the error of the rank that failed first.
    pub fn run<T, F>(self, body: F) -> Result<Vec<T>, RanksError>
    where
        T: Send + 'static,
        F: Fn(&Rank) -> Result<T, Box<dyn Error + Send + Sync>> + Send + Sync + 'static,
    {
        self.check()?;
        let group = Arc::new(Group::new(self.devices.len()));
        let body = Arc::new(body);
        let (sender, receiver) = channel();
        for rank in self.rank_handles(&group) {
            let (body, sender) = (Arc::clone(&body), sender.clone());
            let thread = thread::Builder::new().name(format!("rank-{}", rank.index()));
            if let Err(error) = thread.spawn(move || run_rank(&rank, body.as_ref(), &sender)) {
                group.end(Ended::OutOfStep);
                return Err(RanksError::Thread(error));
            }
        }
        drop(sender);
        let outcomes = self.outcomes(&group, &receiver);
        result(group.ended(), outcomes)
    }

    /// Checks that the devices can exchange gradients.
    fn check(&self) -> Result<(), RanksError> {
        let cpus = self.devices.iter().filter(|device| **device == Device::flex()).count();
        match cpus {
            0 => {}
            cpus if cpus == self.devices.len() => return Ok(()),
            _ => return Err(RanksError::Mixed),
        }
        if let Some(rank) = (1..self.devices.len()).find(|&rank| self.devices[..rank].contains(&self.devices[rank])) {
            return Err(RanksError::SameDevice { rank });
        }
        let is_joined = self.devices.len() < 2 || self.devices.iter().all(has_collectives);
        is_joined.then_some(()).ok_or(RanksError::NoCollectives)
    }

    /// Waits for the ranks; `None` for those that did not end.
    fn outcomes<T>(&self, group: &Group, receiver: &Receiver<(usize, Outcome<T>)>) -> Vec<Option<Outcome<T>>> {
        let mut outcomes: Vec<_> = self.devices.iter().map(|_| None).collect();
        let mut ended: Option<Instant> = None;
        while ended.is_none_or(|ended| ended.elapsed() < self.grace) {
            match receiver.recv_timeout(CHECK_INTERVAL) {
                Ok((rank, outcome)) => outcomes[rank] = Some(outcome),
                Err(RecvTimeoutError::Timeout) => group.watch(self.patience),
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if group.ended().is_some() {
                ended.get_or_insert_with(Instant::now);
            }
        }
        outcomes
    }
}

/// Body of a rank's thread.
fn run_rank<T>(
    rank: &Rank,
    body: impl Fn(&Rank) -> Result<T, Box<dyn Error + Send + Sync>>,
    sender: &Sender<(usize, Outcome<T>)>,
) {
    let outcome = match catching(|| body(rank)) {
        Ok(Ok(value)) => Outcome::Done(value),
        Ok(Err(error)) => Outcome::Failed(error),
        Err(message) => Outcome::Panicked(message),
    };
    match &outcome {
        Outcome::Done(_) => rank.handle.group.done(rank.index()),
        Outcome::Failed(error) => rank.handle.fail(error.to_string()),
        Outcome::Panicked(message) => rank.handle.fail(message.clone()),
    }
    // The receiver is dropped after the grace period.
    sender.send((rank.index(), outcome)).ok();
}

fn result<T>(ended: Option<Ended>, mut outcomes: Vec<Option<Outcome<T>>>) -> Result<Vec<T>, RanksError> {
    let missing = outcomes.iter().enumerate().filter(|(_, outcome)| outcome.is_none());
    let left: Vec<_> = missing.map(|(rank, _)| rank).collect();
    match ended {
        Some(Ended::Rank { rank, message }) => Err(match outcomes[rank].take() {
            Some(Outcome::Panicked(message)) => RanksError::Panicked { rank, message, left },
            Some(Outcome::Failed(source)) => RanksError::Rank { rank, source, left },
            // The rank ignored its own error.
            Some(Outcome::Done(_)) | None => RanksError::Rank { rank, source: message.into(), left },
        }),
        Some(source) => Err(RanksError::Ended { source, left }),
        None => {
            let done = |outcome| if let Outcome::Done(value) = outcome { Some(value) } else { None };
            Ok(outcomes.into_iter().flatten().filter_map(done).collect())
        }
    }
}
