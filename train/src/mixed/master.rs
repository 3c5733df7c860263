//! Weights in f32, their copies in 16 bits, and optimizers with state in f32.

use std::sync::Once;

use burn::module::{Module, ModuleMapper, ModuleVisitor, Param, ParamId};
use burn::optim::{GradientsParams, LearningRate, Optimizer, RecordState, StateSink, StateSource};
use burn::tensor::{DType, Device, FloatDType, Tensor};

use super::island::{ModulePath, check_statistics, track_path};
use super::{Half, MixedError};

/// The f32 weights of a model that computes in 16 bits: what the optimizer changes and what is saved.
///
/// [`compute_copy`](Self::compute_copy) is the model for the forward and backward pass, of one optimizer step;
/// [`widen`](super::widen) makes its gradients those of the master, as parameters keep their identifiers. Drop the copy before
/// [`update`](Self::update), so that its memory is free for the optimizer: see [the example](super).
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
        check_statistics(&model)?;
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
        self.model.clone().map(&mut Narrow { half: self.half, path: ModulePath::default() })
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

/// Makes 16-bit parameters and statistics f32; leaves of their own, as they were. The others it leaves alone.
pub(super) struct Widen;

impl ModuleMapper for Widen {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if is_half(param.dtype()) { param.map(|tensor| leaf(&tensor, FloatDType::F32)) } else { param }
    }
}

/// Makes f32 parameters 16-bit ones, leaves of their own; those in an `InF32`, packed ones and f64 it leaves alone.
struct Narrow {
    half: Half,
    path: ModulePath,
}

impl ModuleMapper for Narrow {
    track_path!();

    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if self.path.is_f32() || param.dtype() != DType::F32 {
            return param;
        }
        param.map(|tensor| leaf(&tensor, self.half.float()))
    }
}

/// The 16-bit types; a packed tensor is of neither.
pub(crate) fn is_half(dtype: DType) -> bool {
    matches!(dtype, DType::BF16 | DType::F16)
}

/// The same values in another type, without the graph they come from; with autodiff, gradient checkpointing and whether
/// a gradient is kept as before. The cast itself is not part of a graph.
fn leaf<const D: usize>(tensor: &Tensor<D>, float: FloatDType) -> Tensor<D> {
    like(tensor, tensor.clone().without_autodiff().cast(float))
}

/// Values without autodiff as a leaf of the type of `tensor`, and with autodiff, gradient checkpointing and whether a
/// gradient is kept as it has them.
fn leaf_like<const D: usize>(tensor: &Tensor<D>, values: Tensor<D>) -> Tensor<D> {
    like(tensor, values.cast(tensor.dtype()))
}

fn like<const D: usize>(tensor: &Tensor<D>, values: Tensor<D>) -> Tensor<D> {
    match tensor.gradient_checkpointing_strategy() {
        Some(strategy) => {
            values.autodiff().with_gradient_checkpointing_strategy(strategy).set_require_grad(tensor.is_require_grad())
        }
        None => values,
    }
}

/// The tensor in f32, for the loss: differentiable, and nothing is done to what is f32 or f64 already.
///
/// Call it on a model's output before the loss. Sums over classes and samples, logarithms and differences of nearly equal
/// numbers lose in 16 bits what they are about, and in f16 the scaled loss would overflow.
pub fn in_f32<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if is_half(tensor.dtype()) { tensor.cast(FloatDType::F32) } else { tensor }
}

static WARNED: Once = Once::new();

/// An optimizer whose state is f32 also after it has been loaded from a record.
///
/// Burn 0.22.1 loads the state of optimizers in the default float type. Where that is a 16-bit one, moments lose their
/// precision, and the next step mixes them with f32 gradients. This loads them on a device whose default is f32, from
/// where Burn moves them to the gradient's in the next step. Records are those of the optimizer itself.
///
/// For training on a GPU, that device is the CPU, even with a default of fp32: Burn loads the states of all ranks on
/// its default device, which is the first GPU. Training on the CPU with a 16-bit default has no such device: the state
/// starts from zero, with a warning.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::optim::{AdamWConfig, ModuleOptimizer};
/// use gpu_tuned::mixed::F32State;
///
/// let optimizer: ModuleOptimizer = F32State::new(AdamWConfig::new().build()).into();
/// ```
#[derive(Clone, Debug)]
pub struct F32State<O> {
    optimizer: O,
}

impl<O: Optimizer> F32State<O> {
    /// Wraps the result of an optimizer config's `build`.
    pub fn new(optimizer: O) -> Self {
        Self { optimizer }
    }
}

/// The state of an optimizer, loaded in f32.
#[derive(Clone, Debug)]
pub struct Wide<S>(S);

impl<O: Optimizer> Optimizer for F32State<O> {
    type State<const D: usize> = Wide<O::State<D>>;

    fn step<const D: usize>(
        &self,
        lr: LearningRate,
        tensor: Tensor<D>,
        grad: Tensor<D>,
        state: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        let (tensor, state) = self.optimizer.step(lr, tensor, grad, state.map(|state| state.0));
        (tensor, state.map(Wide))
    }

    fn to_device<const D: usize>(state: Self::State<D>, device: &Device) -> Self::State<D> {
        Wide(O::to_device(state.0, device))
    }
}

impl<S: RecordState> RecordState for Wide<S> {
    fn state_flatten(&self, prefix: &str, out: &mut StateSink) {
        self.0.state_flatten(prefix, out);
    }

    fn state_unflatten(prefix: &str, src: &mut StateSource, device: &Device) -> Option<Self> {
        let exact = [Device::flex(), device.clone()].into_iter().find(has_f32);
        if exact.is_none() {
            let text =
                "no device has f32 as its default float type: the optimizer's state is not loaded, and begins anew";
            WARNED.call_once(|| tracing::warn!("{text}"));
        }
        S::state_unflatten(prefix, src, &exact?).map(Self)
    }
}

fn has_f32(device: &Device) -> bool {
    device.settings().float_dtype == FloatDType::F32
}
