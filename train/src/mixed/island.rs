use burn::module::{Content, Devices, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor};
use burn::nn::{BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm};
use burn::tensor::{Device, FloatDType, Tensor};

use super::cast::{Widen, is_half};
use super::module_path::ISLAND;

/// Module that computes in fp32 inside a model that computes in 16 bits. Parameters and running statistics are fp32.
/// Inputs are widened, and outputs have the type of the inputs.
///
/// In a model that is f32 throughout it changes nothing. It adds no level to the paths of parameters: a record of the
/// model with it is one of the model without it.
///
/// The normalisation layers of Burn are called as before, with `forward`; every other module with [`apply`](Self::apply).
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

forward!(BatchNorm, GroupNorm, InstanceNorm, LayerNorm, RmsNorm);

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
