//! Attention.

use burn::tensor::activation::softmax;
use burn::tensor::{Bool, Tensor};
#[cfg(feature = "cuda")]
use {
    super::{by_library, device_id},
    crate::attention::Attention,
    crate::cublaslt::Element,
    crate::operations::{AttentionPlans, LibraryOps, plan_attention},
    crate::selection::{Kind, cudnn, has_cudnn, is_deterministic},
    burn::backend::Dispatch,
    burn::tensor::DType,
    burn::tensor::ops::PadMode,
    std::sync::Arc,
};

use super::matmul;

/// Means of values, weighted by the softmax of the scores of queries and keys: `[batch, queries, heads, inner]`,
/// `[batch, keys, heads, inner]` and `[batch, keys, heads, values]` to `[batch, queries, heads, values]`.
///
/// Scores are products of queries and keys, divided by the root of `inner`, plus the bias `[batch or 1, queries, keys]`, which
/// gets no gradient. If attention is causal, queries have no keys behind their own position.
///
/// By cuDNN in one kernel that stores no scores, where the library is selected and cuDNN 9.10.2 or newer is there, the device is
/// a CUDA device, the type is f16 or bf16, there are two queries or more, and `inner` and `values` are multiples of 8 up to 128.
/// Else by [`matmul`].
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned_kernels::product::attention;
///
/// let device = Device::flex();
/// let query = Tensor::ones([2, 3, 4, 8], &device); // [batch, queries, heads, inner]
/// let (key, value) = (Tensor::ones([2, 5, 4, 8], &device), Tensor::ones([2, 5, 4, 16], &device));
/// assert_eq!(attention(query, key, value, None, true).dims(), [2, 3, 4, 16]);
/// ```
///
/// # Panics
///
/// Panics if the shapes do not match.
pub fn attention(
    query: Tensor<4>,
    key: Tensor<4>,
    value: Tensor<4>,
    bias: Option<Tensor<3>>,
    is_causal: bool,
) -> Tensor<4> {
    let ([batch, queries, heads, inner], [_, keys, ..]) = (query.dims(), key.dims());
    assert_eq!(key.dims(), [batch, keys, heads, inner], "attention's keys");
    assert_eq!(value.dims()[..3], [batch, keys, heads], "attention's values");
    let biases = bias.as_ref().map_or(0, |bias| bias.dims()[0]);
    if let Some(bias) = &bias {
        assert!(biases == 1 || biases == batch, "attention's biases");
        assert_eq!(bias.dims()[1..], [queries, keys], "attention's biases");
    }
    let scale = 1.0 / (inner as f64).sqrt();
    #[cfg(feature = "cuda")]
    if let Some(plans) = plans([&query, &key, &value], biases, is_causal)
        && bias.as_ref().is_none_or(|bias| bias.dtype() == query.dtype())
    {
        let [query, key, value] = [query, key, value].map(Tensor::into_dispatch);
        let bias = bias.map(|bias| bias.pad((0, keys.next_multiple_of(8) - keys, 0, 0), PadMode::Constant(0.0)));
        // Plans without biases read none.
        let bias = bias.map_or_else(|| query.clone(), Tensor::into_dispatch);
        return Tensor::from_dispatch(Dispatch::library_attention(query, key, value, bias, scale as f32, plans));
    }
    let [query, key, value] = [query, key, value].map(|tensor| tensor.swap_dims(1, 2));
    let device = query.device();
    let mut scores = matmul(query, key.transpose()).mul_scalar(scale);
    if let Some(bias) = bias {
        scores = scores + bias.detach().unsqueeze_dim::<4>(1);
    }
    if is_causal {
        let is_behind = Tensor::<2, Bool>::tril_mask([queries, keys], 0, &device);
        scores = scores.mask_fill(is_behind.unsqueeze::<4>(), f32::NEG_INFINITY);
    }
    matmul(softmax(scores, 3), value).swap_dims(1, 2)
}

/// Returns `true` if cuDNN computes [`attention`] of tensors of these shapes.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "cuDNN is one of CUDA devices"))]
pub(crate) fn is_attention_by_library(tensors: [&Tensor<4>; 3], biases: usize) -> bool {
    #[cfg(feature = "cuda")]
    {
        plans(tensors, biases, false).is_some()
    }
    #[cfg(not(feature = "cuda"))]
    false
}

/// The plans of the library, if it computes attention of these tensors.
#[cfg(feature = "cuda")]
fn plans([query, key, value]: [&Tensor<4>; 3], biases: usize, is_causal: bool) -> Option<Arc<AttentionPlans>> {
    let dtype = query.dtype();
    let element = match dtype {
        DType::F16 => Element::F16,
        DType::BF16 => Element::Bf16,
        _ => return None,
    };
    by_library(query).filter(|_| has_cudnn() && !is_deterministic() && !Kind::Attention.is_refused(dtype))?;
    if key.dtype() != dtype || value.dtype() != dtype {
        return None;
    }
    let ([batch, queries, heads, inner], [_, keys, _, values]) = (query.dims(), value.dims());
    let packed = |rows, numbers| Attention::packed(heads, rows, numbers);
    let strides = [packed(queries, inner), packed(keys, inner), packed(keys, values), packed(queries, values)];
    let attention = Attention { element, batch, heads, queries, keys, inner, values, is_causal, biases, strides };
    // A plan that the library cannot make would count as left to Burn.
    let is_supported = attention.is_supported(cudnn()?.version());
    is_supported.then(|| plan_attention(device_id(&query.device())?, &attention)).flatten()
}
