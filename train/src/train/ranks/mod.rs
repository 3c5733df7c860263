//! Optimizer steps that several processes take together, each with one device.

mod buckets;
mod distributed;
mod exchange;
mod first_values;
pub(in crate::train) mod inputs;
#[cfg(feature = "cuda")]
pub(crate) mod nccl;
mod packed;
pub(in crate::train) mod sharding;
#[cfg(test)]
mod tests;
#[cfg(test)]
pub(in crate::train) mod threads;

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::store::RecordError;
use gpu_tuned_observe::recording::SlowestRank;
pub use inputs::Inputs;
pub(crate) use inputs::OpenEpoch;

use super::TrainerError;
use super::optimizer_files::{STATE, StateSummary, with_state_of};
use crate::load::Share;

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

    /// Reports that this rank waits for others, or no longer.
    fn set_waiting(&self, is_waiting: bool);

    /// Reports the seconds of this rank from the end of a step to the exchange of the next one.
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
/// A rank that runs out of memory retries its part with smaller micro-batches, and the others wait in the exchange. Before
/// the exchange, every rank reads that its own gradients were computed, because CubeCL skips a collective of gradients that
/// were not. A rank that fails for good ends the others through its [`Peers`], even if they wait in NCCL.
#[derive(Clone, Debug)]
pub struct Rank {
    peers: Arc<dyn Peers>,
    share: Share,
    shards_optimizer: bool,
    inputs: Inputs,
}

impl Rank {
    /// A rank with its share of every optimizer step.
    pub fn new(peers: Arc<dyn Peers>, share: Share) -> Self {
        Self { peers, share, shards_optimizer: false, inputs: Inputs::default() }
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

    /// Record of the inputs that have to be equal on all ranks.
    pub(crate) fn inputs(&self) -> &Inputs {
        &self.inputs
    }

    /// Records a value that has to be equal on all ranks from the next step on, in place of an earlier one with this name.
    pub(super) fn record(&self, name: &'static str, value: String) {
        self.inputs.record(name, value);
    }

    /// Hash of [`data_description`](Self::data_description). Call it in the thread that takes the steps.
    pub(super) fn digest(&self) -> u64 {
        self.inputs.digest()
    }

    /// Text of the epochs that this thread reads, and of recorded values.
    pub(super) fn data_description(&self) -> String {
        self.inputs.describe()
    }

    /// Returns `model` with the values and the parameter identifiers of the first rank.
    ///
    /// # Errors
    ///
    /// [`TrainerError::Peers`] for a model that differs from the first rank's in more than values, and if the ranks ended.
    pub(super) fn replica<M: Module>(&self, model: M) -> Result<M, TrainerError> {
        first_values::with_first_values(self, model).map_err(TrainerError::Peers).inspect_err(|error| self.fail(error))
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

    /// Slowest rank, as known to the first one.
    pub(super) fn slowest(&self) -> Option<SlowestRank> {
        self.peers.slowest()
    }

    /// Ends all ranks with an error of this one.
    pub(super) fn fail(&self, error: &dyn Error) {
        self.peers.fail(&error.to_string());
    }
}
