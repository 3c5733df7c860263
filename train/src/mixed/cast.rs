use burn::module::{ModuleMapper, Param};
use burn::tensor::{DType, FloatDType, Tensor};

use super::Half;
use super::module_path::{ModulePath, track_path};

/// Makes 16-bit parameters and statistics f32; leaves of their own, as they were. The others it leaves alone.
pub(super) struct Widen;

impl ModuleMapper for Widen {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        if is_half(param.dtype()) { param.map(|tensor| leaf(&tensor, FloatDType::F32)) } else { param }
    }
}

/// Makes f32 parameters 16-bit ones, leaves of their own; those in an `InF32`, packed ones and f64 it leaves alone.
pub(super) struct Narrow {
    half: Half,
    path: ModulePath,
}

impl Narrow {
    pub(super) fn to(half: Half) -> Self {
        Self { half, path: ModulePath::default() }
    }
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
pub(super) fn leaf_like<const D: usize>(tensor: &Tensor<D>, values: Tensor<D>) -> Tensor<D> {
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
