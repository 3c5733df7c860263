//! Recurrent layers by cuDNN. Tensors with gaps are copied.

use std::sync::Arc;

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::convolutions::empty_contiguous;
use super::{empty_of, stream};
use crate::cudnn::RecurrentPlan;

/// Shape of [`Recurrence::output_shape`](crate::recurrence::Recurrence::output_shape).
pub(super) fn output_shape(plan: &RecurrentPlan) -> Shape {
    Shape::from(plan.recurrence().output_shape())
}

/// Shape of what is kept for the gradients, in numbers of f32.
pub(super) fn reserve_shape(plan: &RecurrentPlan) -> Shape {
    Shape::new([plan.reserve_bytes().div_ceil(size_of::<f32>()).max(1)])
}

/// The output, and what is kept for the gradients.
pub(super) fn forward(
    input: CubeTensor,
    weights: CubeTensor,
    states: CubeTensor,
    plan: Arc<RecurrentPlan>,
    is_training: bool,
) -> (CubeTensor, Option<CubeTensor>) {
    let [input, weights, states] = [input, weights, states].map(into_contiguous);
    let output = empty_contiguous(&input, &output_shape(&plan));
    let reserve = is_training.then(|| empty_of(&input, reserve_shape(&plan), DType::F32));
    let read = [&input, &weights, &states].map(|tensor| tensor.handle.clone());
    let of_reserve = reserve.as_ref().map(|tensor| tensor.handle.clone());
    stream::recur(&input.client, plan, read, output.handle.clone(), of_reserve);
    (output, reserve)
}

/// Gradients of input, weights and states. They overwrite what was kept.
pub(super) fn gradients(
    input: CubeTensor,
    weights: CubeTensor,
    states: CubeTensor,
    output: CubeTensor,
    gradient: CubeTensor,
    reserve: &CubeTensor,
    plan: Arc<RecurrentPlan>,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let read = [input, weights, states, output, gradient].map(into_contiguous);
    let [of_input, of_states] = [0, 2].map(|which| empty_contiguous(&read[which], read[which].meta.shape()));
    let (weights, client) = (&read[1], read[0].client.clone());
    let of_weights = CubeBackend::float_zeros(weights.meta.shape().clone(), &weights.device, weights.dtype.into());
    let written = [&of_input, &of_weights, &of_states, reserve].map(|tensor| tensor.handle.clone());
    stream::recurrent_gradients(&client, plan, read.map(|tensor| tensor.handle), written);
    (of_input, of_weights, of_states)
}
