//! Where ranks meet, on the host: none begins an exchange of gradients before all of them can.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use burn::tensor::{DType, Shape, Tensor, TensorData};

use super::Ended;

/// What a rank brings to a meeting.
pub(in crate::train) enum Post {
    /// Its model's trained and untrained floats in the order of the model, and of the first rank their values.
    Model { floats: Vec<(Shape, DType)>, values: Option<Vec<TensorData>> },
    /// Samples of its part of a step.
    Samples(usize),
    /// Its gradients were computed: the mean loss over its samples, and which parameters have a gradient.
    Ready { loss: f32, present: Vec<bool> },
    /// Its part of a sum, in the host's memory.
    Part(Vec<Tensor<1>>),
    /// The norm of the gradients of all ranks, as it made it out.
    Norm(f32),
}

/// What the ranks of one process have in common.
pub(in crate::train) struct Group {
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    /// Meetings so far.
    round: u64,
    /// Of the meeting that goes on, rank by rank.
    posts: Vec<Option<Post>>,
    /// Of the last meeting.
    met: Arc<Vec<Post>>,
    /// Ranks that are finished.
    done: Vec<bool>,
    /// Since when a rank is within an exchange.
    exchanging: Vec<Option<Instant>>,
    ended: Option<Ended>,
}

impl Group {
    pub(super) fn new(ranks: usize) -> Self {
        let state = State {
            round: 0,
            posts: (0..ranks).map(|_| None).collect(),
            met: Arc::default(),
            done: vec![false; ranks],
            exchanging: vec![None; ranks],
            ended: None,
        };
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until all ranks have brought something, and hands out all of it, rank by rank; or until the ranks end.
    pub(super) fn meet(&self, rank: usize, post: Post) -> Result<Arc<Vec<Post>>, Ended> {
        let mut state = self.state();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let round = state.round;
        state.posts[rank] = Some(post);
        if state.posts.iter().all(Option::is_some) {
            state.met = Arc::new(state.posts.iter_mut().filter_map(Option::take).collect());
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
            None => Ok(Arc::clone(&state.met)),
        }
    }

    /// Ends all ranks; what ended them first counts.
    pub(super) fn end(&self, ended: Ended) {
        self.state().ended.get_or_insert(ended);
        self.changed.notify_all();
    }

    /// A rank takes no more steps.
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

    /// Whether a rank is within an exchange.
    pub(super) fn set_exchanging(&self, rank: usize, exchanging: bool) {
        self.state().exchanging[rank] = exchanging.then(Instant::now);
    }

    /// Ends all ranks where some are within an exchange for longer than `patience`.
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
    /// Whether a rank waits for one that will never come.
    fn uneven(&self) -> Option<Ended> {
        let done = self.done.iter().position(|done| *done)?;
        let waiting = self.posts.iter().position(Option::is_some)?;
        Some(Ended::Uneven { done, waiting })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::thread;
    use std::time::Duration;

    use super::{Group, Post};
    use crate::train::ranks::Ended;

    #[test]
    fn all_see_what_each_has_brought_in_the_order_of_ranks() {
        let group = Arc::new(Group::new(3));
        let seen = |rank: usize| {
            let group = Arc::clone(&group);
            thread::spawn(move || {
                (0..50_usize).all(|round| {
                    let met = group.meet(rank, Post::Samples(round * 10 + rank)).expect("nobody fails");
                    let samples = met.iter().map(|post| match post {
                        Post::Samples(samples) => *samples,
                        _ => usize::MAX,
                    });
                    samples.eq([round * 10, round * 10 + 1, round * 10 + 2])
                })
            })
        };
        let threads: Vec<_> = (0..3).map(seen).collect();
        assert!(threads.into_iter().all(|thread| thread.join().unwrap()));
    }

    #[test]
    fn who_waits_for_a_rank_that_ends_learns_of_it() {
        for failure in [true, false] {
            let group = Arc::new(Group::new(2));
            let waiting = thread::spawn({
                let group = Arc::clone(&group);
                move || group.meet(1, Post::Samples(1)).err()
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
    fn an_exchange_that_does_not_come_back_is_noticed() {
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
