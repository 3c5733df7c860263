//! Optimizer steps that several devices of one process take together.

mod agree;
mod buckets;
mod distributed;
mod error;
mod group;
mod handle;
mod run;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;

pub use error::{Ended, RanksError};
pub(super) use handle::RankHandle;

use super::recipe::Recipe;
use super::{Trainer, TrainerError};
use crate::load::{PrefetchLoader, part_of_rank};

/// An exchange of gradients that takes longer is given up.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for ended ranks to return: they notice at their next exchange.
const GRACE: Duration = Duration::from_secs(15);

/// The ranks of one process: a thread for each device, which all run the same function.
///
/// A session makes them: `Session::ranks`.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::SgdConfig;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::train::Ranks;
///
/// let ranks = Ranks::new(vec![Device::flex(), Device::flex()], 8);
/// let norms = ranks.run(|rank| {
///     let model = LinearConfig::new(4, 1).init(rank.device());
///     let mut trainer = rank.trainer(model, SgdConfig::new().init())?;
///     let part = rank.part(21);
///     let batch = Tensor::<2>::ones([part.len(), 4], rank.device());
///     let step = trainer.step(0.01, batch, |model: &Linear, input| model.forward(input).mean())?;
///     assert_eq!(step.samples, 21);
///     Ok(step.gradient_norm)
/// })?;
/// assert_eq!(norms[0], norms[1]);
/// # Ok::<(), gpu_tuned::train::RanksError>(())
/// ```
///
/// # What a step does
///
/// Each rank has a replica of the model, and accumulates the gradients of its own part of the samples in micro-batches.
/// Once a step, Burn's collective (NCCL on GPUs) sums them over the ranks, weighted by samples. The step equals that of
/// one large batch, however unevenly it is distributed; a rank may even have no samples. Clipping uses the norm of the
/// sum. Gradients that are not finite on one rank make all ranks skip the step. Running statistics of norms stay
/// separate.
///
/// # Failures
///
/// A rank that runs out of memory retries its part with smaller micro-batches, and the others wait. If its optimizer
/// runs out of memory after the exchange, it updates fewer parameters at a time. Before the exchange, every rank reads
/// that its own gradients were computed, and all ranks meet on the host. A rank that fails, panics, or has no more
/// batches therefore leaves no other waiting in NCCL. All end with its error within milliseconds.
///
/// An exchange that still hangs, after a fault of a device or of NCCL, cannot be interrupted: Burn has no way to abort
/// it. After [`patience`](Self::patience), [`run`](Self::run) returns an error with the threads that are left. They
/// occupy their devices until the process ends.
pub struct Ranks {
    devices: Vec<Device>,
    /// Rank by rank.
    recipes: Vec<Recipe>,
    patience: Duration,
    grace: Duration,
}

impl Ranks {
    /// A rank for each device, which may be with autodiff or without. Steps are cut into micro-batches of at most
    /// `micro_batch` samples, of which [`Rank::loader`] yields one at a time.
    ///
    /// GPUs have to be different ones; the CPU may be given several times, to try a program out.
    pub fn new(devices: Vec<Device>, micro_batch: usize) -> Self {
        let recipes = devices.iter().map(|device| Recipe::new(device.clone(), micro_batch)).collect();
        Self::with_recipes(devices, recipes)
    }

    /// Ranks of planned steps.
    #[doc(hidden)]
    pub fn with_recipes(devices: Vec<Device>, recipes: Vec<Recipe>) -> Self {
        Self { devices, recipes, patience: PATIENCE, grace: GRACE }
    }

    /// Gives an exchange of gradients up after so long; 60 s by default. The first one takes some seconds, as NCCL
    /// connects the devices.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// Rank of a process, on its own thread.
pub struct Rank {
    handle: RankHandle,
    recipe: Recipe,
}

impl Rank {
    /// Its number, from 0.
    pub fn index(&self) -> usize {
        self.handle.rank
    }

    /// Number of ranks.
    pub fn count(&self) -> usize {
        self.handle.ranks()
    }

    /// Returns true for the first rank, which logs, evaluates and saves. All ranks have equal parameters.
    pub fn is_first(&self) -> bool {
        self.handle.rank == 0
    }

    /// Its device, with autodiff, and with gradient checkpointing where it is planned: initialise the model on it.
    pub fn device(&self) -> &Device {
        &self.recipe.device
    }

    /// Its part of so many samples: consecutive ones, as many as those of other ranks, or one more where they cannot be
    /// shared evenly.
    pub fn part(&self, samples: usize) -> Range<usize> {
        part_of_rank(self.index(), self.count(), samples)
    }

    /// A trainer of this rank's replica of the model, whose values are those of the first rank's from now on: all ranks have
    /// to call it. Its steps are given this rank's part of the samples, and are taken by all ranks together.
    ///
    /// The optimizer has to be the same on all ranks, with its state if it was loaded. Of a [`Step`](super::Step) the
    /// samples, the loss and the norm are those of all ranks; micro-batches and rescues are its own.
    ///
    /// # Errors
    ///
    /// [`TrainerError`]: for a model that differs from the first rank's in more than values, or cannot be trained in the
    /// planned precision; and if the ranks were ended.
    pub fn trainer<M: Module>(&self, model: M, optimizer: ModuleOptimizer) -> Result<Trainer<M>, TrainerError> {
        let trainer = agree::with_first_ranks_values(&self.handle, model).and_then(|model| {
            let stepper = self.recipe.stepper().with_rank(self.handle.clone());
            Ok(Trainer::with_stepper(model, optimizer, stepper).in_precision_of(&self.recipe)?)
        });
        trainer.inspect_err(|error| self.handle.fail(error.to_string()))
    }

    /// Loads this rank's part of the training data: its samples of every optimizer step, with an even share of the last
    /// step of an epoch. If fewer samples than ranks are left, they are dropped. A
    /// [`strategy`](PrefetchLoader::strategy) forms one batch a rank for each step.
    ///
    /// [`shuffle`](PrefetchLoader::shuffle) has to be given the same seed on all ranks.
    pub fn loader<I, B>(
        &self,
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, B> + 'static,
    ) -> PrefetchLoader<I, B> {
        self.recipe.loader(dataset, batcher).for_rank(self.index(), self.count())
    }
}

impl std::fmt::Debug for Ranks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ranks")
            .field("devices", &self.devices)
            .field("patience", &self.patience)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Rank {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let count = self.count();
        f.debug_struct("Rank").field("index", &self.index()).field("count", &count).finish_non_exhaustive()
    }
}

impl Ranks {
    /// The ranks with their handles.
    fn rank_handles(&self, group: &Arc<group::Group>) -> Vec<Rank> {
        let plain = self.devices.iter().map(|device| device.clone().without_autodiff());
        let devices: Arc<Vec<Device>> = Arc::new(plain.collect());
        let handle = |rank| RankHandle { group: Arc::clone(group), rank, devices: Arc::clone(&devices) };
        let recipes = self.recipes.iter().cloned().enumerate();
        recipes.map(|(rank, recipe)| Rank { handle: handle(rank), recipe }).collect()
    }
}
