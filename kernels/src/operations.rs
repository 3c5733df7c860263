//! Library products, convolutions and recurrent layers as operations of Burn's backends.

mod adam;
mod attention;
mod autodiff;
mod collectives;
mod convolutions;
mod gelu;
mod norms;
mod recurrences;
mod rows;
mod second_stream;
mod stream;

use std::sync::Arc;

use burn::backend::fusion::custom::TensorSpec;
use burn::backend::ops::{FloatTensorOps, ModuleOps};
use burn::backend::tensor::{FloatTensor, IntTensor};
use burn::backend::{Backend, TensorMetadata, backend_extension};
use burn::tensor::{DType, Shape};
use burn_cubecl::CubeBackend;
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::ops::numeric::empty_device_dtype;
use burn_cubecl::tensor::CubeTensor;
use cubecl::zspace::metadata::Metadata;
use cubecl_common::device::DeviceId;

use crate::attention::Attention;
use crate::convolution::Window;
use crate::cublaslt::{Element, Epilogue, MOST_ALIGNED, Product};
use crate::cudnn::RecurrentPlan;
use crate::matrix::Matrices;
use crate::product::AdamFactors;
use crate::recurrence::Recurrence;
pub use attention::AttentionPlans;
pub use collectives::CollectiveOps;
pub(crate) use collectives::number;
use convolutions::{output_shape, transposed_shape};
pub use stream::{PendingSums, SharedStream};

/// Products by the library, with sums in f32. Shapes are in rows; all strides are read.
///
/// `tf32` lets tensor cores round the factors of f32 products. Where the library has no algorithm, Burn's kernels
/// compute the product.
#[backend_extension(Cube, Fusion, Autodiff)]
pub trait LibraryOps: Backend {
    /// `[.., m, k] · [.., k, n]` to `[.., m, n]`, with equal leading dimensions.
    #[fusion(dtype = left, shape = product_shape(left, right))]
    fn library_product(left: FloatTensor<Self>, right: FloatTensor<Self>, tf32: bool) -> FloatTensor<Self>;

    /// `[.., k] · [k, n]` to `[.., n]`.
    #[fusion(dtype = input, shape = linear_shape(input, weight))]
    fn library_linear(input: FloatTensor<Self>, weight: FloatTensor<Self>, tf32: bool) -> FloatTensor<Self>;

    /// `[.., k] · [k, n] + [n]` to `[.., n]`, and GELU by its tanh approximation of the sums before they are rounded.
    #[fusion(dtype = input, shape = linear_shape(input, weight))]
    fn library_linear_with_bias(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        gelu: bool,
        tf32: bool,
    ) -> FloatTensor<Self>;

    /// Logarithms of the probabilities of targets: `[rows, classes]` and `[rows]` to `[rows]` in f32. NaN for a target
    /// that is no class.
    #[fusion(meta = |logits, _targets| TensorSpec::new(Shape::new([logits.shape[0]]), DType::F32))]
    fn library_log_probs(logits: FloatTensor<Self>, targets: IntTensor<Self>) -> FloatTensor<Self>;

    /// Layer norm of `[.., n]` with a factor and a term `[n]`.
    #[fusion(dtype = input, shape = input)]
    fn library_layer_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f32,
    ) -> FloatTensor<Self>;

    /// `[n, c, sizes…]` and `[k, c / groups, sizes…]` to `[n, k, sizes…]`, with one or two sizes.
    #[fusion(dtype = input, shape = output_shape(input, weight, window))]
    fn library_convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: Window,
        tf32: bool,
    ) -> FloatTensor<Self>;

    /// `[n, c, sizes…]` and `[c, k / groups, sizes…]` to `[n, k, sizes…]`: the gradient of a convolution's input. `added` has
    /// numbers behind each size, fewer than the stride.
    #[fusion(dtype = input, shape = transposed_shape(input, weight, window, added))]
    fn library_transposed_convolution(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        window: Window,
        added: Vec<usize>,
        tf32: bool,
    ) -> FloatTensor<Self>;

    /// Batch norm of `[n, c, ..]` by statistics of its channels, with factors and terms `[c]` in f32. Also means, variances
    /// (sums of squares, divided by their number less 1) and reciprocals of standard deviations: `[c]` in f32.
    #[fusion(meta = |input, gamma, _beta, _epsilon| (input.clone(), gamma.clone(), gamma.clone(), gamma.clone()))]
    fn library_batch_norm(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// A recurrent layer: `[steps, batch, inputs]`, [weights](crate::recurrence::Cell::weights) and `[states, batch, hidden]` to
    /// the hidden state of each step, then the last state of an LSTM's cell.
    #[fusion(dtype = input, shape = recurrences::output_shape(plan))]
    fn library_recurrence(
        input: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        states: FloatTensor<Self>,
        plan: Arc<RecurrentPlan>,
    ) -> FloatTensor<Self>;

    /// Attention: `[batch, queries, heads, inner]`, `[batch, keys, heads, inner]` and `[batch, keys, heads, values]` to
    /// `[batch, queries, heads, values]`. The bias is read if the plans have one: `[batch or 1, queries, keys]`, with rows of
    /// [this length](crate::attention::Attention::bias_row). It gets no gradient.
    #[fusion(dtype = query, shape = attention::output_shape(plans))]
    fn library_attention(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        scale: f32,
        plans: Arc<AttentionPlans>,
    ) -> FloatTensor<Self>;

    /// `[n, c, sizes…] + [c]`. Burn's operations compute it, so that others fuse with it.
    #[fusion(default)]
    fn library_add_to_channels(tensor: FloatTensor<Self>, bias: FloatTensor<Self>) -> FloatTensor<Self> {
        let mut of_bias = vec![1; tensor.rank()];
        of_bias[1] = bias.shape()[0];
        Self::float_add(tensor, Self::float_reshape(bias, Shape::from(of_bias)))
    }

    /// Step of Adam: new values of the parameter and of both moments, all in f32 and of one shape.
    #[fusion(meta = |parameter, _gradient, _moment_1, _moment_2, _factors| (
        parameter.clone(),
        parameter.clone(),
        parameter.clone(),
    ))]
    fn library_adam(
        parameter: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        moment_1: FloatTensor<Self>,
        moment_2: FloatTensor<Self>,
        factors: AdamFactors,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);
}

/// Gradients of [`LibraryOps`], on backends without autodiff: gradients of gradients are not computed, nor does Burn compute
/// those of its linear operation.
#[backend_extension(Cube, Fusion)]
pub trait LibraryGradients: Backend {
    /// A linear operation with GELU by its tanh approximation, and GELU's input, from which its gradient is computed.
    #[fusion(meta = |input, weight, _bias, _tf32| {
        let output = TensorSpec::new(linear_shape(&input.shape, &weight.shape), input.dtype);
        (output.clone(), output)
    })]
    fn library_linear_with_gelu(
        input: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        tf32: bool,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Gradient of a linear operation's weight: `[.., k]ᵀ · [.., n]` to `[k, n]`.
    #[fusion(dtype = input, shape = weight_shape(input, gradient))]
    fn library_weight_gradient(input: FloatTensor<Self>, gradient: FloatTensor<Self>, tf32: bool) -> FloatTensor<Self>;

    /// Gradients of a linear operation's weight and bias: `[k, n]`, and `[n]`.
    #[fusion(meta = |input, gradient, _tf32| (
        TensorSpec::new(weight_shape(&input.shape, &gradient.shape), input.dtype),
        TensorSpec::new(Shape::new([last(&gradient.shape)]), gradient.dtype),
    ))]
    fn library_weight_and_bias_gradients(
        input: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        tf32: bool,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Sums of the columns of `[.., n]`: `[n]`, as a product with ones.
    #[fusion(dtype = rows, shape = Shape::new([last(rows)]))]
    fn library_column_sums(rows: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Gradient of the logits of [`library_log_probs`](LibraryOps::library_log_probs).
    #[fusion(meta = |logits, _targets, _gradient| logits.clone())]
    fn library_log_probs_gradient(
        logits: FloatTensor<Self>,
        targets: IntTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// Gradient of the input of a layer norm, and the rows whose sum is the gradient of `gamma`.
    #[fusion(meta = |input, _gamma, _gradient, _epsilon| (input.clone(), input.clone()))]
    fn library_layer_norm_gradients(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        epsilon: f32,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Gradient of a convolution's input, which has this shape.
    #[fusion(dtype = gradient, shape = shape.clone())]
    fn library_convolution_input_gradient(
        gradient: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        shape: Shape,
        window: Window,
        tf32: bool,
    ) -> FloatTensor<Self>;

    /// Gradient of a convolution's weight, which has this shape.
    #[fusion(dtype = input, shape = shape.clone())]
    fn library_convolution_weight_gradient(
        input: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        shape: Shape,
        window: Window,
        tf32: bool,
    ) -> FloatTensor<Self>;

    /// Gradients of input, factors and terms of a batch norm, with its means and reciprocals of standard deviations.
    #[fusion(meta = |input, gamma, _gradient, _mean, _deviation, _epsilon| (
        input.clone(), gamma.clone(), gamma.clone()
    ))]
    fn library_batch_norm_gradients(
        input: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        deviation: FloatTensor<Self>,
        epsilon: f64,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// A recurrent layer, and what its gradients need.
    #[fusion(meta = |input, _weights, _states, plan| (
        TensorSpec::new(recurrences::output_shape(plan), input.dtype),
        TensorSpec::new(recurrences::reserve_shape(plan), DType::F32),
    ))]
    fn library_recurrence_in_training(
        input: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        states: FloatTensor<Self>,
        plan: Arc<RecurrentPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Gradients of input, weights and states of a recurrent layer. What the forward pass kept is overwritten.
    #[fusion(meta = |input, weights, states, _output, _gradient, _reserve, _plan| (
        input.clone(), weights.clone(), states.clone()
    ))]
    fn library_recurrence_gradients(
        input: FloatTensor<Self>,
        weights: FloatTensor<Self>,
        states: FloatTensor<Self>,
        output: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        reserve: FloatTensor<Self>,
        plan: Arc<RecurrentPlan>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// Attention, and the statistics of the softmax that its gradients need.
    #[fusion(meta = |query, _key, _value, _bias, _scale, plans| (
        TensorSpec::new(attention::output_shape(plans), query.dtype),
        TensorSpec::new(attention::statistics_shape(plans), DType::F32),
    ))]
    fn library_attention_in_training(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        scale: f32,
        plans: Arc<AttentionPlans>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>);

    /// Gradients of query, key and value of attention.
    #[fusion(meta = |query, key, value, _bias, _output, _statistics, _gradient, _scale, _plans| (
        query.clone(), key.clone(), value.clone()
    ))]
    #[allow(clippy::too_many_arguments, reason = "tensors of a backend extension are arguments")]
    fn library_attention_gradients(
        query: FloatTensor<Self>,
        key: FloatTensor<Self>,
        value: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        output: FloatTensor<Self>,
        statistics: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
        scale: f32,
        plans: Arc<AttentionPlans>,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// Sums of the channels of `[n, c, sizes…]`: `[c]`.
    #[fusion(dtype = tensor, shape = Shape::new([tensor[1]]))]
    fn library_channel_sums(tensor: FloatTensor<Self>) -> FloatTensor<Self>;
}

/// Products of this process that the library computes, not Burn for want of an algorithm.
pub(crate) fn planned_products() -> usize {
    stream::planned()
}

/// Calls of cuDNN by this process, and passes that cuDNN was to compute, and Burn did.
pub(crate) fn cudnn_calls() -> [usize; 2] {
    [stream::cudnn_calls(), stream::left_to_burn()]
}

/// Reasons of cuDNN for not planning operations, since the last call.
pub(crate) fn take_cudnn_reasons() -> Vec<String> {
    stream::take_reasons()
}

/// Runs on the thread of a device, which has its context.
pub(crate) fn on_device<T: Send + 'static>(device: DeviceId, work: impl FnOnce() -> T + Send + 'static) -> T {
    stream::on_device(device, work)
}

/// The plan of a recurrent layer on a device. `None` where Burn has to compute it.
pub(crate) fn plan_recurrence(device: DeviceId, recurrence: &Recurrence) -> Option<Arc<RecurrentPlan>> {
    stream::plan_recurrence(device, recurrence)
}

/// The plans of attention and of its gradients on a device. `None` where Burn has to compute it.
pub(crate) fn plan_attention(device: DeviceId, attention: &Attention) -> Option<Arc<AttentionPlans>> {
    let [forward, gradients] = [false, true].map(|is_backward| stream::plan_attention(device, attention, is_backward));
    Some(Arc::new(AttentionPlans { forward: forward?, gradients: gradients? }))
}

fn last(shape: &Shape) -> usize {
    shape[shape.num_dims() - 1]
}

fn product_shape(left: &Shape, right: &Shape) -> Shape {
    let rank = left.num_dims();
    assert!(
        rank >= 2 && rank == right.num_dims() && left[rank - 1] == right[rank - 2],
        "no product of shapes {left:?} and {right:?}"
    );
    let mut shape = left.clone();
    shape[rank - 1] = right[rank - 1];
    shape
}

fn linear_shape(input: &Shape, weight: &Shape) -> Shape {
    let rank = input.num_dims();
    assert!(
        weight.num_dims() == 2 && rank >= 1 && input[rank - 1] == weight[0],
        "no linear operation of an input {input:?} and a weight {weight:?}"
    );
    let mut shape = input.clone();
    shape[rank - 1] = weight[1];
    shape
}

fn weight_shape(input: &Shape, gradient: &Shape) -> Shape {
    Shape::new([last(input), last(gradient)])
}

impl LibraryOps for CubeBackend {
    fn library_product(left: CubeTensor, right: CubeTensor, tf32: bool) -> CubeTensor {
        let shape = product_shape(left.meta.shape(), right.meta.shape());
        let [left, right] = [left, right].map(|tensor| Operand::new(tensor, Matrices::batched));
        let rank = shape.num_dims();
        let size = Size {
            rows: shape[rank - 2],
            inner: last(left.tensor.meta.shape()),
            columns: shape[rank - 1],
            batches: shape.iter().take(rank - 2).product(),
            may_split: true,
        };
        match computed(&left, &right, size, shape, Matrices::batched, Vector::None, tf32) {
            Some((output, _)) => output,
            None => Self::float_matmul(left.tensor, right.tensor),
        }
    }

    fn library_linear(input: CubeTensor, weight: CubeTensor, tf32: bool) -> CubeTensor {
        linear(input, weight, None, Gelu::None, tf32).0
    }

    fn library_linear_with_bias(
        input: CubeTensor,
        weight: CubeTensor,
        bias: CubeTensor,
        gelu: bool,
        tf32: bool,
    ) -> CubeTensor {
        linear(input, weight, Some(bias), if gelu { Gelu::OfSums } else { Gelu::None }, tf32).0
    }

    fn library_log_probs(logits: CubeTensor, targets: CubeTensor) -> CubeTensor {
        rows::log_probs(logits, targets)
    }

    fn library_layer_norm(input: CubeTensor, gamma: CubeTensor, beta: CubeTensor, epsilon: f32) -> CubeTensor {
        rows::layer_norm(input, gamma, beta, epsilon)
    }

    fn library_convolution(input: CubeTensor, weight: CubeTensor, window: Window, tf32: bool) -> CubeTensor {
        convolutions::forward(input, weight, &window, tf32)
    }

    fn library_transposed_convolution(
        input: CubeTensor,
        weight: CubeTensor,
        window: Window,
        added: Vec<usize>,
        tf32: bool,
    ) -> CubeTensor {
        let shape = transposed_shape(input.meta.shape(), weight.meta.shape(), &window, &added);
        convolutions::input_gradient(input, weight, shape, &window, tf32)
    }

    fn library_batch_norm(
        input: CubeTensor,
        gamma: CubeTensor,
        beta: CubeTensor,
        epsilon: f64,
    ) -> (CubeTensor, CubeTensor, CubeTensor, CubeTensor) {
        norms::batch_norm(input, gamma, beta, epsilon)
    }

    fn library_adam(
        parameter: CubeTensor,
        gradient: CubeTensor,
        moment_1: CubeTensor,
        moment_2: CubeTensor,
        factors: AdamFactors,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        let [parameter, moment_1, moment_2] = adam::step([parameter, gradient, moment_1, moment_2], factors);
        (parameter, moment_1, moment_2)
    }

    fn library_recurrence(
        input: CubeTensor,
        weights: CubeTensor,
        states: CubeTensor,
        plan: Arc<RecurrentPlan>,
    ) -> CubeTensor {
        recurrences::forward(input, weights, states, plan, false).0
    }

    fn library_attention(
        query: CubeTensor,
        key: CubeTensor,
        value: CubeTensor,
        bias: CubeTensor,
        scale: f32,
        plans: Arc<AttentionPlans>,
    ) -> CubeTensor {
        attention::forward([query, key, value], bias, scale, &plans).0
    }
}

impl LibraryGradients for CubeBackend {
    fn library_linear_with_gelu(
        input: CubeTensor,
        weight: CubeTensor,
        bias: CubeTensor,
        tf32: bool,
    ) -> (CubeTensor, CubeTensor) {
        let (output, pre_activation) = linear(input, weight, Some(bias), Gelu::OfSums, tf32);
        (output, pre_activation.expect("BUG: linear returns the input of GELU"))
    }

    fn library_weight_gradient(input: CubeTensor, gradient: CubeTensor, tf32: bool) -> CubeTensor {
        weight_gradient(&Operand::new(input, Matrices::flat), &Operand::new(gradient, Matrices::flat), tf32)
    }

    fn library_weight_and_bias_gradients(
        input: CubeTensor,
        gradient: CubeTensor,
        tf32: bool,
    ) -> (CubeTensor, CubeTensor) {
        let [input, gradient] = [input, gradient].map(|tensor| Operand::new(tensor, Matrices::flat));
        match weight_and_sums(&input, &gradient, Vector::ColumnSums, tf32) {
            Some((weight, Some(sums))) => (weight, sums),
            // A few layouts have products without this epilogue.
            _ => (weight_gradient(&input, &gradient, tf32), Self::library_column_sums(gradient.tensor)),
        }
    }

    fn library_column_sums(rows: CubeTensor) -> CubeTensor {
        let columns = last(rows.meta.shape());
        let rows = Operand::new(rows, Matrices::flat);
        let height = flat_size(&rows, &rows).rows;
        let ones = Self::float_ones(Shape::new([1, height]), &rows.tensor.device, rows.tensor.dtype.into());
        let ones = Operand::new(ones, Matrices::flat);
        let size = Size { rows: 1, inner: height, columns, batches: 1, may_split: true };
        match computed(&ones, &rows, size, Shape::new([1, columns]), Matrices::flat, Vector::None, false) {
            Some((sums, _)) => with_shape(sums, [columns]),
            None => Self::linear_bias_backward(rows.tensor),
        }
    }

    fn library_log_probs_gradient(logits: CubeTensor, targets: CubeTensor, gradient: CubeTensor) -> CubeTensor {
        rows::log_probs_gradient(logits, targets, gradient)
    }

    fn library_layer_norm_gradients(
        input: CubeTensor,
        gamma: CubeTensor,
        gradient: CubeTensor,
        epsilon: f32,
    ) -> (CubeTensor, CubeTensor) {
        rows::layer_norm_gradient(input, gamma, gradient, epsilon)
    }

    fn library_convolution_input_gradient(
        gradient: CubeTensor,
        weight: CubeTensor,
        shape: Shape,
        window: Window,
        tf32: bool,
    ) -> CubeTensor {
        convolutions::input_gradient(gradient, weight, shape, &window, tf32)
    }

    fn library_convolution_weight_gradient(
        input: CubeTensor,
        gradient: CubeTensor,
        shape: Shape,
        window: Window,
        tf32: bool,
    ) -> CubeTensor {
        convolutions::weight_gradient(input, gradient, shape, &window, tf32)
    }

    fn library_batch_norm_gradients(
        input: CubeTensor,
        gamma: CubeTensor,
        gradient: CubeTensor,
        mean: CubeTensor,
        deviation: CubeTensor,
        epsilon: f64,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        norms::batch_norm_gradients(input, gamma, gradient, mean, deviation, epsilon)
    }

    fn library_recurrence_in_training(
        input: CubeTensor,
        weights: CubeTensor,
        states: CubeTensor,
        plan: Arc<RecurrentPlan>,
    ) -> (CubeTensor, CubeTensor) {
        let (output, reserve) = recurrences::forward(input, weights, states, plan, true);
        (output, reserve.expect("BUG: kept in training"))
    }

    fn library_recurrence_gradients(
        input: CubeTensor,
        weights: CubeTensor,
        states: CubeTensor,
        output: CubeTensor,
        gradient: CubeTensor,
        reserve: CubeTensor,
        plan: Arc<RecurrentPlan>,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        recurrences::gradients(input, weights, states, output, gradient, &reserve, plan)
    }

    fn library_attention_in_training(
        query: CubeTensor,
        key: CubeTensor,
        value: CubeTensor,
        bias: CubeTensor,
        scale: f32,
        plans: Arc<AttentionPlans>,
    ) -> (CubeTensor, CubeTensor) {
        attention::forward([query, key, value], bias, scale, &plans)
    }

    fn library_attention_gradients(
        query: CubeTensor,
        key: CubeTensor,
        value: CubeTensor,
        bias: CubeTensor,
        output: CubeTensor,
        statistics: CubeTensor,
        gradient: CubeTensor,
        scale: f32,
        plans: Arc<AttentionPlans>,
    ) -> (CubeTensor, CubeTensor, CubeTensor) {
        attention::gradients([query, key, value], bias, [output, statistics], gradient, scale, &plans)
    }

    fn library_channel_sums(tensor: CubeTensor) -> CubeTensor {
        convolutions::channel_sums(tensor)
    }
}

/// What becomes of the sums of a linear layer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gelu {
    /// They are the output.
    None,
    /// They go through a GELU.
    OfSums,
    /// They are the output, and another kernel computes their GELU. They are rounded once: its slope near zero shows what rounding
    /// of parts leaves there.
    Later,
}

/// The output, and the input of a GELU.
fn linear(input: CubeTensor, weight: CubeTensor, bias: Option<CubeTensor>, gelu: Gelu, tf32: bool) -> Computed {
    let shape = linear_shape(input.meta.shape(), weight.meta.shape());
    let input = Operand::new(input, Matrices::flat);
    let weight = Operand::new(weight, Matrices::flat);
    let vector = bias.clone().map_or(Vector::None, |bias| Vector::Bias(Box::new(bias), gelu == Gelu::OfSums));
    let size = Size { may_split: gelu == Gelu::None, ..flat_size(&input, &weight) };
    if let Some(computed) = computed(&input, &weight, size, shape, Matrices::flat, vector, tf32) {
        return computed;
    }
    let later = if gelu == Gelu::None { Gelu::None } else { Gelu::Later };
    let output = match bias {
        Some(bias) if gelu == Gelu::OfSums => linear(input.tensor, weight.tensor, Some(bias), later, tf32).0,
        Some(bias) => add_to_rows(linear(input.tensor, weight.tensor, None, later, tf32).0, bias),
        None => CubeBackend::linear(input.tensor, weight.tensor, None),
    };
    if gelu != Gelu::OfSums {
        return (output, None);
    }
    if output.meta.shape().num_elements() == 0 {
        return (output.clone(), Some(output));
    }
    (gelu::output::<CubeBackend>(output.clone()), Some(output))
}

fn add_to_rows(rows: CubeTensor, vector: CubeTensor) -> CubeTensor {
    let shape = rows.meta.shape();
    if shape.num_elements() == 0 {
        return rows;
    }
    let mut of_vector = vec![1; shape.num_dims()];
    of_vector[shape.num_dims() - 1] = last(shape);
    CubeBackend::float_add(rows, CubeBackend::float_reshape(vector, Shape::from(of_vector)))
}

fn weight_gradient(input: &Operand, gradient: &Operand, tf32: bool) -> CubeTensor {
    match weight_and_sums(input, gradient, Vector::None, tf32) {
        Some((weight, _)) => weight,
        None => CubeBackend::linear_weight_backward(input.tensor.clone(), gradient.tensor.clone()),
    }
}

fn weight_and_sums(input: &Operand, gradient: &Operand, vector: Vector, tf32: bool) -> Option<Computed> {
    let shape = weight_shape(input.tensor.meta.shape(), gradient.tensor.meta.shape());
    let size = flat_size(input, gradient);
    // The input is read as its transpose.
    let size = Size { rows: size.inner, inner: size.rows, ..size };
    let input = Operand { matrices: input.matrices.transpose(), tensor: input.tensor.clone() };
    computed(&input, gradient, size, shape, Matrices::flat, vector, tf32)
}

/// Sizes of the product of two matrices whose rows are all dimensions but the last.
fn flat_size(left: &Operand, right: &Operand) -> Size {
    let shape = left.tensor.meta.shape();
    let inner = last(shape);
    let rows = shape.iter().take(shape.num_dims() - 1).product();
    Size { rows, inner, columns: last(right.tensor.meta.shape()), batches: 1, may_split: true }
}

#[derive(Clone, Copy)]
struct Size {
    rows: usize,
    inner: usize,
    columns: usize,
    batches: usize,
    /// The product may be the sum of two, each rounded.
    may_split: bool,
}

/// A tensor and its matrices.
struct Operand {
    tensor: CubeTensor,
    matrices: Matrices,
}

type Read = fn(&[usize], &[usize]) -> Option<Matrices>;

impl Operand {
    /// The tensor, copied where its strides are not those of matrices.
    fn new(tensor: CubeTensor, read: Read) -> Self {
        let matrices = if tensor.meta.is_tiled() { None } else { read(tensor.meta.shape(), tensor.meta.strides()) };
        if let Some(matrices) = matrices {
            return Self { tensor, matrices };
        }
        let tensor = into_contiguous(tensor);
        let matrices = read(tensor.meta.shape(), tensor.meta.strides()).expect("BUG: contiguous rows");
        Self { tensor, matrices }
    }
}

/// Numbers for each column beside a product.
enum Vector {
    None,
    /// A bias, and true for GELU of the sums.
    Bias(Box<CubeTensor>, bool),
    ColumnSums,
}

/// The product, and the column sums or the input of GELU if asked for.
type Computed = (CubeTensor, Option<CubeTensor>);

/// Launches a product. `None` where the library has no algorithm.
fn computed(
    left: &Operand,
    right: &Operand,
    size: Size,
    shape: Shape,
    read: Read,
    vector: Vector,
    tf32: bool,
) -> Option<Computed> {
    let Size { rows, inner, columns, batches, may_split } = size;
    let dtype = left.tensor.dtype;
    let element = match dtype {
        DType::F32 => Element::F32 { tf32 },
        DType::F16 => Element::F16,
        DType::BF16 => Element::Bf16,
        _ => return None,
    };
    if right.tensor.dtype != dtype {
        return None;
    }
    if rows * inner * columns * batches == 0 {
        return match vector {
            Vector::None => Some((zeros(&left.tensor, shape), None)),
            // Burn's sums of no rows are zeros.
            Vector::Bias(..) | Vector::ColumnSums => None,
        };
    }
    let output = Operand::new(empty(&left.tensor, shape.clone()), read);
    let padded = padded_columns(right, &output, size, element);
    let product = |inner, epilogue, accumulate| Product {
        element,
        rows,
        inner,
        columns: padded,
        batches,
        left: left.matrices,
        right: right.matrices,
        output: output.matrices,
        epilogue,
        accumulate,
    };
    let epilogue = match vector {
        Vector::None => Epilogue::None,
        Vector::Bias(_, false) => Epilogue::Bias,
        Vector::Bias(_, true) => Epilogue::BiasGelu,
        Vector::ColumnSums => Epilogue::ColumnSums,
    };
    let (mut bias, mut sums) = (None, None);
    match vector {
        Vector::None => {}
        Vector::Bias(vector, _) => bias = Some(with_length(*vector, padded)),
        Vector::ColumnSums => sums = Some(with_shape(empty(&left.tensor, Shape::new([padded])), [columns])),
    }
    let vector = bias.as_ref().or(sums.as_ref());
    let of_vector = vector.map_or(MOST_ALIGNED, |vector| alignment_of(vector.handle.offset_start.unwrap_or(0)));
    // A new tensor of the output's shape and type has its layout.
    let pre_activation = (epilogue == Epilogue::BiasGelu).then(|| empty(&left.tensor, shape));
    let may_split = may_split && matches!(epilogue, Epilogue::None | Epilogue::Bias);
    let whole = if may_split { whole_inner(left, right, inner, element) } else { inner };
    // The rest comes first, because the larger product then adds to it: its rounding is that of a small part.
    let rest = if whole < inner {
        Some(launchable(left, right, &output, whole, product(inner - whole, epilogue, false), of_vector)?)
    } else {
        None
    };
    let main = match rest {
        None => launchable(left, right, &output, 0, product(inner, epilogue, false), of_vector)?,
        Some(_) => launchable(left, right, &output, 0, product(whole, Epilogue::None, true), MOST_ALIGNED)?,
    };
    for launchable in rest.into_iter().chain([main]) {
        let [sums, pre_activation] =
            [&sums, &pre_activation].map(|tensor| tensor.as_ref().map(|tensor| tensor.handle.clone()));
        stream::launch(&left.tensor.client, launchable, bias.take().map(|bias| bias.handle), sums, pre_activation);
    }
    Some((output.tensor, sums.or(pre_activation)))
}

/// A product of the inner numbers from `first` on, with its plan for a vector of this alignment.
fn launchable(
    left: &Operand,
    right: &Operand,
    output: &Operand,
    first: usize,
    product: Product,
    of_vector: u64,
) -> Option<stream::Launch> {
    let bytes = product.element.bytes();
    let left_offset = first * bytes * if left.matrices.transposed { left.matrices.leading } else { 1 };
    let right_offset = first * bytes * if right.matrices.transposed { 1 } else { right.matrices.leading };
    let at = |operand: &Operand, offset: usize| {
        let start = operand.tensor.handle.offset_start.unwrap_or(0) + offset as u64;
        let mut handle = operand.tensor.handle.clone();
        handle.offset_start = Some(start);
        (handle, alignment_of(start))
    };
    let [(left, of_left), (right, of_right), (output, of_output)] =
        [at(left, left_offset), at(right, right_offset), at(output, 0)];
    let plan = stream::plan(left.service.device, product, [of_left, of_right, of_output.min(of_vector)])?;
    Some(stream::Launch { plan, left, right, output })
}

/// Columns whose rows in memory are whole vectors of tensor cores: more than the product's, where the padding of both
/// tensors has the room. A vocabulary of 50,257 is five times as slow as one of 50,304 in bf16. A column of padding
/// affects nothing but itself.
fn padded_columns(right: &Operand, output: &Operand, size: Size, element: Element) -> usize {
    let padded = size.columns.next_multiple_of(COLUMNS);
    let bytes = element.bytes() as u64;
    let fits = |operand: &Operand, rows: usize| {
        let matrices = operand.matrices;
        let buffer = operand.tensor.handle.size_in_used() / bytes;
        matrices.leading >= padded && !matrices.transposed && matrices.span(rows, padded, size.batches) as u64 <= buffer
    };
    if !size.columns.is_multiple_of(VECTOR / element.bytes()) && fits(right, size.inner) && fits(output, size.rows) {
        padded
    } else {
        size.columns
    }
}

/// Inner numbers in whole vectors, where they are contiguous and end within one. The rest is a product of its own.
fn whole_inner(left: &Operand, right: &Operand, inner: usize, element: Element) -> usize {
    let whole = inner / COLUMNS * COLUMNS;
    let contiguous = !left.matrices.transposed || right.matrices.transposed;
    if contiguous && !inner.is_multiple_of(VECTOR / element.bytes()) && whole >= LONG { whole } else { inner }
}

/// Bytes of one load of tensor-core kernels.
const VECTOR: usize = 16;
/// Columns of the smallest tile of tensor-core kernels.
const COLUMNS: usize = 64;
/// Inner numbers from which two launches are faster than one with loads of single numbers.
const LONG: usize = 1024;

/// A vector with zeros behind it.
fn with_length(vector: CubeTensor, length: usize) -> CubeTensor {
    let missing = length - vector.meta.shape()[0];
    if missing == 0 {
        return into_contiguous(vector);
    }
    let zeros = CubeBackend::float_zeros(Shape::new([missing]), &vector.device, vector.dtype.into());
    CubeBackend::float_cat(vec![vector, zeros], 0)
}

/// The first numbers of a vector or row.
fn with_shape(vector: CubeTensor, shape: [usize; 1]) -> CubeTensor {
    CubeTensor { meta: Box::new(Metadata::new(Shape::new(shape), [1].as_slice())), ..vector }
}

/// Largest power of two by which an address is divisible, as far as its offset in the buffer shows.
fn alignment_of(offset: u64) -> u64 {
    // The allocator aligns buffers to more than the library distinguishes.
    if offset == 0 { MOST_ALIGNED } else { 1 << offset.trailing_zeros().min(MOST_ALIGNED.trailing_zeros()) }
}

fn zeros(beside: &CubeTensor, shape: Shape) -> CubeTensor {
    if shape.num_elements() == 0 {
        return empty(beside, shape);
    }
    CubeBackend::float_zeros(shape, &beside.device, beside.dtype.into())
}

/// A new tensor beside another, of its type.
fn empty(beside: &CubeTensor, shape: Shape) -> CubeTensor {
    empty_of(beside, shape, beside.dtype)
}

fn empty_of(beside: &CubeTensor, shape: Shape, dtype: DType) -> CubeTensor {
    empty_device_dtype(beside.client.clone(), beside.device.clone(), shape, dtype)
}

#[cfg(test)]
mod tests;
