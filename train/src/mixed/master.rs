use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::GradientsParams;
use burn::tensor::Tensor;

use super::cast::{Narrow, Widen, leaf_like};
use super::{Half, MixedError, statistics};

/// The f32 weights of a model that computes in 16 bits: what the optimizer changes and what is saved.
///
/// [`compute_copy`](Self::compute_copy) is the model for the forward and backward pass, of one optimizer step;
/// [`widen`](super::widen) makes its gradients those of the master, as parameters keep their identifiers:
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::nn::{Linear, LinearConfig};
/// use burn::optim::{GradientsParams, SgdConfig};
/// use burn::tensor::{DType, Device, Tensor};
/// use gpu_tuned::mixed::{Half, Master, in_f32, widen};
///
/// # fn main() -> Result<(), gpu_tuned::mixed::MixedError> {
/// let device = Device::flex().autodiff(); // in a session of `mixed_bf16`, its default float type is bf16
/// let model: Linear = LinearConfig::new(4, 1).init(&device);
/// let mut optimizer = SgdConfig::new().init();
///
/// let mut master = Master::new(model, Half::Bf16)?;
/// for _ in 0..2 {
///     let model = master.compute_copy();
///     let batch = Tensor::<2>::ones([8, 4], (&device, DType::BF16));
///     let loss = in_f32(model.forward(batch)).square().mean();
///     let gradients = GradientsParams::from_grads(loss.backward(), &model);
///     let gradients = widen(gradients, &model)?;
///     drop(model); // its memory is free for the optimizer
///     master = master.update(|model| optimizer.step(0.1, model, gradients));
/// }
/// assert_eq!(master.model().weight.dtype(), DType::F32);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Master<M> {
    model: M,
    half: Half,
}

impl<M: Module> Master<M> {
    /// Takes a model over, and widens what it has in 16 bits. Lazily initialised parameters are initialised by this.
    ///
    /// A clone that the caller keeps shares the running statistics, as clones of modules do in Burn.
    ///
    /// # Errors
    ///
    /// [`MixedError::HalfStatistics`] if running statistics are outside of an [`InF32`](super::InF32).
    pub fn new(model: M, half: Half) -> Result<Self, MixedError> {
        let model = model.map(&mut Widen);
        statistics::check(&model)?;
        Ok(Self { model, half })
    }

    /// The f32 model: to be saved, or to be used where the default float type is f32. Where it is a 16-bit one, use
    /// [`compute_copy`](Self::compute_copy), and `valid()` of it for evaluation.
    pub fn model(&self) -> &M {
        &self.model
    }

    /// The f32 model.
    pub fn into_model(self) -> M {
        self.model
    }

    /// Type of the copy.
    pub fn half(&self) -> Half {
        self.half
    }

    /// The model as it computes: f32 parameters are in 16 bits, but for those in an [`InF32`](super::InF32). Packed
    /// parameters, integers and flags are as they are.
    ///
    /// Its parameters are leaves, with the identifiers, the device, the gradient checkpointing and the mappers for loading
    /// and saving of the master's, and gradients are kept for the same ones. Running statistics it shares with the
    /// master: a forward pass updates both. It takes 2 bytes for each parameter that it narrows.
    #[must_use]
    pub fn compute_copy(&self) -> M {
        self.model.clone().map(&mut Narrow::to(self.half))
    }

    /// A copy that was made before with some parameters as they are now, or all that are trained; the others are those it has,
    /// with their memory.
    #[must_use]
    pub(crate) fn refreshed(&self, copy: M, changed: Option<&[ParamId]>) -> M {
        let mut values = Values { of: changed, values: GradientsParams::new() };
        self.model.visit(&mut values);
        copy.map(&mut values)
    }

    /// Lets an optimizer change the f32 weights, or a record replace them; what is in 16 bits then is widened.
    ///
    /// Copies made before keep the old weights, and their memory: drop them first.
    #[must_use]
    pub fn update(self, step: impl FnOnce(M) -> M) -> Self {
        Self { model: step(self.model).map(&mut Widen), half: self.half }
    }
}

/// The model with these values of some parameters.
pub(crate) fn with_values<M: Module>(model: M, values: GradientsParams) -> M {
    model.map(&mut Values { of: None, values })
}

/// Values of some of the f32 weights, and what puts them into a copy.
struct Values<'i> {
    of: Option<&'i [ParamId]>,
    values: GradientsParams,
}

impl ModuleVisitor for Values<'_> {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if self.of.map_or(param.is_require_grad(), |of| of.contains(&param.id)) {
            self.values.register(param.id, param.base().without_autodiff());
        }
    }
}

impl ModuleMapper for Values<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        match self.values.remove::<D>(param.id) {
            Some(value) => param.map(|old| leaf_like(&old, value)),
            None => param,
        }
    }
}
