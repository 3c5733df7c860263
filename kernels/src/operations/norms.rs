//! Batch norms by cuDNN. Tensors with gaps are copied: the library describes every layout, and refuses some when it computes.

use burn::backend::ops::FloatTensorOps;
use burn::tensor::{DType, FloatDType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;

use super::convolutions::{element_of, empty_in, format_of, packed, untiled, with_sizes};
use super::{empty_of, stream};
use crate::convolution::{Format, Layout};
use crate::cublaslt::Element;
use crate::selection::Kind;

/// Output, means, variances and reciprocals of standard deviations.
pub(super) fn batch_norm(
    input: CubeTensor,
    gamma: CubeTensor,
    beta: CubeTensor,
    epsilon: f64,
) -> (CubeTensor, CubeTensor, CubeTensor, CubeTensor) {
    let shape = input.meta.shape().clone();
    let channels = shape[1];
    let (element, input, layout, format) = described(input);
    let [gamma, beta] = [gamma, beta].map(into_contiguous);
    let output = empty_in(&input, shape, format);
    let [mean, variance] =
        [(); 2].map(|()| CubeBackend::float_zeros(Shape::new([channels]), &input.device, FloatDType::F32));
    let [saved, deviation] = [(); 2].map(|()| empty_of(&input, Shape::new([channels]), DType::F32));
    let read = [&input, &gamma, &beta].map(|tensor| tensor.handle.clone());
    let written = [&output, &mean, &variance, &saved, &deviation].map(|tensor| tensor.handle.clone());
    stream::batch_norm(&input.client, (element, layout), read, written, epsilon);
    (output, saved, variance, deviation)
}

/// Gradients of input, gamma and beta.
pub(super) fn batch_norm_gradients(
    input: CubeTensor,
    gamma: CubeTensor,
    gradient: CubeTensor,
    mean: CubeTensor,
    deviation: CubeTensor,
    epsilon: f64,
) -> (CubeTensor, CubeTensor, CubeTensor) {
    let shape = input.meta.shape().clone();
    let channels = shape[1];
    let (element, input, layout, format) = described(input);
    let (gradient, _) = packed(&with_sizes(untiled(gradient)), format);
    let [gamma, mean, deviation] = [gamma, mean, deviation].map(into_contiguous);
    let of_input = empty_in(&input, shape, format);
    let [of_gamma, of_beta] = [(); 2].map(|()| empty_of(&input, Shape::new([channels]), DType::F32));
    let read = [&input, &gamma, &gradient, &mean, &deviation].map(|tensor| tensor.handle.clone());
    let written = [&of_input, &of_gamma, &of_beta].map(|tensor| tensor.handle.clone());
    stream::batch_norm_gradients(&input.client, (element, layout), read, written, epsilon);
    (of_input, of_gamma, of_beta)
}

/// The tensor without gaps, in the order that it has, unless the library's result was wrong for that order.
fn described(input: CubeTensor) -> (Element, CubeTensor, Layout, Format) {
    let element = element_of(input.dtype, false).expect("BUG: only norms of these types are by the library");
    let input = with_sizes(untiled(input));
    let mut format = format_of(&input);
    if format == Format::ChannelsLast && Kind::BatchNormChannelsLast.is_refused(input.dtype) {
        format = Format::ChannelsFirst;
    }
    let (input, Layout { mut shape, .. }) = packed(&input, format);
    // The check at start compares images of two sizes. Without gaps, others are such images.
    let rows = shape.drain(2..shape.len() - 1).product();
    shape.insert(2, rows);
    (element, input, Layout::packed(&shape, format), format)
}
