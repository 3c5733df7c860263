//! Exchange of messages between ranks on the host: no rank begins an exchange of gradients before all can.

use std::any::Any;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Ended;

/// Message of a rank to all ranks.
pub(super) type RankMessage = Box<dyn Any + Send + Sync>;

/// Ranks of one process.
pub(in crate::train) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Number of completed exchanges.
    round: u64,
    /// Messages of the exchange under way, rank by rank.
    messages: Vec<Option<RankMessage>>,
    /// Messages of the last exchange.
    last: Arc<Vec<RankMessage>>,
    /// True for finished ranks.
    done: Vec<bool>,
    /// Begin of a rank's exchange of gradients.
    exchanging: Vec<Option<Instant>>,
    ended: Option<Ended>,
}

impl Group {
    pub(super) fn new(ranks: usize) -> Self {
        let state = State {
            round: 0,
            messages: (0..ranks).map(|_| None).collect(),
            last: Arc::default(),
            done: vec![false; ranks],
            exchanging: vec![None; ranks],
            ended: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the messages of all ranks and returns them, rank by rank; or until the ranks end.
    pub(super) fn exchange(&self, rank: usize, message: RankMessage) -> Result<Arc<Vec<RankMessage>>, Ended> {
        let mut state = self.state();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let round = state.round;
        state.messages[rank] = Some(message);
        if state.messages.iter().all(Option::is_some) {
            state.last = Arc::new(state.messages.iter_mut().filter_map(Option::take).collect());
            state.round += 1;
            self.changed.notify_all();
        } else if let Some(ended) = state.uneven() {
            state.ended = Some(ended);
            self.changed.notify_all();
        }
        while state.round == round && state.ended.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        match &state.ended {
            Some(ended) => Err(ended.clone()),
            None => Ok(Arc::clone(&state.last)),
        }
    }

    /// Ends all ranks. The first reason counts.
    pub(super) fn end(&self, ended: Ended) {
        self.state().ended.get_or_insert(ended);
        self.changed.notify_all();
    }

    /// Marks a rank as finished.
    pub(super) fn done(&self, rank: usize) {
        let mut state = self.state();
        state.done[rank] = true;
        if state.ended.is_none() {
            state.ended = state.uneven();
        }
        self.changed.notify_all();
    }

    pub(super) fn ended(&self) -> Option<Ended> {
        self.state().ended.clone()
    }

    /// Marks the begin or end of a rank's exchange of gradients.
    pub(super) fn set_exchanging(&self, rank: usize, exchanging: bool) {
        self.state().exchanging[rank] = exchanging.then(Instant::now);
    }

    /// Ends all ranks if one is within an exchange for longer than `patience`.
    pub(super) fn watch(&self, patience: Duration) {
        let mut state = self.state();
        let is_silent = |since: &Option<Instant>| since.is_some_and(|since| since.elapsed() > patience);
        let ranks = state.exchanging.iter().enumerate().filter(|(_, since)| is_silent(since));
        let ranks: Vec<_> = ranks.map(|(rank, _)| rank).collect();
        if !ranks.is_empty() {
            state.ended.get_or_insert(Ended::Silent { ranks, waited: patience });
            self.changed.notify_all();
        }
    }
}

impl State {
    /// Reason to end, if a rank waits for a finished one.
    fn uneven(&self) -> Option<Ended> {
        let done = self.done.iter().position(|done| *done)?;
        let waiting = self.messages.iter().position(Option::is_some)?;
        Some(Ended::Uneven { done, waiting })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::Group;
    use crate::train::ranks::Ended;

    #[test]
    fn all_ranks_get_all_messages_in_the_order_of_ranks() {
        let group = Arc::new(Group::new(3));
        let seen = |rank: usize| {
            let group = Arc::clone(&group);
            thread::spawn(move || {
                (0..50_usize).all(|round| {
                    let messages = group.exchange(rank, Box::new(round * 10 + rank)).expect("nobody fails");
                    let samples = messages.iter().filter_map(|message| message.downcast_ref::<usize>());
                    samples.eq(&[round * 10, round * 10 + 1, round * 10 + 2])
                })
            })
        };
        let threads: Vec<_> = (0..3).map(seen).collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    }

    #[test]
    fn a_rank_that_waits_for_an_ended_one_ends() {
        for failure in [true, false] {
            let group = Arc::new(Group::new(2));
            let waiting = thread::spawn({
                let group = Arc::clone(&group);
                move || group.exchange(1, Box::new(1)).err()
            });
            if failure {
                group.end(Ended::Rank { rank: 0, message: "lost".to_owned() });
            } else {
                group.done(0);
            }
            let ended = waiting.join().unwrap().expect("it cannot go on");
            assert_eq!(matches!(ended, Ended::Rank { rank: 0, .. }), failure, "{ended}");
            assert_eq!(matches!(ended, Ended::Uneven { done: 0, waiting: 1 }), !failure, "{ended}");
        }
    }

    #[test]
    fn an_exchange_that_hangs_is_noticed() {
        let group = Group::new(2);
        group.set_exchanging(0, true);
        group.set_exchanging(1, true);
        group.set_exchanging(1, false);
        thread::sleep(Duration::from_millis(20));
        group.watch(Duration::from_secs(1000));
        assert!(group.ended().is_none());
        group.watch(Duration::from_millis(5));
        assert!(matches!(group.ended(), Some(Ended::Silent { ranks, .. }) if ranks == [0]));
    }
}
