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
        match self {
            Self::Plain(model) => Self::Plain(step(model.clone())),
            Self::Mixed { master, copy } => {
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

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param};
    use burn::nn::LinearConfig;
    use burn::optim::{GradientsParams, SgdConfig};
    use burn::tensor::{DType, Device, Tensor};

    use super::{Held, LossScale, ModelAndOptimizer, Weights, summed};
    use crate::mixed::{Half, Master};
    use crate::train::tests::parameters;

    #[test]
    fn frozen_weights_are_cast_once() {
        let device = Device::flex().autodiff();
        let (frozen, trained) =
            (LinearConfig::new(3, 3).init(&device).no_grad(), LinearConfig::new(3, 1).init(&device));
        let master = Master::new((frozen, trained), Half::Bf16).unwrap();
        let mut copy = master.compute_copy();
        // Cast again, it would be as the master has it.
        let marked = Tensor::full([3, 3], 7.0, (&device, DType::BF16));
        copy.0.weight = Param::initialized(copy.0.weight.id, marked.set_require_grad(false));
        let held = Held::Mixed { master, copy };
        let weights = ModelAndOptimizer { held, optimizer: SgdConfig::new().init(), learning_rate: 0.5 };

        let model = weights.model();
        let input = Tensor::<2>::ones([2, 3], (&device, DType::BF16));
        let loss = crate::mixed::in_f32(model.1.forward(model.0.forward(input))).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = summed(true, &model, GradientsParams::new(), gradients, &LossScale::none()).unwrap();
        let new = weights.updated(gradients, None);
        assert_eq!(parameters(&new.model().0.weight), [7.0; 9]);
        assert_ne!(parameters(&new.model().1), parameters(&model.1));
        let Held::Mixed { master, copy } = new.held else { panic!("it is mixed") };
        assert_eq!(parameters(&master.compute_copy().1), parameters(&copy.1));
    }
}
