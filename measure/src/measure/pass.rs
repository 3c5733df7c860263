//! Passes of a subject, and its optimizer.

use std::any::Any;

use burn::module::Module;
use burn::optim::{GradientsParams, ModuleOptimizer};
use gpu_tuned_train::loss::{Loss, Weight};
use gpu_tuned_train::mixed::{Factor, LossScale};

/// Computation of a micro-batch's gradients.
pub(super) enum Pass<'a, M, B> {
    /// A loss, and its backward pass.
    Loss(Function<'a, M, B, Loss>),
    /// A step of the program's own, both passes in one.
    #[cfg_attr(not(feature = "train"), expect(dead_code, reason = "such steps are those of Burn's own loop"))]
    Whole(Whole<'a, M, B>),
}

/// A step in which nothing can be seen between the passes.
pub(super) struct Whole<'a, M, B> {
    pub gradients: Function<'a, M, B, GradientsParams>,
    /// The same forward pass on its own, with what keeps it alive; nothing where there is none that takes such batches.
    #[cfg_attr(
        not(any(feature = "cuda", feature = "counting-allocator")),
        expect(dead_code, reason = "nothing is seen between the passes where nothing counts memory")
    )]
    pub forward: Function<'a, M, B, Option<Box<dyn Any>>>,
    /// True if the program's device recomputes activations.
    pub checkpointing: bool,
}

/// Function of a model and a micro-batch.
pub(super) type Function<'a, M, B, T> = Box<dyn Fn(&M, B) -> T + Send + Sync + 'a>;

impl<M: Module, B> Pass<'_, M, B> {
    /// Computes the gradients of a micro-batch, as one of so many, of a loss in fp32 times `scale`, and their factor in a sum.
    /// Calls `between` between the passes if they are separate.
    pub(super) fn gradients(
        &self,
        model: &M,
        batch: B,
        micro_batches: usize,
        scale: Option<&LossScale>,
        between: impl FnOnce(),
    ) -> (GradientsParams, Factor) {
        let share = 1.0 / micro_batches as f64;
        match self {
            Self::Loss(loss) => {
                let (mean, weight) = loss(model, batch).into_parts();
                let mean = if weight.is_some() || micro_batches == 1 { mean } else { mean * share };
                let mean = if let Some(scale) = scale { scale.scale(mean) } else { mean };
                between();
                let gradients = GradientsParams::from_grads(mean.backward(), model);
                let number = scale.map_or(1.0, |scale| scale.value().recip());
                (gradients, Weight::factor(weight, number).unwrap_or_else(|fault| panic!("{fault}")))
            }
            Self::Whole(step) => ((step.gradients)(model, batch), Factor::Number(share)),
        }
    }

    /// Returns true if the passes can be recorded as a CUDA graph.
    #[cfg(feature = "cuda")]
    pub(super) const fn has_graphs(&self) -> bool {
        matches!(self, Self::Loss(_))
    }

    /// With and without recomputing activations, as far as the model can be had so.
    pub(super) fn checkpointing(&self) -> &'static [bool] {
        match self {
            Self::Loss(_) => &[false, true],
            Self::Whole(Whole { checkpointing: false, .. }) => &[false],
            Self::Whole(Whole { checkpointing: true, .. }) => &[true],
        }
    }

    /// Calls `observe` after a forward pass; `None` if the passes are not separate.
    #[cfg(any(feature = "cuda", feature = "counting-allocator"))]
    pub(super) fn after_forward<T>(&self, model: &M, batch: B, observe: impl FnOnce() -> T) -> Option<T>
    where
        B: Clone,
    {
        // What a forward pass keeps is let go by a backward pass alone, this one or the next.
        match self {
            Self::Loss(loss) => {
                let loss = loss(model, batch);
                let seen = observe();
                drop(loss.mean().backward());
                Some(seen)
            }
            Self::Whole(step) => {
                let kept = (step.forward)(model, batch.clone())?;
                let seen = observe();
                drop(kept);
                drop((step.gradients)(model, batch));
                Some(seen)
            }
        }
    }
}

/// Optimizer of a model.
pub(crate) enum Optimizer<M> {
    /// Burn's, which takes any model.
    Burn(ModuleOptimizer),
    /// Optimizer that owns its model, as a learner does.
    #[cfg_attr(not(feature = "train"), expect(dead_code, reason = "only Burn's own loop has learners"))]
    Learner(Box<dyn FnMut(M, GradientsParams) -> M>),
}

impl<M: Module> Optimizer<M> {
    /// The model after a step. A learner takes its own learning rate.
    pub(super) fn step(&mut self, learning_rate: f64, model: M, gradients: GradientsParams) -> M {
        match self {
            Self::Burn(optimizer) => optimizer.step(learning_rate, model, gradients),
            Self::Learner(step) => step(model, gradients),
        }
    }
}
