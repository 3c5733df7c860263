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

#[derive(Debug)]
struct Threads {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    round: u64,
    /// Kind of the exchange under way.
    kind: Option<&'static str>,
    messages: Vec<Option<Vec<u8>>>,
    last: Vec<Vec<u8>>,
    ended: Option<PeersEnded>,
}

impl Threads {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn exchange(&self, kind: &'static str, rank: usize, message: Vec<u8>) -> Result<Vec<Vec<u8>>, PeersEnded> {
        let mut state = self.state();
        if let Some(ended) = &state.ended {
            return Err(ended.clone());
        }
        assert_eq!(*state.kind.get_or_insert(kind), kind, "ranks make other exchanges");
        let round = state.round;
        state.messages[rank] = Some(message);
        if state.messages.iter().all(Option::is_some) {
            state.last = state.messages.iter_mut().filter_map(Option::take).collect();
            state.round += 1;
            state.kind = None;
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
        let own = values.into_iter().flat_map(f32::to_le_bytes).collect();
        let all = self.threads.exchange("sum", self.rank, own)?;
        let floats = |bytes: &Vec<u8>| bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
        let add = |sum: Vec<f32>, own: Vec<f32>| sum.iter().zip(own).map(|(sum, own)| sum + own).collect();
        Ok(all.iter().map(floats).reduce(add).unwrap_or_default())
    }

    fn agree(&self, name: &'static str, value: String) -> Result<(), PeersEnded> {
        let all = self.threads.exchange("agree", self.rank, value.into_bytes())?;
        match all.iter().position(|other| *other != all[0]) {
            Some(rank) => Err(Arc::from(Failure::from(format!("the {name} of rank {rank} differs from rank 0's")))),
            None => Ok(()),
        }
    }

    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, PeersEnded> {
        Ok(self.threads.exchange("broadcast", self.rank, own)?.swap_remove(0))
    }

    fn fail(&self, message: &str) {
        self.threads.end(format!("rank {} failed: {message}", self.rank));
    }

    fn ended(&self) -> Option<PeersEnded> {
        self.threads.state().ended.clone()
    }

    fn on_end(&self, hook: Box<dyn FnOnce() + Send>) {
        let threads = Arc::clone(&self.threads);
        thread::spawn(move || {
            let state = threads.state();
            drop(threads.changed.wait_while(state, |state| state.ended.is_none()));
            hook();
        });
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

    /// The rank, with optimizer state shared among all if `shards`.
    pub(in crate::train) fn sharded(&self, shards: bool) -> Self {
        let rank = self.rank.clone().shard_optimizer(shards);
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
