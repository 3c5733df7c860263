//! Optimizer steps that several processes take together, each with one device.

mod distributed;
mod exchange;
mod hook;
mod nccl;
pub(in crate::train) mod sharding;
mod sums;
#[cfg(test)]
pub(super) mod tests;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::ModuleOptimizer;
use burn::store::RecordError;
use burn::tensor::{Bool, Int, Tensor};
use gpu_tuned_observe::recording::SlowestRank;

use super::optimizer_files::{STATE, StateSummary, with_state_of};
use super::outcome::StepFailure;
use super::{StepError, TrainerError};
use crate::load::Share;
use crate::shape::{parameters, shape, visit_floats, with_autodiff_of};
use exchange::Packed;
use hook::Anchors;
pub use nccl::{Collectives, CollectivesError};
pub(in crate::train) use sums::GradientSums;

/// Connection to the processes that train together.
///
/// After an error, the processes end: no method of any rank succeeds again.
pub trait Peers: fmt::Debug + Send + Sync {
    /// Returns the sums over all ranks, added in the order of ranks: equal bits on all ranks. Waits for all of them.
    ///
    /// # Errors
    ///
    /// The reason why the ranks ended.
    fn sum(&self, values: Vec<f32>) -> Result<Vec<f32>, PeersEnded>;

    /// Compares a value of this rank with the first rank's. Waits for all ranks.
    ///
    /// # Errors
    ///
    /// An error on all ranks that names the first rank with another value; and the reason why the ranks ended.
    fn agree(&self, name: &'static str, value: String) -> Result<(), PeersEnded>;

    /// Returns the first rank's bytes on all ranks. Waits for all of them.
    ///
    /// # Errors
    ///
    /// The reason why the ranks ended.
    fn broadcast(&self, own: Vec<u8>) -> Result<Vec<u8>, PeersEnded>;

    /// Ends all ranks with an error of this one.
    fn fail(&self, message: &str);

    /// Returns the reason why the ranks have ended; `None` while they train.
    fn ended(&self) -> Option<PeersEnded>;

    /// Calls `hook` in a thread of its own once the ranks have ended; never, if they finish.
    fn on_end(&self, hook: Box<dyn FnOnce() + Send>);

    /// Reports that this rank waits for others, or no longer.
    fn set_waiting(&self, is_waiting: bool);

    /// Reports the seconds of this rank from the end of a step to the exchange of the next one, in steps that measure it.
    fn set_step_seconds(&self, seconds: f64);

    /// Returns the slowest rank in the last steps that the ranks reported, on the first rank.
    fn slowest(&self) -> Option<SlowestRank>;
}

/// Reason why the ranks ended. Names the rank, its host, and the cause.
pub type PeersEnded = Arc<dyn Error + Send + Sync>;

/// One of the processes that train together.
///
/// # A step
///
/// Each rank has a replica of the model, and accumulates the gradients of its own part of the samples in micro-batches.
/// Once a step, NCCL sums them over the ranks, weighted by samples; on the CPU, the first rank does. The step equals that
/// of one large batch, however unevenly it is distributed; a rank may even have no samples. Clipping uses the norm of the
/// sum. Gradients that are not finite on one rank make all ranks skip the step. Running statistics of norms stay separate.
///
/// # Failures
///
/// A rank that runs out of memory retries its part with smaller micro-batches, and the others wait in the exchange. A sum of
/// gradients that could not be computed is not begun; the retry begins those that are left.
/// A rank that fails for good ends the others through its [`Peers`], and the end aborts what they wait for in NCCL.
#[derive(Clone, Debug)]
pub struct Rank {
    pub(super) peers: Arc<dyn Peers>,
    share: Share,
    shards_optimizer: bool,
    pub(crate) inputs: Inputs,
    collectives: Option<Collectives>,
    anchors: Anchors,
}

impl Rank {
    /// A rank with its share of every optimizer step. One of several with GPUs also needs
    /// [`with_collectives`](Self::with_collectives).
    pub fn new(peers: Arc<dyn Peers>, share: Share) -> Self {
        Self {
            peers,
            share,
            shards_optimizer: false,
            inputs: Inputs::default(),
            collectives: None,
            anchors: Anchors::default(),
        }
    }

    /// Sums tensors on GPUs by NCCL.
    #[must_use]
    pub fn with_collectives(self, collectives: Option<Collectives>) -> Self {
        Self { collectives, ..self }
    }

    /// Shares the record of inputs with other values of this rank.
    #[must_use]
    pub fn with_inputs(self, inputs: Inputs) -> Self {
        Self { inputs, ..self }
    }

    /// Keeps the optimizer's state of each parameter on one rank only (`ZeRO` stage 1), if `shards`. That rank updates the
    /// parameter, and passes its new values to the others, which takes as long as the exchange of the gradients.
    #[must_use]
    pub fn shard_optimizer(self, shards: bool) -> Self {
        Self { shards_optimizer: shards, ..self }
    }

    /// Share of every optimizer step.
    pub fn share(&self) -> Share {
        self.share
    }

    /// Returns `model` with the values and the parameter identifiers of the first rank.
    ///
    /// # Errors
    ///
    /// [`TrainerError::Peers`] for a model that differs from the first rank's in more than values, and if the ranks ended.
    pub(super) fn replica<M: Module>(&self, model: M) -> Result<M, TrainerError> {
        with_first_values(self, model).map_err(TrainerError::Peers).inspect_err(|error| self.fail(error))
    }

    /// Compares the state of `optimizer` with the other ranks', and drops what they keep.
    ///
    /// # Errors
    ///
    /// [`TrainerError::State`] if the state cannot be copied, [`TrainerError::PartialState`] if a part is missing, and
    /// [`TrainerError::Peers`] if ranks have different states.
    pub(super) fn own_state<M: Module>(
        &self,
        optimizer: ModuleOptimizer,
        model: &M,
    ) -> Result<ModuleOptimizer, TrainerError> {
        self.compared_state(optimizer, model).inspect_err(|error| self.fail(error))
    }

    fn compared_state<M: Module>(
        &self,
        optimizer: ModuleOptimizer,
        model: &M,
    ) -> Result<ModuleOptimizer, TrainerError> {
        let unreadable = |error: RecordError| TrainerError::State(error.to_string());
        let shard = sharding::shard(self, model);
        let state = StateSummary::new(&optimizer).map_err(unreadable)?;
        let text = match &state {
            None => "of no parameter".to_owned(),
            Some(state) => {
                sharding::check_state(&state.parameters, shard.as_ref(), model)?;
                let is_own_part = shard.as_ref().is_some_and(|shard| state.parameters == shard.parameters);
                if is_own_part { "of each rank's own parameters".to_owned() } else { state.text.clone() }
            }
        };
        self.agree(STATE, text).map_err(TrainerError::Peers)?;
        match shard {
            Some(shard) if state.is_some() => with_state_of(optimizer, &shard.parameters).map_err(unreadable),
            _ => Ok(optimizer),
        }
    }

    /// Ends all ranks with an error of this one.
    pub(super) fn fail(&self, error: &dyn Error) {
        self.peers.fail(&error.to_string());
        self.collectives.iter().for_each(Collectives::abort);
    }
}

/// Returns `model` with the first rank's values of all floats, and its identifiers of them: optimizer records have these.
fn with_first_values<M: Module>(rank: &Rank, model: M) -> Result<M, PeersEnded> {
    if rank.share().ranks() == 1 {
        return Ok(model);
    }
    let state = Floats::default();
    let own = visit_floats!(&model, floats = state, Floats, |param| {
        let value = param.base().without_autodiff();
        let elements = value.shape().num_elements();
        floats.values.push(value.reshape([elements]));
        floats.ids.extend(param.id.val().to_le_bytes());
        floats.trained.push(param.is_require_grad());
    });
    let mut integers = Integers(Vec::new());
    model.visit(&mut integers);
    let others = digest(&(own.trained, integers.0));
    let text = format!("{} ({} trained values, {others:x})", shape(&model), parameters(&model));
    rank.agree("shape of the model", text)?;
    let ids = rank.waiting(|| rank.peers.broadcast(own.ids))?;
    let ids = ids.as_chunks().0.iter().map(|id| ParamId::from(u64::from_le_bytes(*id)));
    let mut values = Packed::new(own.values, 1.0);
    let first = || {
        let vectors = rank.first(std::mem::take(&mut values.vectors))?;
        rank.complete(&vectors)?;
        Ok(vectors)
    };
    values.vectors = rank.waiting(first).map_err(ended)?;
    Ok(model.map(&mut Replace(ids.zip(values.parts()).collect::<Vec<_>>().into_iter())))
}

/// Bytes of a model's integers and flags, which are equal on all ranks: only floats are replaced.
struct Integers(Vec<u8>);

impl ModuleVisitor for Integers {
    fn visit_int<const D: usize>(&mut self, param: &Param<Tensor<D, Int>>) {
        self.0.extend(param.val().into_data().iter::<i64>().flat_map(i64::to_le_bytes));
    }

    fn visit_bool<const D: usize>(&mut self, param: &Param<Tensor<D, Bool>>) {
        self.0.extend(param.val().into_data().iter::<bool>().map(u8::from));
    }
}

/// Floats of a model, in its order.
#[derive(Default)]
struct Floats {
    values: Vec<Tensor<1>>,
    /// Identifiers, 8 bytes each.
    ids: Vec<u8>,
    /// True for each that is trained.
    trained: Vec<bool>,
}

fn ended(failure: StepFailure) -> PeersEnded {
    match failure {
        StepFailure::Error(StepError::Peers(ended)) => ended,
        other => std::sync::Arc::from(Box::<dyn std::error::Error + Send + Sync>::from(other.into_message())),
    }
}

struct Replace(std::vec::IntoIter<(ParamId, Tensor<1>)>);

impl ModuleMapper for Replace {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        let Some((id, value)) = self.0.next() else { return param };
        let (_, old, mapper) = param.consume();
        let new = with_autodiff_of(value.reshape(old.shape()), &old.device());
        let new = if old.is_require_grad() { new.detach().require_grad() } else { new };
        Param::from_mapped_value(id, new, mapper)
    }
}

/// Inputs of a rank that have to be equal on all ranks: the epochs that it reads, and loaded state. Clones share them.
///
/// An epoch counts from [`PrefetchLoader::iter`](crate::load::PrefetchLoader::iter) until its iterator is dropped, in the
/// thread that called `iter`. Another thread is not in step with optimizer steps, so its epochs are not compared.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// Epochs in the order of their begin.
    epochs: Vec<(u64, ThreadId, String)>,
    values: BTreeMap<&'static str, String>,
}

impl Inputs {
    /// Records a value that has to be equal on all ranks from the next step on, in place of an earlier one with this name.
    pub(super) fn record(&self, name: &'static str, value: String) {
        self.state().values.insert(name, value);
    }

    /// Records an epoch of this thread until the result is dropped.
    pub(crate) fn begin_epoch(&self, text: String) -> OpenEpoch {
        let mut state = self.state();
        let number = state.next;
        state.next += 1;
        state.epochs.push((number, thread::current().id(), text));
        OpenEpoch { inputs: self.clone(), number }
    }

    /// Text of the recorded values, and of the epochs that this thread reads.
    pub(super) fn describe(&self) -> String {
        let own = thread::current().id();
        let state = self.state();
        let epochs = state.epochs.iter().filter(|(_, thread, _)| *thread == own).map(|(.., text)| text.clone());
        let values = state.values.iter().map(|(name, value)| format!("{name} {value}"));
        let all: Vec<_> = epochs.chain(values).collect();
        if all.is_empty() { "nothing".to_owned() } else { all.join("; ") }
    }

    /// Hash of [`describe`](Self::describe): equal in all processes of one program. Call it in the thread that takes the steps.
    pub(super) fn digest(&self) -> u64 {
        digest(&self.describe())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Hash that is equal in all processes of one program.
pub(super) fn digest(value: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Epoch that a rank reads; ends with the drop.
#[derive(Debug)]
pub(crate) struct OpenEpoch {
    inputs: Inputs,
    number: u64,
}

impl Drop for OpenEpoch {
    fn drop(&mut self) {
        self.inputs.state().epochs.retain(|(number, ..)| *number != self.number);
    }
}
