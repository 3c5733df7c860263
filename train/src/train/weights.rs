//! Model and optimizer of a manual loop.

use burn::module::{Module, ParamId};
use burn::optim::{GradientsParams, ModuleOptimizer};

use super::graph::SharedGraphs;
use super::update::Weights;
use crate::mixed::{Factor, Master, MixedError, add, in_parameter_types, with_values};
use crate::out_of_memory::OutOfMemory;

/// Model and optimizer of a manual loop.
#[derive(Clone)]
pub(super) struct ModelAndOptimizer<M> {
    pub weights: ModelWeights<M>,
    pub optimizer: ModuleOptimizer,
    pub learning_rate: f64,
    /// Recorded micro-steps, which all clones share.
    pub graphs: SharedGraphs<M, ()>,
}

/// Weights in one type, or in two for mixed precision.
#[derive(Clone)]
pub enum ModelWeights<M> {
    /// Weights in one type.
    Plain(M),
    /// Weights in mixed precision.
    Mixed {
        /// fp32 weights.
        master: Master<M>,
        /// 16-bit copy of the master.
        copy: M,
    },
}

impl<M: Module> ModelWeights<M> {
    /// Weights in mixed precision.
    pub fn mixed(master: Master<M>) -> Self {
        let copy = master.compute_copy();
        Self::Mixed { master, copy }
    }

    /// Model that computes.
    pub fn model(&self) -> &M {
        match self {
            Self::Plain(model) | Self::Mixed { copy: model, .. } => model,
        }
    }

    /// Model that the optimizer updates.
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

    /// Returns true for mixed precision.
    pub const fn is_mixed(&self) -> bool {
        matches!(self, Self::Mixed { .. })
    }
}

/// Adds gradients times a factor to a sum, which is in fp32 if `widens`.
///
/// # Errors
///
/// [`MixedError`] for gradients of another type than their parameters.
pub fn accumulate<M: Module>(
    model: &M,
    sum: GradientsParams,
    gradients: GradientsParams,
    factor: &Factor,
    widens: bool,
) -> Result<GradientsParams, MixedError> {
    add(sum, gradients, model, factor, widens)
}

impl<M: Module> Weights for ModelAndOptimizer<M> {
    type Model = M;

    fn model(&self) -> M {
        self.weights.model().clone()
    }

    fn master(&self) -> M {
        self.weights.master().clone()
    }

    fn updated(&self, gradients: GradientsParams, group: Option<&[ParamId]>) -> Self {
        let mut optimizer = self.optimizer.clone();
        let step = |model| {
            let gradients = in_parameter_types(gradients, &model);
            optimizer.step(self.learning_rate, model, gradients)
        };
        let weights = self.weights.updated(step, group);
        Self { weights, optimizer, learning_rate: self.learning_rate, graphs: self.graphs.clone() }
    }

    fn replaced(&self, values: GradientsParams) -> Self {
        let weights = self.weights.updated(|model| with_values(model, values), None);
        Self { weights, ..self.clone() }
    }

    fn learning_rate(&self) -> f64 {
        self.learning_rate
    }

    fn is_mixed(&self) -> bool {
        self.weights.is_mixed()
    }

    fn complete(&self) -> Result<(), OutOfMemory> {
        self.graphs.lock().hand_back(self.weights.model())
    }

    fn release(&self) -> bool {
        self.graphs.lock().release()
    }
}

#[cfg(test)]
mod tests {
    use burn::module::{Module, Param};
    use burn::nn::LinearConfig;
    use burn::optim::{GradientsParams, SgdConfig};
    use burn::tensor::{DType, Device, Tensor};

    use super::{Factor, ModelAndOptimizer, ModelWeights, SharedGraphs, Weights, accumulate};
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
        let weights = ModelWeights::Mixed { master, copy };
        let optimizer = SgdConfig::new().init();
        let weights = ModelAndOptimizer { weights, optimizer, learning_rate: 0.5, graphs: SharedGraphs::new(&device) };

        let model = weights.model();
        let input = Tensor::<2>::ones([2, 3], (&device, DType::BF16));
        let loss = crate::mixed::in_f32(model.1.forward(model.0.forward(input))).mean();
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        let gradients = accumulate(&model, GradientsParams::new(), gradients, &Factor::Number(1.0), true).unwrap();
        let new = weights.updated(gradients, None);
        assert_eq!(parameters(&new.model().0.weight), [7.0; 9]);
        assert_ne!(parameters(&new.model().1), parameters(&model.1));
        let ModelWeights::Mixed { master, copy } = new.weights else { panic!("it is mixed") };
        assert_eq!(parameters(&master.compute_copy().1), parameters(&copy.1));
    }
}
