//! Attention by cuDNN. Tensors are `[batch, rows, heads, numbers]`, read as they lie in memory where the library can.

use std::sync::Arc;

use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;

use super::convolutions::empty_contiguous;
use super::stream;
use crate::attention::{Attention, Strides};
use crate::cudnn::AttentionPlan;

/// Plans of attention and of its gradients, for tensors without gaps.
#[derive(Clone, Debug)]
pub struct AttentionPlans {
    pub(super) forward: Arc<AttentionPlan>,
    pub(super) gradients: Arc<AttentionPlan>,
}

impl AttentionPlans {
    pub(super) fn has_bias(&self) -> bool {
        self.forward.attention().biases > 0
    }
}

/// Shape of the output.
pub(super) fn output_shape(plans: &AttentionPlans) -> Shape {
    let Attention { batch, queries, heads, values, .. } = *plans.forward.attention();
    Shape::new([batch, queries, heads, values])
}

/// Shape of the statistics of the softmax.
pub(super) fn statistics_shape(plans: &AttentionPlans) -> Shape {
    let Attention { batch, heads, queries, .. } = *plans.forward.attention();
    Shape::new([batch, heads, queries])
}

/// The output and the statistics, of query, key and value. The bias is read if the plans have one.
pub(super) fn forward(
    read: [CubeTensor; 3],
    bias: CubeTensor,
    scale: f32,
    plans: &AttentionPlans,
) -> (CubeTensor, CubeTensor) {
    let (read, plan) = planned(read, &plans.forward, false);
    let beside = &read[0];
    let (client, device) = (beside.client.clone(), beside.device.clone());
    let output = empty_contiguous(beside, &output_shape(plans));
    let statistics = empty_device_contiguous_dtype(client.clone(), device, statistics_shape(plans), DType::F32);
    let written = [&output, &statistics].map(|tensor| tensor.handle.clone());
    let bias = of_plan(bias, &plan);
    let read = read.into_iter().chain(bias).map(|tensor| tensor.handle).collect();
    stream::attend(&client, plan, read, written, scale);
    (output, statistics)
}

/// Gradients of query, key and value, for output and statistics of the forward pass, and the output's gradient.
pub(super) fn gradients(
    [query, key, value]: [CubeTensor; 3],
    bias: CubeTensor,
    of_forward: [CubeTensor; 2],
    gradient: CubeTensor,
    scale: f32,
    plans: &AttentionPlans,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let ([query, key, value, gradient], plan) = planned([query, key, value, gradient], &plans.gradients, true);
    let [of_query, of_key, of_value] =
        [&query, &key, &value].map(|tensor| empty_contiguous(tensor, tensor.meta.shape()));
    let written = [&of_query, &of_key, &of_value].map(|tensor| tensor.handle.clone());
    let (client, bias) = (query.client.clone(), of_plan(bias, &plan));
    let [output, statistics] = of_forward.map(into_contiguous);
    let read = [query, key, value, output, statistics, gradient].into_iter().chain(bias);
    stream::attention_gradients(&client, plan, read.map(|tensor| tensor.handle).collect(), written, scale);
    (of_query, of_key, of_value)
}

fn of_plan(bias: CubeTensor, plan: &AttentionPlan) -> Option<CubeTensor> {
    (plan.attention().biases > 0).then(|| into_contiguous(bias))
}

/// Tensors with the plan that reads them. Tensors that no plan reads as they lie are copied.
fn planned<const N: usize>(
    tensors: [CubeTensor; N],
    plan: &Arc<AttentionPlan>,
    is_backward: bool,
) -> ([CubeTensor; N], Arc<AttentionPlan>) {
    let packed = plan.attention();
    let mut attention = packed.clone();
    let mut layouts = attention.strides.iter_mut();
    let tensors = tensors.map(|tensor| {
        let layout = layouts.next().expect("BUG: a layout for each tensor");
        if let Some(strides) = strides(&tensor, *layout) {
            *layout = strides;
            return tensor;
        }
        into_contiguous(tensor)
    });
    if attention == *packed {
        return (tensors, plan.clone());
    }
    match stream::plan_attention(tensors[0].client.service_id().device, &attention, is_backward) {
        Some(plan) => (tensors, plan),
        None => (tensors.map(into_contiguous), plan.clone()),
    }
}

/// Numbers from one sequence, head and row to the next. `None` if the library cannot load the rows.
fn strides(tensor: &CubeTensor, packed: Strides) -> Option<Strides> {
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let bytes = tensor.handle.offset_start.unwrap_or(0);
    if tensor.meta.is_tiled() || strides[3] != 1 || !bytes.is_multiple_of(Attention::ALIGNMENT as u64) {
        return None;
    }
    // The stride of one element is any.
    let stride = |dimension: usize, packed| if shape[dimension] == 1 { packed } else { strides[dimension] };
    let strides = [stride(0, packed[0]), stride(2, packed[1]), stride(1, packed[2])];
    strides.iter().all(|stride| Attention::is_loaded(*stride)).then_some(strides)
}
