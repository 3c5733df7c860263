//! Operations on tensors by the selected kernels.

mod attention;
mod recurrent;

#[cfg(feature = "cuda")]
use burn::backend::Dispatch;
use burn::tensor::module::BatchNormTrainOutput;
#[cfg(any(test, feature = "cuda"))]
use burn::tensor::ops::PadMode;
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{DType, FloatDType, Int, Tensor};

#[cfg(any(test, feature = "cuda"))]
use crate::convolution::Window;
#[cfg(feature = "cuda")]
use crate::operations::LibraryOps;
use crate::selection::Kind;
#[cfg(feature = "cuda")]
use crate::selection::{
    has_cudnn, has_tf32, is_cuda, is_deterministic, is_library_selected, remember_call, was_library_operation_called,
};
pub use attention::attention;
pub(crate) use attention::is_attention_by_library;
#[cfg(feature = "cuda")]
pub(crate) use recurrent::device_id;
pub(crate) use recurrent::{gru_gates, is_recurrent_faster, lstm_gates};
pub use recurrent::{gru_weights, lstm_weights, recurrent};

/// Product of the matrices in the last two dimensions, like [`Tensor::matmul`].
///
/// `[.., m, k] · [.., k, n]` to `[.., m, n]`. By the library where it is selected, the device is a CUDA device, the
/// leading dimensions are equal, and the type is f32, f16 or bf16.
pub fn matmul<const D: usize>(left: Tensor<D>, right: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cuda")]
    if let Some(tf32) = by_library(&left)
        && left.dtype() == right.dtype()
        && left.dims()[..D - 2] == right.dims()[..D - 2]
    {
        return Tensor::from_dispatch(Dispatch::library_product(left.into_dispatch(), right.into_dispatch(), tf32));
    }
    left.matmul(right)
}

/// `input · weight + bias`, like [`burn::tensor::module::linear`]: `[.., k] · [k, n] + [n]` to `[.., n]`.
pub fn linear<const D: usize>(input: Tensor<D>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<D> {
    #[cfg(feature = "cuda")]
    if let Some(tf32) = linear_by_library(&input, &weight, bias.as_ref()) {
        let (input, weight) = (input.into_dispatch(), weight.into_dispatch());
        return Tensor::from_dispatch(match bias {
            Some(bias) => Dispatch::library_linear_with_bias(input, weight, bias.into_dispatch(), false, tf32),
            None => Dispatch::library_linear(input, weight, tf32),
        });
    }
    burn::tensor::module::linear(input, weight, bias)
}

/// [`linear`] with a bias, then [`burn::tensor::activation::gelu_approximate`].
///
/// With the library selected, one kernel computes both, and keeps one tensor `[.., n]` for the gradient beside the output. The
/// library has an epilogue for `relu`, too. It is left out, because it may return 0 for NaN.
pub fn linear_with_gelu<const D: usize>(input: Tensor<D>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<D> {
    #[cfg(feature = "cuda")]
    if let Some(tf32) = linear_by_library(&input, &weight, Some(&bias)) {
        let (input, weight, bias) = (input.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        return Tensor::from_dispatch(Dispatch::library_linear_with_bias(input, weight, bias, true, tf32));
    }
    burn::tensor::activation::gelu_approximate(burn::tensor::module::linear(input, weight, Some(bias)))
}

/// `tf32` if the library computes this linear operation.
#[cfg(feature = "cuda")]
fn linear_by_library<const D: usize>(input: &Tensor<D>, weight: &Tensor<2>, bias: Option<&Tensor<1>>) -> Option<bool> {
    let tf32 = by_library(input)?;
    if input.dtype() != weight.dtype() || bias.is_some_and(|bias| bias.dtype() != weight.dtype()) {
        return None;
    }
    if let Some(bias) = bias {
        assert_eq!(bias.dims()[0], weight.dims()[1], "length of a linear operation's bias");
    }
    Some(tf32)
}

/// `tf32` if the library computes products of this tensor. Remembers if it could.
#[cfg(feature = "cuda")]
fn by_library<const D: usize>(tensor: &Tensor<D>) -> Option<bool> {
    let is_float = matches!(tensor.dtype(), DType::F32 | DType::F16 | DType::BF16);
    (D >= 2 && is_float && is_selected_for(tensor)).then(has_tf32)
}

/// Returns `true` if the library is selected for the device of this tensor. Remembers the call.
#[cfg(feature = "cuda")]
fn is_selected_for<const D: usize>(tensor: &Tensor<D>) -> bool {
    let is_known = was_library_operation_called();
    if !is_library_selected() && is_known || !is_cuda(&tensor.device()) {
        return false;
    }
    remember_call();
    is_library_selected()
}

/// Numbers in a step of [`adam`], as Burn's Adam and AdamW have them.
#[derive(Clone, Copy, Debug)]
pub struct AdamFactors {
    /// Part of the parameter that is added to the gradient.
    pub penalty: f32,
    /// Part of the first moment that stays.
    pub beta_1: f32,
    /// Part of the second moment that stays.
    pub beta_2: f32,
    /// Part of the gradient in the first moment.
    pub share_1: f32,
    /// Part of the squared gradient in the second moment.
    pub share_2: f32,
    /// What the first moment is divided by.
    pub correction_1: f32,
    /// What the second moment is divided by.
    pub correction_2: f32,
    /// What is added to the root of the second moment.
    pub epsilon: f32,
    /// Part of the parameter that stays.
    pub kept: f32,
    /// Learning rate.
    pub rate: f32,
}

/// Step of Adam for tensors of any one shape: the new parameter and both new moments. `None` where Burn's kernels compute.
///
/// One kernel reads the four tensors once and writes the three new ones, if they are f32 on a CUDA device and the library is
/// selected. Burn's fusion takes about 15 operations, whose recording by the host takes longer than small kernels run.
#[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "the kernel is one of CUDA devices"))]
pub fn adam<const D: usize>(
    parameter: &Tensor<D>,
    gradient: &Tensor<D>,
    moments: [&Tensor<D>; 2],
    factors: AdamFactors,
) -> Option<(Tensor<D>, [Tensor<D>; 2])> {
    #[cfg(feature = "cuda")]
    {
        let tensors = [parameter, gradient, moments[0], moments[1]];
        let is_like_parameter = |tensor: &Tensor<D>| tensor.dtype() == DType::F32 && tensor.dims() == parameter.dims();
        let fits = u32::try_from(parameter.shape().num_elements()).is_ok();
        if D > 0 && fits && tensors.into_iter().all(is_like_parameter) && is_selected_for(parameter) {
            let [parameter, gradient, moment_1, moment_2] = tensors.map(|tensor| tensor.clone().into_dispatch());
            let (parameter, moment_1, moment_2) =
                Dispatch::library_adam(parameter, gradient, moment_1, moment_2, factors);
            let moments = [moment_1, moment_2].map(Tensor::from_dispatch);
            return Some((Tensor::from_dispatch(parameter), moments));
        }
    }
    None
}

/// Rows of a table, like [`burn::tensor::module::embedding`]: `[n, d]` and `[batch, length]` to `[batch, length, d]`.
///
/// With the library selected, the gradient is a sum of atomic additions, unless sums have to be
/// [deterministic](crate::selection::set_deterministic).
pub fn embedding(weight: Tensor<2>, tokens: Tensor<2, Int>) -> Tensor<3> {
    #[cfg(feature = "cuda")]
    if by_library(&weight).is_some() && !is_deterministic() {
        let ([batch, length], [_, width]) = (tokens.dims(), weight.dims());
        let rows = tokens.reshape([batch * length, 1]).expand([batch * length, width]);
        let outside = weight.dtype();
        // The gradient of `gather` is a sum of atomic additions. In 16 bits each of them would round.
        let vectors = if outside == DType::F32 {
            weight.gather(0, rows)
        } else {
            weight.cast(FloatDType::F32).gather(0, rows).cast(outside)
        };
        return vectors.reshape([batch, length, width]);
    }
    burn::tensor::module::embedding(weight, tokens)
}

/// Logarithms of the probabilities of targets: `[rows, classes]` and `[rows]` to `[rows]`.
///
/// With the library selected, one kernel reads the logits, sums in f32, and returns f32 for 16-bit logits as well.
pub fn target_log_probs(logits: Tensor<2>, targets: Tensor<1, Int>) -> Tensor<1> {
    let [rows, _] = logits.dims();
    #[cfg(feature = "cuda")]
    if by_library(&logits).is_some() {
        return Tensor::from_dispatch(Dispatch::library_log_probs(logits.into_dispatch(), targets.into_dispatch()));
    }
    let logits = match logits.dtype() {
        DType::F16 | DType::BF16 => logits.cast(FloatDType::F32),
        _ => logits,
    };
    burn::tensor::activation::log_softmax(logits, 1).gather(1, targets.reshape([rows, 1])).reshape([rows])
}

/// Layer norm of the last dimension, with a factor and a term `[n]`: `[.., n]` to `[.., n]`.
///
/// With the library selected, one kernel reads the input and sums in f32.
pub fn layer_norm<const D: usize>(input: Tensor<D>, gamma: Tensor<1>, beta: Tensor<1>, epsilon: f64) -> Tensor<D> {
    #[cfg(feature = "cuda")]
    if by_library(&input).is_some() && input.dtype() == gamma.dtype() && input.dtype() == beta.dtype() {
        let (gamma, beta) = (gamma.into_dispatch(), beta.into_dispatch());
        let output = Dispatch::library_layer_norm(input.into_dispatch(), gamma, beta, epsilon as f32);
        return Tensor::from_dispatch(output);
    }
    // As in Burn's module: sums of squares exceed f16.
    let outside = input.dtype();
    if outside == DType::F16 {
        let [gamma, beta] = [gamma, beta].map(|tensor| tensor.cast(FloatDType::F32));
        return burn::tensor::module::layer_norm(input.cast(FloatDType::F32), gamma, Some(beta), epsilon).cast(outside);
    }
    burn::tensor::module::layer_norm(input, gamma, Some(beta), epsilon)
}

macro_rules! convolutions {
    ($(
        $(#[$doc:meta])*
        $name:ident, $transposed:ident: $dimensions:literal, $sizes:literal;
    )*) => {$(
        $(#[$doc])*
        ///
        /// By cuDNN where the library is selected and cuDNN is there, the device is a CUDA device, and the type is f32, f16 or
        /// bf16.
        pub fn $name(
            input: Tensor<$dimensions>,
            weight: Tensor<$dimensions>,
            bias: Option<Tensor<1>>,
            options: ConvOptions<$sizes>,
        ) -> Tensor<$dimensions> {
            #[cfg(feature = "cuda")]
            if let Some(tf32) = by_cudnn(&input, &weight, bias.as_ref(), Kind::Convolution, options.groups) {
                return convolution(input, weight, bias, &options, tf32);
            }
            burn::tensor::module::$name(input, weight, bias, options)
        }

        #[doc = concat!("Transposed convolution, like [`burn::tensor::module::", stringify!($transposed), "`].")]
        ///
        #[doc = concat!("By cuDNN as [`", stringify!($name), "`].")]
        pub fn $transposed(
            input: Tensor<$dimensions>,
            weight: Tensor<$dimensions>,
            bias: Option<Tensor<1>>,
            options: ConvTransposeOptions<$sizes>,
        ) -> Tensor<$dimensions> {
            #[cfg(feature = "cuda")]
            if let Some(tf32) = by_cudnn(&input, &weight, bias.as_ref(), Kind::Transposed, options.groups)
                // More numbers behind have no convolution of this gradient.
                && options.padding_out.iter().zip(&options.stride).all(|(added, stride)| added < stride)
            {
                return transposed_convolution(input, weight, bias, &options, tf32);
            }
            burn::tensor::module::$transposed(input, weight, bias, options)
        }
    )*};
}

convolutions! {
    /// Convolution like [`burn::tensor::module::conv1d`]: `[n, c, l]` and `[k, c / groups, l]` to `[n, k, l]`.
    conv1d, conv_transpose1d: 3, 1;
    /// Convolution like [`burn::tensor::module::conv2d`]: `[n, c, h, w]` and `[k, c / groups, h, w]` to `[n, k, h, w]`.
    conv2d, conv_transpose2d: 4, 2;
    /// Convolution like [`burn::tensor::module::conv3d`]: `[n, c, d, h, w]` and `[k, c / groups, d, h, w]` to
    /// `[n, k, d, h, w]`.
    conv3d, conv_transpose3d: 5, 3;
}

/// Batch norm by the statistics of the input, like [`burn::tensor::module::batch_norm_train`].
///
/// By cuDNN as [`conv2d`], for inputs of up to three sizes, with sums and statistics in f32.
pub fn batch_norm_train<const D: usize>(
    input: Tensor<D>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> BatchNormTrainOutput<D> {
    #[cfg(feature = "cuda")]
    if is_batch_norm_by_library(&input) {
        let (channels, count) = (input.dims()[1], input.shape().num_elements());
        let dtype = gamma.dtype();
        let in_f32 = |tensor: Tensor<1>| if dtype == DType::F32 { tensor } else { tensor.cast(FloatDType::F32) };
        let (gamma, beta) = (in_f32(gamma), in_f32(beta));
        assert!(gamma.dims() == [channels] && beta.dims() == [channels], "channels of a batch norm");
        let (gamma, beta) = (gamma.into_dispatch(), beta.into_dispatch());
        let (output, mean, variance, _) = Dispatch::library_batch_norm(input.into_dispatch(), gamma, beta, epsilon);
        let numbers = (count / channels) as f64;
        return BatchNormTrainOutput {
            output: Tensor::from_dispatch(output),
            mean: Tensor::from_dispatch(mean),
            // Burn divides by the number of squares, the library by one less.
            variance: Tensor::from_dispatch(variance).mul_scalar((numbers - 1.0) / numbers),
        };
    }
    burn::tensor::module::batch_norm_train(input, gamma, beta, epsilon)
}

/// Returns `true` if cuDNN computes [`batch_norm_train`] of a tensor.
pub(crate) fn is_batch_norm_by_library<const D: usize>(input: &Tensor<D>) -> bool {
    is_norm_by_library(input, &input.dims())
}

/// Returns `true` if cuDNN computes the norm of [`group_norm`].
pub(crate) fn is_group_norm_by_library<const D: usize>(input: &Tensor<D>, groups: usize) -> bool {
    is_norm_by_library(input, &as_channels(&input.dims(), groups)) && !Kind::GroupNorm.is_refused(input.dtype())
}

/// Returns `true` if cuDNN computes a batch norm of a tensor with these dimensions.
#[cfg(feature = "cuda")]
fn is_norm_by_library<const D: usize>(input: &Tensor<D>, dims: &[usize]) -> bool {
    let (channels, count) = (dims.get(1).copied().unwrap_or(0), dims.iter().product::<usize>());
    // A variance is of two numbers or more, and the library counts in `i32`.
    let is_counted = channels > 0 && count / channels > 1 && i32::try_from(count).is_ok();
    let is_right = dims.len() <= 5 && dims[0] <= MOST_SAMPLES && !Kind::BatchNorm.is_refused(input.dtype());
    is_counted && is_right && by_library(input).is_some() && has_cudnn()
}

#[cfg(not(feature = "cuda"))]
fn is_norm_by_library<const D: usize>(_input: &Tensor<D>, _dims: &[usize]) -> bool {
    false
}

/// Dimensions in which groups of channels are the channels of one sample.
fn as_channels(dims: &[usize], groups: usize) -> [usize; 3] {
    let sets = dims[0] * groups;
    [1, sets, dims.iter().product::<usize>().checked_div(sets).unwrap_or(0)]
}

/// Group norm, like [`burn::nn::GroupNorm`]: the channels of each sample are normalised in groups, and multiplied by a factor of
/// `[channels]`, with a term of `[channels]`. `[batch, channels, ..]` to `[batch, channels, ..]`.
///
/// The norm is [`batch_norm_train`] of one sample with a channel for each group.
///
/// # Panics
///
/// Panics if the channels cannot be divided into groups.
pub fn group_norm<const D: usize>(
    input: Tensor<D>,
    vectors: Option<(Tensor<1>, Tensor<1>)>,
    groups: usize,
    epsilon: f64,
) -> Tensor<D> {
    let dims = input.dims();
    assert!(groups > 0 && dims[1].is_multiple_of(groups), "groups of a group norm's channels");
    let joined = as_channels(&dims, groups);
    // Burn's batch norm has factors of the input's type.
    let dtype = if is_group_norm_by_library(&input, groups) { DType::F32 } else { input.dtype() };
    let factors = (&input.device(), dtype);
    let [ones, zeros] = [Tensor::ones([joined[1]], factors), Tensor::zeros([joined[1]], factors)];
    let normalised = batch_norm_train(input.reshape(joined), ones, zeros, epsilon).output.reshape(dims);
    let Some((gamma, beta)) = vectors else { return normalised };
    // So that gradients sum the contiguous numbers of a sample first: sums over samples first took 6 of 22 ms of a U-Net's step
    // on an H200.
    let of_channels = |vector: Tensor<1>| vector.reshape([1, dims[1], 1]).repeat_dim(0, dims[0]);
    let pixels = dims.iter().skip(2).product();
    let normalised = normalised.reshape([dims[0], dims[1], pixels]);
    (normalised * of_channels(gamma) + of_channels(beta)).reshape(dims)
}

/// Largest batch that PyTorch normalises with cuDNN.
#[cfg(feature = "cuda")]
const MOST_SAMPLES: usize = 880_801;

/// `tf32` if cuDNN computes convolutions of these tensors.
#[cfg(feature = "cuda")]
fn by_cudnn<const D: usize>(
    input: &Tensor<D>,
    weight: &Tensor<D>,
    bias: Option<&Tensor<1>>,
    kind: Kind,
    groups: usize,
) -> Option<bool> {
    let dtype = input.dtype();
    let is_one_type = weight.dtype() == dtype && bias.is_none_or(|bias| bias.dtype() == dtype);
    let is_refused = kind.is_refused(dtype) || groups > 1 && Kind::Groups.is_refused(dtype);
    by_library(input).filter(|_| has_cudnn() && is_one_type && !is_refused)
}

#[cfg(feature = "cuda")]
fn convolution<const D: usize, const N: usize>(
    input: Tensor<D>,
    weight: Tensor<D>,
    bias: Option<Tensor<1>>,
    options: &ConvOptions<N>,
    tf32: bool,
) -> Tensor<D> {
    assert_eq!(input.dims()[1], weight.dims()[1] * options.groups, "channels of a convolution's input");
    let mut padding = options.padding_begin();
    // The library's padding is the same before and behind.
    let input = if options.is_asymmetric() {
        padding = [0; N];
        input.pad(options.padding, PadMode::Constant(0.0))
    } else {
        input
    };
    let window = window(options.stride, padding, options.dilation, options.groups);
    if let &[outputs, inputs, first, rows, columns] = weight.dims().as_slice() {
        let samples = input.dims()[0];
        let (joined, positions, window) = joined_first_size(input, first, &window);
        let weight = weight.reshape([outputs, inputs * first, rows, columns]);
        let output = Dispatch::library_convolution(joined.into_dispatch(), weight.into_dispatch(), window, tf32);
        let output = with_bias(Tensor::<4>::from_dispatch(output), bias);
        let [.., rows, columns] = output.dims();
        let output = output.reshape([samples, positions, outputs, rows, columns]).swap_dims(1, 2);
        return Tensor::from_dispatch(output.into_dispatch());
    }
    let output = Dispatch::library_convolution(input.into_dispatch(), weight.into_dispatch(), window, tf32);
    with_bias(Tensor::from_dispatch(output), bias)
}

/// The input of a 3D convolution as that of a 2D one, with the positions of the first size and the window of the others. Each
/// position becomes a sample, and what it reads becomes channels.
///
/// 3D convolutions end some processes in cuDNN 9.14 and 9.19 with a division by zero.
#[cfg(any(test, feature = "cuda"))]
fn joined_first_size<const D: usize>(input: Tensor<D>, kernel: usize, window: &Window) -> (Tensor<4>, usize, Window) {
    let &[samples, channels, length, rows, columns] = input.dims().as_slice() else {
        unreachable!("BUG: the input of a 3D convolution has five dimensions")
    };
    let (stride, padding, dilation) = (window.stride[0], window.padding[0], window.dilation[0]);
    let reach = dilation * (kernel - 1) + 1;
    assert!(length + 2 * padding >= reach, "a kernel of {reach} numbers on {length} with padding {padding}");
    let positions = (length + 2 * padding - reach) / stride + 1;
    let behind = (reach - 1 + positions * stride).saturating_sub(length + padding);
    let padded = input.reshape([samples * channels, length, rows * columns]);
    let padded = padded.pad([(0, 0), (padding, behind), (0, 0)], PadMode::Constant(0.0));
    let read = |number: usize| {
        let strided = padded.clone().narrow(1, number * dilation, positions * stride);
        let strided = strided.reshape([samples, channels, positions, stride, rows * columns]);
        strided.narrow(3, 0, 1).permute([0, 2, 1, 3, 4])
    };
    let joined = Tensor::cat((0..kernel).map(read).collect(), 3);
    let joined = joined.reshape([samples * positions, channels * kernel, rows, columns]);
    (joined, positions, others(window))
}

#[cfg(feature = "cuda")]
fn transposed_convolution<const D: usize, const N: usize>(
    input: Tensor<D>,
    weight: Tensor<D>,
    bias: Option<Tensor<1>>,
    options: &ConvTransposeOptions<N>,
    tf32: bool,
) -> Tensor<D> {
    assert_eq!(input.dims()[1], weight.dims()[0], "channels of a transposed convolution's input");
    let mut added = options.padding_out.to_vec();
    let window = window(options.stride, options.padding, options.dilation, options.groups);
    if let (&[samples, channels, length, rows, columns], &[_, outputs, first, of_rows, of_columns]) =
        (input.dims().as_slice(), weight.dims().as_slice())
    {
        let dtype = input.dtype();
        // The parts of a sum are not rounded to 16 bits. TF32 keeps all bits of their factors.
        let [input, weight] = [input, weight].map(|tensor| tensor.cast(FloatDType::F32));
        let input = input.swap_dims(1, 2).reshape([samples * length, channels, rows, columns]);
        let weight = weight.reshape([channels, outputs * first, of_rows, of_columns]);
        let (of_first, others) = (First::new(first, &window, added.remove(0)), others(&window));
        let (input, weight) = (input.into_dispatch(), weight.into_dispatch());
        let tf32 = tf32 || dtype != DType::F32;
        let parts = Dispatch::library_transposed_convolution(input, weight, others, added, tf32);
        let output = of_first.added(Tensor::from_dispatch(parts), [samples, length]).cast(dtype);
        return with_bias(Tensor::from_dispatch(output.into_dispatch()), bias);
    }
    let (input, weight) = (input.into_dispatch(), weight.into_dispatch());
    let output = Dispatch::library_transposed_convolution(input, weight, window, added, tf32);
    with_bias(Tensor::from_dispatch(output), bias)
}

/// The window of all sizes but the first.
#[cfg(any(test, feature = "cuda"))]
fn others(window: &Window) -> Window {
    let of = |sizes: &[usize]| sizes[1..].to_vec();
    let [stride, padding, dilation] = [&window.stride, &window.padding, &window.dilation].map(|sizes| of(sizes));
    Window { stride, padding, dilation, groups: window.groups }
}

/// The first size of a transposed 3D convolution, which is computed as a 2D one: each position is a sample, whose channels are
/// what it adds to so many positions of the output.
#[cfg(any(test, feature = "cuda"))]
struct First {
    kernel: usize,
    stride: usize,
    padding: usize,
    dilation: usize,
    /// Numbers added behind.
    added: usize,
}

#[cfg(any(test, feature = "cuda"))]
impl First {
    fn new(kernel: usize, window: &Window, added: usize) -> Self {
        let (stride, padding, dilation) = (window.stride[0], window.padding[0], window.dilation[0]);
        Self { kernel, stride, padding, dilation, added }
    }

    /// Sums of what positions add to the output: `[samples x length, channels x kernel, rows, columns]` to
    /// `[samples, channels, positions, rows, columns]`.
    fn added(&self, parts: Tensor<4>, [samples, length]: [usize; 2]) -> Tensor<5> {
        let Self { kernel, stride, padding, dilation, added } = *self;
        let [_, joined, rows, columns] = parts.dims();
        let numbers = length.saturating_sub(1) * stride + dilation * kernel.saturating_sub(1) + 1 + added;
        assert!(
            length > 0 && kernel > 0 && numbers > 2 * padding,
            "no transposed convolution of {length} numbers with a kernel of {kernel} and padding {padding}"
        );
        let (channels, plane, reach) = (joined / kernel, rows * columns, dilation * (kernel - 1));
        let positions = numbers - 2 * padding;
        let whole = (length * stride + reach).max(padding + positions);
        let parts = parts.reshape([samples, length, channels, kernel, plane]);
        let sum = (0..kernel).map(|number| {
            let part = parts.clone().narrow(3, number, 1).permute([0, 2, 1, 3, 4]);
            let apart = part.pad([(0, stride - 1), (0, 0)], PadMode::Constant(0.0));
            let (before, strided) = (number * dilation, length * stride);
            let placed = apart.reshape([samples * channels, strided, plane]);
            placed.pad([(before, whole - before - strided), (0, 0)], PadMode::Constant(0.0))
        });
        let sum = sum.reduce(|sum, part| sum + part).expect("BUG: a kernel has numbers");
        sum.narrow(1, padding, positions).reshape([samples, channels, positions, rows, columns])
    }
}

#[cfg(feature = "cuda")]
fn window<const N: usize>(stride: [usize; N], padding: [usize; N], dilation: [usize; N], groups: usize) -> Window {
    Window { stride: stride.to_vec(), padding: padding.to_vec(), dilation: dilation.to_vec(), groups }
}

#[cfg(feature = "cuda")]
fn with_bias<const D: usize>(output: Tensor<D>, bias: Option<Tensor<1>>) -> Tensor<D> {
    let Some(bias) = bias else { return output };
    assert_eq!(bias.dims()[0], output.dims()[1], "length of a convolution's bias");
    Tensor::from_dispatch(Dispatch::library_add_to_channels(output.into_dispatch(), bias.into_dispatch()))
}

#[cfg(test)]
mod tests {
    use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
    use burn::tensor::{Device, Distribution, Tensor, Tolerance, module};

    use super::{First, Window, joined_first_size, others};

    type Three = [usize; 3];

    /// Sizes of a kernel, strides, padding, dilations, and groups.
    const CASES: [(Three, Three, Three, Three, usize); 5] = [
        ([3, 3, 3], [1, 1, 1], [1, 1, 1], [1, 1, 1], 1),
        ([3, 1, 1], [3, 3, 2], [1, 0, 2], [2, 1, 2], 1),
        ([1, 1, 2], [2, 2, 3], [3, 0, 0], [1, 2, 2], 2),
        ([2, 2, 1], [4, 3, 3], [1, 1, 1], [3, 2, 1], 4),
        ([5, 2, 3], [2, 1, 3], [0, 1, 1], [2, 1, 1], 2),
    ];

    fn device() -> Device {
        let device = Device::flex();
        device.seed(5);
        device
    }

    fn window(stride: Three, padding: Three, dilation: Three, groups: usize) -> Window {
        Window { stride: stride.into(), padding: padding.into(), dilation: dilation.into(), groups }
    }

    fn assert_same(found: &Tensor<5>, expected: &Tensor<5>) {
        assert_eq!(found.dims(), expected.dims());
        found.to_data().assert_approx_eq::<f32>(&expected.to_data(), Tolerance::rel_abs(1e-5, 1e-5));
    }

    #[test]
    fn a_3d_convolution_is_a_2d_one() {
        let device = device();
        for (kernel, stride, padding, dilation, groups) in CASES {
            let input = Tensor::<5>::random([2, 4, 9, 7, 8], Distribution::Default, &device);
            let [first, rows, columns] = kernel;
            let weight = Tensor::<5>::random([8, 4 / groups, first, rows, columns], Distribution::Default, &device);
            let options = ConvOptions::new(stride, padding, dilation, groups);
            let expected = module::conv3d(input.clone(), weight.clone(), None, options);
            let (joined, positions, window) =
                joined_first_size(input, first, &window(stride, padding, dilation, groups));
            let of = |sizes: &[usize]| [sizes[0], sizes[1]];
            let options = ConvOptions::new(of(&window.stride), of(&window.padding), of(&window.dilation), groups);
            let weight = weight.reshape([8, 4 / groups * first, rows, columns]);
            let found = module::conv2d(joined, weight, None, options);
            let [_, outputs, .., rows, columns] = expected.dims();
            assert_same(&found.reshape([2, positions, outputs, rows, columns]).swap_dims(1, 2), &expected);
        }
    }

    #[test]
    fn a_transposed_3d_convolution_is_a_2d_one() {
        let device = device();
        for ((kernel, stride, padding, dilation, groups), added) in
            CASES.into_iter().flat_map(|case| [0, 1].map(|added| (case, added)))
        {
            let (samples, added) = (added + 1, stride.map(|stride| added.min(stride - 1)));
            let input = Tensor::<5>::random([samples, 8, 5, 7, 6], Distribution::Default, &device);
            let [first, rows, columns] = kernel;
            let weight = Tensor::<5>::random([8, 4 / groups, first, rows, columns], Distribution::Default, &device);
            let options = ConvTransposeOptions::new(stride, padding, added, dilation, groups);
            let expected = module::conv_transpose3d(input.clone(), weight.clone(), None, options);
            let window = window(stride, padding, dilation, groups);
            let (of_first, window) = (First::new(first, &window, added[0]), others(&window));
            let of = |sizes: &[usize]| [sizes[0], sizes[1]];
            let options = ConvTransposeOptions::new(
                of(&window.stride),
                of(&window.padding),
                of(&added[1..]),
                of(&window.dilation),
                groups,
            );
            let input = input.swap_dims(1, 2).reshape([5 * samples, 8, 7, 6]);
            let weight = weight.reshape([8, 4 / groups * first, rows, columns]);
            let parts = module::conv_transpose2d(input, weight, None, options);
            assert_same(&of_first.added(parts, [samples, 5]), &expected);
        }
    }

    #[test]
    fn a_transposed_3d_convolution_of_no_samples_has_none() {
        let window = window([2, 1, 1], [0; 3], [1; 3], 1);
        let parts = Tensor::<4>::zeros([0, 6, 7, 6], &device());
        assert_eq!(First::new(3, &window, 1).added(parts, [0, 5]).dims(), [0, 2, 12, 7, 6]);
    }
}
