//! Convolutions by cuDNN.
//!
//! A pass reads its tensors as they lie in memory, if their order is that of a [`Format`]. Else, and where the library has
//! no algorithm for gaps, tensors are copied. The result has no gaps, and the order of the tensors that were read.
//!
//! 3D convolutions are computed as 2D ones (`product.rs`): in three sizes, cuDNN 9.14 and 9.19 end some processes with a division by
//! zero, or an illegal instruction, and Burn 0.22's strided gradients are wrong in a quarter of random cases.

use burn::backend::ops::{ConvOptions, FloatTensorOps};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::conv::{ConvStrategy, conv_data_backward, conv_forward, conv_weight_backward};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_contiguous_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;

use super::{LibraryGradients, empty, stream, zeros};
use crate::convolution::{Convolution, Format, Layout, Window};
use crate::cublaslt::Element;
use crate::cudnn::Pass;
use crate::selection::Kind;

/// A pass by Burn's kernels. Burn's backend panics as well where none of them computes a convolution.
macro_rules! by_burn {
    ($pass:ident($($argument:expr),+), $window:expr) => {
        match $window.stride.len() {
            1 => $pass::<1>($($argument),+, options($window), ConvStrategy::default()),
            _ => $pass::<2>($($argument),+, options($window), ConvStrategy::default()),
        }
        .expect("BUG: Burn's kernels compute all convolutions")
    };
}

/// `[n, c, sizes…]` and `[k, c / groups, sizes…]` to `[n, k, sizes…]`.
pub(super) fn forward(input: CubeTensor, weight: CubeTensor, window: &Window, tf32: bool) -> CubeTensor {
    let shape = output_shape(input.meta.shape(), weight.meta.shape(), window);
    computed(Pass::Forward, [&input, &weight], shape, window, tf32)
        .unwrap_or_else(|| by_burn!(conv_forward(input, weight, None), window))
}

/// The gradient of the input, which has this shape.
pub(super) fn input_gradient(
    gradient: CubeTensor,
    weight: CubeTensor,
    shape: Shape,
    window: &Window,
    tf32: bool,
) -> CubeTensor {
    let by_library = computed(Pass::Input, [&weight, &gradient], shape.clone(), window, tf32);
    by_library.unwrap_or_else(|| by_burn!(conv_data_backward(gradient, weight, shape), window))
}

/// The gradient of the weight, which has this shape.
pub(super) fn weight_gradient(
    input: CubeTensor,
    gradient: CubeTensor,
    shape: Shape,
    window: &Window,
    tf32: bool,
) -> CubeTensor {
    let by_library = computed(Pass::Weight, [&input, &gradient], shape.clone(), window, tf32);
    by_library.unwrap_or_else(|| by_burn!(conv_weight_backward(input, gradient, shape), window))
}

/// Sums of the channels of `[n, c, sizes…]`: `[c]`.
///
/// cuDNN sums what the check at start compares: f32 without gaps, with the channels first, as rows of one length.
pub(super) fn channel_sums(tensor: CubeTensor) -> CubeTensor {
    let channels = tensor.meta.shape()[1];
    if tensor.meta.shape().num_elements() == 0 {
        return zeros(&tensor, Shape::new([channels]));
    }
    let lifted = with_sizes(untiled(tensor));
    let (shape, dtype) = (lifted.meta.shape().to_vec(), lifted.dtype);
    if format_of(&lifted) == Format::ChannelsLast {
        let order = Format::ChannelsLast.order(shape.len());
        return CubeBackend::library_column_sums(CubeBackend::float_permute(lifted, &order));
    }
    let is_packed = laid_out(&lifted, Format::ChannelsFirst)
        .is_some_and(|(_, layout)| layout == Layout::packed(&shape, Format::ChannelsFirst));
    if dtype == DType::F32 && is_packed && !Kind::BiasGradient.is_refused(dtype) {
        let rows = [shape[0], channels, 1, shape[2..].iter().product()];
        let layout = Layout::packed(&rows, Format::ChannelsFirst);
        if let Some(plan) = stream::plan_sums(lifted.handle.service.device, &layout) {
            let sums = empty_contiguous(&lifted, &[channels]);
            stream::sum_channels(&lifted.client.clone(), plan, lifted.handle, sums.handle.clone());
            return sums;
        }
        stream::leave_to_burn();
    }
    let others: Vec<usize> = (0..shape.len()).filter(|dimension| *dimension != 1).collect();
    CubeBackend::float_reshape(CubeBackend::float_sum_dims(lifted, &others), Shape::new([channels]))
}

/// Shape of a convolution's output.
pub(super) fn output_shape(input: &Shape, weight: &Shape, window: &Window) -> Shape {
    let sizes = convolved(input, weight).and_then(|[input, kernel]| window.output_sizes(input, kernel));
    let sizes = sizes.unwrap_or_else(|| panic!("no convolution of {input:?} with {weight:?}: {window:?}"));
    Shape::from([&[input[0], weight[0]], &sizes[..]].concat())
}

/// Shape of a transposed convolution's output, with numbers added behind.
pub(super) fn transposed_shape(input: &Shape, weight: &Shape, window: &Window, added: &[usize]) -> Shape {
    let sizes = convolved(input, weight).and_then(|[input, kernel]| window.transposed_sizes(input, kernel, added));
    let sizes = sizes.unwrap_or_else(|| panic!("no transposed convolution of {input:?} with {weight:?}: {window:?}"));
    Shape::from([&[input[0], weight[1] * window.groups], &sizes[..]].concat())
}

/// Sizes of input and kernel.
fn convolved<'a>(input: &'a Shape, weight: &'a Shape) -> Option<[&'a [usize]; 2]> {
    Some([input.get(2..)?, weight.get(2..)?])
}

/// Launches a pass. `None` where the library has no algorithm.
fn computed(pass: Pass, read: [&CubeTensor; 2], result: Shape, window: &Window, tf32: bool) -> Option<CubeTensor> {
    let element = element_of(read[0].dtype, tf32)?;
    if read[1].dtype != read[0].dtype {
        return None;
    }
    if result.num_elements() == 0 {
        return Some(empty(read[0], result));
    }
    if read.iter().any(|tensor| tensor.meta.shape().num_elements() == 0) {
        return Some(zeros(read[0], result));
    }
    let window = if result.num_dims() == 3 { window.clone().with_row() } else { window.clone() };
    let shape = lifted(&result);
    let read = read.map(|tensor| with_sizes(untiled(tensor.clone())));
    // The input of the forward pass and of the weight's gradient, or the output's gradient.
    let format = format_of(&read[usize::from(pass == Pass::Input)]);
    let other = Format::ALL.into_iter().find(|other| *other != format).unwrap_or(format);
    let dtype = read[0].dtype;
    // What the check at start compares.
    let is_allowed = |&(format, has_gaps): &(Format, bool)| match format {
        Format::ChannelsFirst => !has_gaps || !Kind::Gaps.is_refused(dtype),
        Format::ChannelsLast => !has_gaps && !Kind::ChannelsLast.is_refused(dtype),
    };
    for (format, has_gaps) in [(format, true), (format, false), (other, false)].into_iter().filter(is_allowed) {
        let is_weight = |which: usize| (pass, which) == (Pass::Forward, 1) || (pass, which) == (Pass::Input, 0);
        let layouts = [0, 1].map(|which| {
            let tensor = &read[which];
            let lies = (has_gaps && !is_weight(which)).then(|| laid_out(tensor, format)).flatten();
            lies.map_or_else(|| Layout::packed(tensor.meta.shape(), format), |(_, layout)| layout)
        });
        let wanted = Layout::packed(&shape, format);
        let [one, two] = layouts.clone();
        let (input, weight, output) = match pass {
            Pass::Forward => (one, two.shape, wanted.clone()),
            Pass::Input => (wanted.clone(), one.shape, two),
            Pass::Weight => (one, shape.clone(), two),
        };
        let convolution = Convolution { element, input, weight, format, output, window: window.clone() };
        let Some(plan) = stream::plan_convolution(read[0].handle.service.device, convolution, pass) else { continue };
        let [one, two] = [0, 1].map(|which| match laid_out(&read[which], format) {
            Some((tensor, layout)) if layout == layouts[which] => tensor,
            _ => packed(&read[which], format).0,
        });
        let result = empty_in(&one, result, format);
        stream::convolve(&one.client.clone(), plan, pass, [one.handle, two.handle], result.handle.clone());
        return Some(result);
    }
    stream::leave_to_burn();
    None
}

pub(super) fn element_of(dtype: DType, tf32: bool) -> Option<Element> {
    match dtype {
        DType::F32 => Some(Element::F32 { tf32 }),
        DType::F16 => Some(Element::F16),
        DType::BF16 => Some(Element::Bf16),
        _ => None,
    }
}

/// Burn's options.
fn options<const N: usize>(window: &Window) -> ConvOptions<N> {
    let of = |sizes: &[usize]| std::array::from_fn(|size| sizes[size]);
    ConvOptions::new(of(&window.stride), of(&window.padding), of(&window.dilation), window.groups)
}

/// Strides of tiles are no strides of numbers.
pub(super) fn untiled(tensor: CubeTensor) -> CubeTensor {
    if tensor.meta.is_tiled() { into_contiguous(tensor) } else { tensor }
}

/// The shape with sizes of 1 before its own: the library's tensors have two sizes, and those of norms up to three.
fn lifted(shape: &Shape) -> Vec<usize> {
    let added = vec![1; 4_usize.saturating_sub(shape.num_dims())];
    [&shape[..2], &added, &shape[2..]].concat()
}

/// The tensor with [`lifted`] shape.
pub(super) fn with_sizes(tensor: CubeTensor) -> CubeTensor {
    let strides = tensor.meta.strides();
    let added = vec![1; 4_usize.saturating_sub(strides.len())];
    let strides = [&strides[..2], &added, &strides[2..]].concat();
    CubeTensor { meta: Box::new(Metadata::new(lifted(tensor.meta.shape()), strides)), ..tensor }
}

/// A new tensor without gaps in this order.
///
/// With one channel, both orders are the same memory, and the strides are those of the channels first: Burn 0.22's fused kernels
/// misread a dimension of 1 whose stride is that of the last dimension.
pub(super) fn empty_in(beside: &CubeTensor, shape: Shape, format: Format) -> CubeTensor {
    let format = if shape[1] == 1 { Format::ChannelsFirst } else { format };
    let sizes = lifted(&shape);
    let order = format.order(sizes.len());
    let memory = empty_contiguous(beside, &order.iter().map(|dimension| sizes[*dimension]).collect::<Vec<_>>());
    let mut strides = Layout::packed(&sizes, format).strides;
    strides.drain(2..2 + sizes.len() - shape.num_dims());
    CubeTensor { meta: Box::new(Metadata::new(shape, strides)), ..memory }
}

/// Order of a tensor's memory: that of its channels first if it has both.
pub(super) fn format_of(tensor: &CubeTensor) -> Format {
    let (shape, strides) = (tensor.meta.shape(), tensor.meta.strides());
    let fitting = |format: &Format| Layout::new(shape, strides, *format).is_some();
    Format::ALL.into_iter().find(fitting).unwrap_or(Format::ChannelsFirst)
}

/// The tensor with its layout, if the library reads it as it lies. CubeCL's views begin at aligned addresses.
fn laid_out(tensor: &CubeTensor, format: Format) -> Option<(CubeTensor, Layout)> {
    let layout = Layout::new(tensor.meta.shape(), tensor.meta.strides(), format)?;
    Some((tensor.clone(), layout))
}

/// A copy without gaps in this order, or the tensor if it is one.
pub(super) fn packed(tensor: &CubeTensor, format: Format) -> (CubeTensor, Layout) {
    let layout = Layout::packed(tensor.meta.shape(), format);
    if let Some(laid_out) = laid_out(tensor, format).filter(|(_, found)| *found == layout) {
        return laid_out;
    }
    let order = format.order(layout.shape.len());
    let copy = into_contiguous(CubeBackend::float_permute(tensor.clone(), &order));
    let meta = Metadata::new(layout.shape.clone(), layout.strides.clone());
    (CubeTensor { meta: Box::new(meta), ..copy }, layout)
}

pub(super) fn empty_contiguous(beside: &CubeTensor, shape: &[usize]) -> CubeTensor {
    empty_device_contiguous_dtype(beside.client.clone(), beside.device.clone(), Shape::from(shape), beside.dtype)
}
