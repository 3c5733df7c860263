//! Burn's modules under Burn's names, with library products where they are [selected](crate::selection).
//!
//! A program changes `burn::nn` to this module. Configs and records are Burn's: what was saved with one loads with the
//! other. Modules without a faster version are Burn's own.

pub mod attention;
mod config;
pub mod conv;
pub mod gru;
pub mod loss;
mod recurrent;
pub mod transformer;

use std::ops::{Deref, DerefMut};

use burn::module::{
    Content, Devices, DisplaySettings, Module, ModuleDisplay, ModuleDisplayDefault, ModuleMapper, ModuleVisitor, Param,
};
use burn::nn as burn_nn;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor};

pub use burn::nn::*;
pub use config::{
    BatchNormConfig, BiGruConfig, BiLstmConfig, EmbeddingConfig, GroupNormConfig, GruConfig, InstanceNormConfig,
    LayerNormConfig, LinearConfig, LstmConfig,
};
pub use recurrent::{BiGru, BiLstm, Gru, Lstm, joint_lstm};

use crate::product;

/// A linear layer: `O = IW + b`.
pub type Linear = ByLibrary<burn_nn::Linear>;
/// A lookup table of vectors.
pub type Embedding = ByLibrary<burn_nn::Embedding>;

/// Normalisation of the channels of a batch.
pub type BatchNorm = ByLibrary<burn_nn::BatchNorm>;
/// Normalisation of a sample's channels in groups.
pub type GroupNorm = ByLibrary<burn_nn::GroupNorm>;
/// Normalisation of each channel of a sample.
pub type InstanceNorm = ByLibrary<burn_nn::InstanceNorm>;
/// Normalisation of the last dimension.
pub type LayerNorm = ByLibrary<burn_nn::LayerNorm>;

/// One of Burn's modules, whose products the library computes. Fields and other methods are those of the module.
#[derive(Clone, Debug)]
pub struct ByLibrary<M>(M);

impl<M> ByLibrary<M> {
    /// Burn's module.
    pub fn into_inner(self) -> M {
        self.0
    }
}

impl<M> From<M> for ByLibrary<M> {
    fn from(module: M) -> Self {
        Self(module)
    }
}

impl<M> Deref for ByLibrary<M> {
    type Target = M;

    fn deref(&self) -> &M {
        &self.0
    }
}

impl<M> DerefMut for ByLibrary<M> {
    fn deref_mut(&mut self) -> &mut M {
        &mut self.0
    }
}

impl<M: Module> Module for ByLibrary<M> {
    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        self.0.visit(visitor);
    }

    fn map<T: ModuleMapper>(self, mapper: &mut T) -> Self {
        Self(self.0.map(mapper))
    }

    fn collect_devices(&self, devices: Devices) -> Devices {
        self.0.collect_devices(devices)
    }

    fn fork(self, device: &Device) -> Self {
        Self(self.0.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        Self(self.0.to_device(device))
    }

    fn train(self) -> Self {
        Self(self.0.train())
    }

    fn valid(&self) -> Self {
        Self(self.0.valid())
    }

    fn materialize(self) -> Self {
        Self(self.0.materialize())
    }
}

impl<M: Module + ModuleDisplay> ModuleDisplayDefault for ByLibrary<M> {
    fn content(&self, content: Content) -> Option<Content> {
        self.0.content(content)
    }

    fn num_params(&self) -> usize {
        Module::num_params(&self.0)
    }
}

impl<M: Module + ModuleDisplay> ModuleDisplay for ByLibrary<M> {
    fn format(&self, settings: DisplaySettings) -> String {
        self.0.format(settings)
    }
}

impl Linear {
    /// Applies the layer: `[.., d_input]` to `[.., d_output]`.
    ///
    /// # Panics
    ///
    /// Panics if the last dimension of the input is not `d_input`.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        linear(self, input)
    }
}

/// [`burn_nn::Linear::forward`] with a library product.
fn linear<const D: usize>(layer: &burn_nn::Linear, input: Tensor<D>) -> Tensor<D> {
    let weight = layer.weight.val();
    assert_eq!(input.dims()[D - 1], weight.dims()[0], "last dimension of a linear layer's input");
    product::linear(input, weight, layer.bias.as_ref().map(Param::val))
}

impl LayerNorm {
    /// Normalises the last dimension: `[.., d_model]` to `[.., d_model]`. With the library selected, sums are in f32.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        layer_norm(self, input)
    }
}

/// [`burn_nn::LayerNorm::forward`] in one kernel.
fn layer_norm<const D: usize>(layer: &burn_nn::LayerNorm, input: Tensor<D>) -> Tensor<D> {
    match (&layer.beta, epsilon(layer)) {
        (Some(beta), Some(epsilon)) => product::layer_norm(input, layer.gamma.val(), beta.val(), epsilon),
        _ => layer.forward(input),
    }
}

/// The field is private in Burn 0.22. The display of the module shows all its digits.
fn epsilon(layer: &burn_nn::LayerNorm) -> Option<f64> {
    let content = layer.custom_content(Content::new(DisplaySettings::default()))?;
    content.attributes.iter().find(|attribute| attribute.name == "epsilon")?.value.parse().ok()
}

impl BatchNorm {
    /// Normalises the channels: `[batch, channels, ..]` to `[batch, channels, ..]`. With the library selected, norms that train
    /// have sums and statistics in f32.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let Self(layer) = self;
        let device = input.device();
        if !self.is_training(&input) {
            return layer.forward(input);
        }
        assert!(D >= 2 && input.dims()[1] == layer.gamma.dims()[0], "channels of a batch norm's input");
        let result = product::batch_norm_train(input, layer.gamma.val(), layer.beta.val(), layer.epsilon);
        for (state, new) in [(&layer.running_mean, result.mean), (&layer.running_var, result.variance)] {
            let old = state.value_sync().to_device(&device);
            let new = if new.dtype() == old.dtype() { new } else { new.cast(float_of(old.dtype())) };
            let new = old.mul_scalar(1.0 - layer.momentum).add(new.detach().mul_scalar(layer.momentum));
            state.update(new.detach());
        }
        result.output
    }

    fn is_training<const D: usize>(&self, input: &Tensor<D>) -> bool {
        input.device().is_autodiff() && self.0.training.is_enabled()
    }

    /// Returns `true` if [`forward`](Self::forward) of this input takes factors and statistics in f32 whatever the input's type
    /// is: with cuDNN in training.
    pub fn takes_any_type<const D: usize>(&self, input: &Tensor<D>) -> bool {
        self.is_training(input) && product::is_batch_norm_by_library(input)
    }
}

impl GroupNorm {
    /// Normalises channels in groups: `[batch, channels, ..]` to `[batch, channels, ..]`. With cuDNN, sums are in f32.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let Self(layer) = self;
        if !product::is_group_norm_by_library(&input, layer.num_groups) {
            return layer.forward(input);
        }
        let vectors = [&layer.gamma, &layer.beta].map(|vector| vector.as_ref().map(Param::val));
        let [gamma, beta] = vectors;
        product::group_norm(input, gamma.zip(beta), layer.num_groups, layer.epsilon)
    }
}

impl InstanceNorm {
    /// Normalises each channel of a sample: `[batch, channels, ..]` to `[batch, channels, ..]`. With cuDNN, sums are in f32.
    pub fn forward<const D: usize>(&self, input: Tensor<D>) -> Tensor<D> {
        let Self(layer) = self;
        let burn_nn::InstanceNorm { gamma, beta, num_channels, epsilon, affine } = layer.clone();
        GroupNorm::from(burn_nn::GroupNorm { gamma, beta, num_groups: num_channels, num_channels, epsilon, affine })
            .forward(input)
    }
}

fn float_of(dtype: DType) -> FloatDType {
    match dtype {
        DType::F16 => FloatDType::F16,
        DType::BF16 => FloatDType::BF16,
        DType::F64 => FloatDType::F64,
        _ => FloatDType::F32,
    }
}

impl Embedding {
    /// Vectors of tokens: `[batch, length]` to `[batch, length, d_model]`.
    ///
    /// With the library selected, atomic additions sum the gradient, ten times as fast as Burn's sum. Their order is
    /// not fixed: f32 gradients of two runs differ in the last bits.
    pub fn forward(&self, tokens: Tensor<2, Int>) -> Tensor<3> {
        product::embedding(self.0.weight.val(), tokens)
    }
}
