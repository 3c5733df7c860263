//! Ranks as threads of one process, for tests.

use std::error::Error;
use std::ops::Range;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use gpu_tuned_observe::recording::SlowestRank;

use crate::device::catching;
use crate::load::Share;
use crate::train::ranks::{Peers, PeersEnded, Rank};
use crate::train::recipe::Recipe;
use crate::train::{Trainer, TrainerError};

pub(in crate::train) type Failure = Box<dyn Error + Send + Sync>;

/// Message of a rank.
#[derive(Clone)]
enum Message {
    Values(Vec<f32>),
    Text(String),
    Bytes(Vec<u8>),
}

#[derive(Debug)]
struct Threads {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    round: u64,
    messages: Vec<Option<Message>>,
    last: Vec<Message>,
    ended: Option<PeersEnded>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("round", &self.round).finish_non_exhaustive()
    }
}

impl Threads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange(&self, rank: usize, message: Message) -> Result<Vec<Message>, PeersEnded> {
        let mut state = self.state();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        let round = state.round;
        state.messages[rank] = Some(message);
        if state.messages.iter().all(Option::is_some) {
            state.last = state.messages.iter_mut().filter_map(Option::take).collect();
            state.round += 1;
            self.changed.notify_all();
        }
        while state.round == round && state.ended.is_none() {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if state.round == round { Err(state.ended.clone().expect("it ended")) } else { Ok(state.last.clone()) }
    }

    fn end(&self, message: String) {
        self.state().ended.get_or_insert_with(|| Arc::from(Failure::from(message)));
        self.changed.notify_all();
    }
}

#[derive(Debug)]
struct Peer {
    rank: usize,
    threads: Arc<Threads>,
}

impl Peers for Peer {
    fn sum(&self, values: Vec<f32>) -> Result<Vec<f32>, PeersEnded> {
        let all = self.threads.exchange(self.rank, Message::Values(values))?;
        let values = all.into_iter().map(|message| match message {
            Message::Values(values) => values,
            Message::Text(_) | Message::Bytes(_) => panic!("it is no sum"),
        });
        let add = |sum: Vec<f32>, own: Vec<f32>| sum.iter().zip(own).map(|(sum, own)| sum + own).collect();
        Ok(values.reduce(add).unwrap_or_default())
    }

    fn agree(&self, name: &'static str, value: String) -> Result<(), PeersEnded> {
        let all = self.threads.exchange(self.rank, Message::Text(value))?;
        let text = |message: &Message| if let Message::Text(text) = message { Some(text.clone()) } else { None };
        match all.iter().position(|other| text(other) != text(&all[0])) {
            Some(rank) => Err(Arc::from(Failure::from(format!("the {name} of rank {rank} differs from rank 0's")))),
            None => Ok(()),
        }
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, PeersEnded> {
        match self.threads.exchange(self.rank, Message::Bytes(own))?.swap_remove(0) {
            Message::Bytes(bytes) => Ok(bytes),
            Message::Text(_) | Message::Values(_) => panic!("they are no bytes"),
        }
    }

    fn fail(&self, message: &str) {
        self.threads.end(format!("rank {} failed: {message}", self.rank));
    }

    fn set_waiting(&self, _: bool) {}

    fn set_step_seconds(&self, seconds: f64) {
        assert!(seconds > 0.0);
    }

    fn slowest(&self) -> Option<SlowestRank> {
        None
    }
}

/// A rank on the CPU.
pub(in crate::train) struct TestRank {
    recipe: Recipe,
    rank: Rank,
}

impl TestRank {
    pub(in crate::train) fn index(&self) -> usize {
        self.rank.share().rank()
    }

    pub(in crate::train) fn rank(&self) -> &Rank {
        &self.rank
    }

    pub(in crate::train) fn recipe(&self) -> &Recipe {
        &self.recipe
    }

    pub(in crate::train) fn device(&self) -> &Device {
        &self.recipe.stepper.device
    }

    pub(in crate::train) fn part(&self, samples: usize) -> Range<usize> {
        self.rank.share().part(samples)
    }

    /// The rank, with optimizer state shared among all.
    pub(in crate::train) fn sharded(&self) -> Self {
        let rank = self.rank.clone().shard_optimizer(true);
        Self { recipe: self.recipe.clone().with_rank(Some(rank.clone())), rank }
    }

    pub(in crate::train) fn trainer<M: Module>(
        &self,
        model: M,
        optimizer: ModuleOptimizer,
    ) -> Result<Trainer<M>, TrainerError> {
        Trainer::from_recipe(model, optimizer, &self.recipe)
    }
}

/// Runs `body` as ranks with such shares of a step. Returns their results, or errors, rank by rank.
pub(in crate::train) fn run<T: Send + 'static>(
    shares: &[usize],
    micro_batch: usize,
    body: impl Fn(&TestRank) -> Result<T, Failure> + Send + Sync + 'static,
) -> Vec<Result<T, Failure>> {
    let shares = crate::load::shares(shares);
    let state = State { messages: vec![None; shares.len()], ..State::default() };
    let threads = Arc::new(Threads { state: Mutex::new(state), changed: Condvar::new() });
    let body = Arc::new(body);
    let ranks = (0..shares.len()).map(|number| {
        let peer = Arc::new(Peer { rank: number, threads: Arc::clone(&threads) });
        let rank = Rank::new(peer.clone(), Share::of(number, &shares).expect("a rank of them"));
        let recipe = Recipe::new(Device::flex(), micro_batch).with_rank(Some(rank.clone()));
        let body = Arc::clone(&body);
        thread::spawn(move || {
            let done = catching(|| body(&TestRank { recipe, rank }));
            let done = done.unwrap_or_else(|panic| Err(panic.into()));
            done.inspect_err(|error| peer.fail(&error.to_string()))
        })
    });
    let ranks: Vec<_> = ranks.collect();
    ranks.into_iter().map(|rank| rank.join().expect("panics are caught")).collect()
}

/// As [`run`], with equal shares, where no rank fails.
pub(in crate::train) fn run_all<T: Send + 'static>(
    count: usize,
    micro_batch: usize,
    body: impl Fn(&TestRank) -> Result<T, Failure> + Send + Sync + 'static,
) -> Vec<T> {
    let done = run(&vec![micro_batch; count], micro_batch, body);
    done.into_iter().map(|done| done.unwrap_or_else(|error| panic!("{error}"))).collect()
}
