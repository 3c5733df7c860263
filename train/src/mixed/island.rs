//! Modules in f32 inside a model in 16 bits, and running statistics, which have to be in one.

use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param};
use burn::nn::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
use burn::tensor::{Device, FloatDType, Tensor};
use gpu_tuned_kernels::nn;

use super::MixedError;
use super::master::{Widen, is_half};

/// Module that computes in fp32 inside a model that computes in 16 bits. Parameters and running statistics are fp32.
/// Inputs are widened, and outputs have the type of the inputs.
///
/// In a model that is f32 throughout it changes nothing. It adds no level to the paths of parameters: a record of the
/// model with it is one of the model without it.
///
/// The normalisation layers of Burn and of `gpu_tuned::nn` are called as before, with `forward`; every other module with [`apply`](Self::apply).
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::module::Module;
/// use burn::nn::conv::{Conv2d, Conv2dConfig};
/// use burn::nn::{BatchNorm, BatchNormConfig};
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::mixed::InF32;
///
/// #[derive(Module, Debug)]
/// struct Block {
///     conv: Conv2d,
///     norm: InF32<BatchNorm>, // was: BatchNorm
/// }
///
/// impl Block {
///     fn init(device: &Device) -> Self {
///         let conv = Conv2dConfig::new([3, 8], [3, 3]).init(device);
///         Self { conv, norm: BatchNormConfig::new(8).init(device).into() }
///     }
///
///     fn forward(&self, images: Tensor<4>) -> Tensor<4> {
///         self.norm.forward(self.conv.forward(images))
///     }
/// }
/// # let device = Device::flex().autodiff();
/// # assert_eq!(Block::init(&device).forward(Tensor::zeros([2, 3, 4, 4], &device)).dims(), [2, 8, 2, 2]);
/// ```
#[derive(Clone, Debug)]
pub struct InF32<M> {
    module: M,
}

impl<M: Module> InF32<M> {
    /// The module with everything that it has in 16 bits widened to f32.
    pub fn new(module: M) -> Self {
        Self { module: module.map(&mut Widen) }
    }

    /// The module.
    pub fn module(&self) -> &M {
        &self.module
    }

    /// Calls `forward` with the input in f32, and gives its result the type that the input had. An input in f32 or f64
    /// is passed as it is.
    pub fn apply<const I: usize, const O: usize>(
        &self,
        input: Tensor<I>,
        forward: impl FnOnce(&M, Tensor<I>) -> Tensor<O>,
    ) -> Tensor<O> {
        let outside = input.dtype();
        if !is_half(outside) {
            return forward(&self.module, input);
        }
        forward(&self.module, input.cast(FloatDType::F32)).cast(outside)
    }
}

impl<M: Module> From<M> for InF32<M> {
    fn from(module: M) -> Self {
        Self::new(module)
    }
}

/// `forward` for modules of which it takes one tensor and returns one of the same rank.
macro_rules! forward {
    ($($module:ty),+) => {$(
        impl InF32<$module> {
            /// The module's own `forward`, in f32.
            pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
                self.apply(input, <$module>::forward)
            }
        }
    )+};
}

forward!(BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm, nn::GroupNorm, nn::InstanceNorm, nn::LayerNorm);

impl InF32<nn::BatchNorm> {
    /// The module's own `forward`, in f32. cuDNN reads 16-bit inputs without a copy in f32.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        if self.module.takes_any_type(&input) {
            self.module.forward(input)
        } else {
            self.apply(input, nn::BatchNorm::forward)
        }
    }
}

impl<M: Module> Module for InF32<M> {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        visitor.enter_module("", ISLAND[0]);
        visitor.exit_module("", ISLAND[0]);
        self.module.visit(visitor);
        visitor.enter_module("", ISLAND[1]);
        visitor.exit_module("", ISLAND[1]);
    }

    fn map<T: ModuleMapper>(self, mapper: &mut T) -> Self {
        mapper.enter_module("", ISLAND[0]);
        mapper.exit_module("", ISLAND[0]);
        let module = self.module.map(mapper);
        mapper.enter_module("", ISLAND[1]);
        mapper.exit_module("", ISLAND[1]);
        Self { module }
    }

    fn collect_devices(&self, devices: Devices) -> Devices {
        self.module.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self { module: self.module.fork(device) }
    }

    fn to_device(self, device: &Device) -> Self {
        Self { module: self.module.to_device(device) }
    }

    fn train(self) -> Self {
        Self { module: self.module.train() }
    }

    fn valid(&self) -> Self {
        Self { module: self.module.valid() }
    }

    fn materialize(self) -> Self {
        Self { module: self.module.materialize() }
    }
}

impl<M: Module + ModuleDisplay> ModuleDisplayDefault for InF32<M> {
    fn content(&self, content: Content) -> Option<Content> {
        content.add("in_f32", &self.module).optional()
    }

    fn num_params(&self) -> usize {
        Module::num_params(&self.module)
    }
}

impl<M: Module + ModuleDisplay> ModuleDisplay for InF32<M> {}

/// Container types of an extra level that is entered and left at once, to mark the begin and end of fp32 modules.
/// Paths, records and parameter groups are those of a model without it.
const ISLAND: [&str; 2] = ["InF32", "InF32 end"];

/// Position of a visitor or mapper in a model.
#[derive(Default)]
pub(crate) struct ModulePath {
    path: Vec<String>,
    /// Modules in f32 around it.
    islands: usize,
}

impl ModulePath {
    /// To be called from `enter_module`.
    pub(crate) fn enter(&mut self, name: &str, container: &str) {
        if container == ISLAND[0] {
            self.islands += 1;
        } else if container == ISLAND[1] {
            self.islands -= 1;
        } else {
            self.path.push(name.to_owned());
        }
    }

    /// To be called from `exit_module`.
    pub(crate) fn exit(&mut self, container: &str) {
        if !ISLAND.contains(&container) {
            self.path.pop();
        }
    }

    /// Returns true inside an [`InF32`].
    pub(super) fn is_f32(&self) -> bool {
        self.islands > 0
    }

    /// As records spell it.
    pub(crate) fn path(&self) -> String {
        self.path.join(".")
    }
}

/// The part of a `ModuleVisitor` or `ModuleMapper` that keeps its field `place`.
macro_rules! track_path {
    () => {
        fn enter_module(&mut self, name: &str, container_type: &str) {
            self.path.enter(name, container_type);
        }

        fn exit_module(&mut self, _: &str, container_type: &str) {
            self.path.exit(container_type);
        }
    };
}
pub(crate) use track_path;

/// Checks that every running statistic of the model is in an `InF32`.
pub(super) fn check_statistics<M: Module>(model: &M) -> Result<(), MixedError> {
    let paths: Vec<_> = running_states(model).into_iter().filter(|(_, is_f32)| !is_f32).map(|(path, _)| path).collect();
    if paths.is_empty() { Ok(()) } else { Err(MixedError::HalfStatistics { paths }) }
}

/// Paths of a model's running states, and true for those in an `InF32`.
///
/// Burn shows a `RunningState` to visitors like any other parameter. The difference: a `RunningState` refuses to keep
/// gradients, whatever a mapper does.
pub(crate) fn running_states<M: Module>(model: &M) -> Vec<(String, bool)> {
    let mut refusing = Refusing::default();
    model.clone().map(&mut AskForGradients).visit(&mut refusing);
    refusing.states
}

/// Values stay as they are: what it maps may be shared with the model.
struct AskForGradients;

impl ModuleMapper for AskForGradients {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if !can_refuse(&param) {
            return param;
        }
        param.map(|tensor| tensor.detach().require_grad())
    }
}

#[derive(Default)]
struct Refusing {
    path: ModulePath,
    states: Vec<(String, bool)>,
}

impl ModuleVisitor for Refusing {
    track_path!();

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if can_refuse(param) && !param.is_require_grad() {
            self.states.push((self.path.path(), self.path.is_f32()));
        }
    }
}

/// Packed tensors have no gradients. Nor has anything without autodiff; but there statistics are not updated either.
fn can_refuse<const D: usize>(param: &Param<Tensor<D>>) -> bool {
    param.dtype().is_float() && param.is_autodiff()
}
