use burn::tensor::{FloatDType, Tensor};

/// The tensor in f32, for the loss: differentiable, and nothing is done to what is f32 or f64 already.
///
/// Call it on a model's output before the loss. Sums over classes and samples, logarithms and differences of nearly equal
/// numbers lose in 16 bits what they are about, and in f16 the scaled loss would overflow.
pub fn in_f32<const D: usize>(tensor: Tensor<D>) -> Tensor<D> {
    if super::cast::is_half(tensor.dtype()) { tensor.cast(FloatDType::F32) } else { tensor }
}
