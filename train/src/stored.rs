//! Tensors in memory that is rewritten in place.

use burn::tensor::kind::{Autodiff, Basic};
use burn::tensor::{Device, Tensor};

/// Copies `value` into the memory of `kept`, or into memory that nothing else uses. Neither has autodiff.
///
/// `None` if the memory of `kept` is shared, or if it has another shape or type.
pub(crate) fn store<const D: usize, K: Basic>(value: Tensor<D, K>, kept: Option<Tensor<D, K>>) -> Option<Tensor<D, K>> {
    let shape = value.dims();
    let kept = kept.unwrap_or_else(|| Tensor::empty(shape, (&value.device(), value.dtype())));
    let fits = kept.can_mut() && kept.dims() == shape && kept.dtype() == value.dtype();
    if value.shape().num_elements() == 0 {
        return fits.then_some(kept);
    }
    fits.then(|| kept.slice_assign(shape.map(|size| 0..size), value))
}

/// The tensor in the autodiff context of `device`.
pub(crate) fn with_autodiff_of<const D: usize, K: Autodiff>(tensor: Tensor<D, K>, device: &Device) -> Tensor<D, K> {
    match device.gradient_checkpointing_strategy() {
        Some(strategy) => tensor.autodiff().with_gradient_checkpointing_strategy(strategy),
        None => tensor,
    }
}
