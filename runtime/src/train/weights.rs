//! A model and its optimizer in a manual loop.

use burn::module::{Module, ParamId};
use burn::optim::{GradientsParams, ModuleOptimizer};

use super::gradients::added;
use super::update::Weights;
use crate::mixed::{LossScale, Master, MixedError};

/// What a manual loop trains.
#[derive(Clone)]
pub(super) struct ModelAndOptimizer<M> {
    pub held: Held<M>,
    pub optimizer: ModuleOptimizer,
    pub learning_rate: f64,
}

/// The weights, in one type or in two.
#[derive(Clone)]
pub(crate) enum Held<M> {
    Plain(M),
    Mixed {
        master: Master<M>,
        /// Of the master as it is.
        copy: M,
    },
}

impl<M: Module> Held<M> {
    pub(crate) fn mixed(master: Master<M>) -> Self {
        let copy = master.compute_copy();
        Self::Mixed { master, copy }
    }

    /// What computes.
    pub(crate) fn model(&self) -> &M {
        match self {
            Self::Plain(model) | Self::Mixed { copy: model, .. } => model,
        }
    }

    /// What the optimizer changes.
    pub(super) fn master(&self) -> &M {
        match self {
            Self::Plain(model) => model,
            Self::Mixed { master, .. } => master.model(),
        }
    }

    pub(super) fn into_master(self) -> M {
        match self {
            Self::Plain(model) => model,
            Self::Mixed { master, .. } => master.into_model(),
        }
    }

    fn updated(&self, step: impl FnOnce(M) -> M, group: Option<&[ParamId]>) -> Self {
        match (self, group) {
            (Self::Plain(model), _) => Self::Plain(step(model.clone())),
            (Self::Mixed { master, .. }, None) => Self::mixed(master.clone().update(step)),
            (Self::Mixed { master, copy }, Some(group)) => {
                let master = master.clone().update(step);
                let copy = master.refreshed(copy.clone(), group);
                Self::Mixed { master, copy }
            }
        }
    }

    /// Whether what computes is a copy in another type.
    pub(crate) const fn is_mixed(&self) -> bool {
        matches!(self, Self::Mixed { .. })
    }
}

/// The sum of gradients of a model that computes, in the type that the optimizer takes: another one where it `is_mixed`.
pub(crate) fn summed<M: Module>(
    is_mixed: bool,
    model: &M,
    sum: GradientsParams,
    gradients: GradientsParams,
    scale: &LossScale,
) -> Result<GradientsParams, MixedError> {
    if is_mixed { scale.widen_onto(sum, gradients, model) } else { Ok(added(sum, gradients, model)) }
}

impl<M: Module> Weights for ModelAndOptimizer<M> {
    type Model = M;

    fn model(&self) -> M {
        self.held.model().clone()
    }

    fn master(&self) -> M {
        self.held.master().clone()
    }

    fn updated(&self, gradients: GradientsParams, group: Option<&[ParamId]>) -> Self {
        let mut optimizer = self.optimizer.clone();
        let held = self.held.updated(|model| optimizer.step(self.learning_rate, model, gradients), group);
        Self { held, optimizer, learning_rate: self.learning_rate }
    }
}
