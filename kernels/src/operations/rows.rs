//! Kernels that read rows once: log probabilities of targets, and layer norms. Sums are in f32.

#![allow(clippy::used_underscore_binding, reason = "the macro `cube` uses the types of elements")]
#![allow(clippy::cast_possible_wrap, reason = "columns are counted in u32 and classes in i32")]

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Operand, alignment_of, empty, empty_of};
use crate::matrix::Matrices;

/// Units of a cube: 8 planes of 32 on NVIDIA's GPUs.
const UNITS: u32 = 256;
const PLANES: usize = 8;
/// Not above any logit, and finite: the difference to itself is a number.
const LOWEST: f32 = f32::MIN;

/// Numbers of a row from a column on, loaded at once. Behind the row's end they are minus infinity, whose exponential is 0.
#[cube]
fn numbers<F: Float, N: Size>(
    rows: &Tensor<Vector<F, N>>,
    first: usize,
    column: usize,
    width: usize,
) -> Vector<f32, N> {
    let mut numbers = Vector::<f32, N>::cast_from(rows[(first + column) / N::value()]);
    #[unroll]
    for lane in 0..N::value() {
        let is_inside = column + lane < width;
        numbers.insert(lane, select(is_inside, numbers.extract(lane), f32::new(f32::NEG_INFINITY)));
    }
    numbers
}

/// Logarithm of the sum of exponentials of a row, computed by all units of a cube.
#[cube]
fn log_sum_exp<F: Float, N: Size>(rows: &Tensor<Vector<F, N>>, first: usize, width: usize) -> f32 {
    let mut largest = f32::new(LOWEST);
    let mut sum = f32::new(0.0);
    let mut column = UNIT_POS_X as usize * N::value();
    while column < width {
        let values = numbers::<F, N>(rows, first, column, width);
        let mut next = largest;
        #[unroll]
        for lane in 0..N::value() {
            next = max(next, values.extract(lane));
        }
        sum = sum * (largest - next).exp() + (values - Vector::new(next)).exp().vector_sum();
        largest = next;
        column += CUBE_DIM_X as usize * N::value();
    }
    let in_plane = plane_max(largest);
    let sum_in_plane = plane_sum(sum * (largest - in_plane).exp());
    let mut maxima = Shared::new_slice(PLANES);
    let mut sums = Shared::new_slice(PLANES);
    if UNIT_POS_PLANE == 0 {
        maxima[PLANE_POS as usize] = in_plane;
        sums[PLANE_POS as usize] = sum_in_plane;
    }
    sync_cube();
    let mut of_row = maxima[0];
    for plane in 1..PLANES {
        of_row = max(of_row, maxima[plane]);
    }
    let mut total = f32::new(0.0);
    for plane in 0..PLANES {
        total += sums[plane] * (maxima[plane] - of_row).exp();
    }
    of_row + total.ln()
}

#[cube(launch, address_type = "dynamic")]
fn log_probabilities<F: Float, N: Size, I: Int>(
    logits: &Tensor<Vector<F, N>>,
    targets: &Tensor<I>,
    output: &mut Tensor<f32>,
    width: u32,
    leading: u32,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let row = CUBE_POS_X as usize;
    let first = row * leading as usize;
    let width = width as usize;
    let normaliser = log_sum_exp::<F, N>(logits, first, width);
    if UNIT_POS_X == 0 {
        let target = i64::cast_from(targets[row]);
        let mut probability = f32::new(f32::NAN);
        if target >= 0 && target < width as i64 {
            let place = first + target as usize;
            let logits = logits[place / N::value()];
            probability = f32::cast_from(logits.extract_dynamic(place % N::value())) - normaliser;
        }
        output[row] = probability;
    }
}

#[cube(launch, address_type = "dynamic")]
fn log_probabilities_backward<F: Float, N: Size, I: Int>(
    logits: &Tensor<Vector<F, N>>,
    targets: &Tensor<I>,
    gradient: &Tensor<f32>,
    output: &mut Tensor<Vector<F, N>>,
    width: u32,
    leading: u32,
    output_leading: u32,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let row = CUBE_POS_X as usize;
    let first = row * leading as usize;
    let width = width as usize;
    let normaliser = log_sum_exp::<F, N>(logits, first, width);
    let target = i64::cast_from(targets[row]);
    let factor = gradient[row];
    let mut column = UNIT_POS_X as usize * N::value();
    while column < width {
        let values = numbers::<F, N>(logits, first, column, width);
        let mut of_columns = -(values - Vector::new(normaliser)).exp();
        #[unroll]
        for lane in 0..N::value() {
            if (column + lane) as i64 == target {
                of_columns.insert(lane, of_columns.extract(lane) + 1.0);
            }
        }
        let place = (row * output_leading as usize + column) / N::value();
        output[place] = Vector::cast_from(of_columns * Vector::new(factor));
        column += CUBE_DIM_X as usize * N::value();
    }
}

/// Rows with the leading dimension of their memory.
fn in_rows(tensor: CubeTensor) -> (CubeTensor, u32) {
    let operand = Operand::new(tensor, Matrices::flat);
    let operand = if operand.matrices.transposed {
        Operand::new(into_contiguous(operand.tensor), Matrices::flat)
    } else {
        operand
    };
    (operand.tensor, operand.matrices.leading as u32)
}

/// Width of indices into the largest of the tensors.
fn addresses(tensors: &[&CubeTensor]) -> AddressType {
    tensors.iter().map(|tensor| tensor.required_address_type()).max().unwrap_or_default()
}

/// Numbers that a unit loads at once: the most whose vectors begin with the rows of all tensors, and end in their memory.
fn vector_size(rows: &[(&CubeTensor, u32)]) -> VectorSize {
    let fits = |(tensor, leading): &(&CubeTensor, u32), size: usize| {
        let (leading, bytes) = (*leading as usize, tensor.dtype.size());
        let end = (row_count(tensor) - 1) * leading + width(tensor).next_multiple_of(size);
        leading.is_multiple_of(size)
            && alignment_of(tensor.handle.offset_start.unwrap_or(0)).is_multiple_of((size * bytes) as u64)
            && (end * bytes) as u64 <= tensor.handle.size_in_used()
    };
    let (tensor, _) = rows[0];
    let sizes = tensor.client.io_optimized_vector_sizes(tensor.dtype.size());
    sizes.filter(|size| rows.iter().all(|rows| fits(rows, *size))).max().unwrap_or(1)
}

fn row_count(tensor: &CubeTensor) -> usize {
    let shape = tensor.meta.shape();
    shape.iter().take(shape.num_dims() - 1).product()
}

fn width(tensor: &CubeTensor) -> usize {
    super::last(tensor.meta.shape())
}

/// `[rows, classes]` and `[rows]` to `[rows]` in f32.
pub(super) fn log_probs(logits: CubeTensor, targets: CubeTensor) -> CubeTensor {
    let (logits, leading) = in_rows(logits);
    let targets = into_contiguous(targets);
    let rows = row_count(&logits);
    let output = empty_of(&logits, Shape::new([rows]), DType::F32);
    if rows > 0 {
        log_probabilities::launch(
            &logits.client.clone(),
            CubeCount::Static(rows as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            addresses(&[&logits]),
            vector_size(&[(&logits, leading)]),
            logits.clone().into_tensor_arg(),
            targets.clone().into_tensor_arg(),
            output.clone().into_tensor_arg(),
            width(&logits) as u32,
            leading,
            [logits.dtype, targets.dtype].map(dtype_to_storage_type),
        );
    }
    output
}

/// Gradient of the logits, for gradients `[rows]` in f32 of the log probabilities.
pub(super) fn log_probs_gradient(logits: CubeTensor, targets: CubeTensor, gradient: CubeTensor) -> CubeTensor {
    let (logits, leading) = in_rows(logits);
    let [targets, gradient] = [targets, gradient].map(into_contiguous);
    let rows = row_count(&logits);
    let (output, output_leading) = in_rows(empty(&logits, logits.meta.shape().clone()));
    if rows > 0 {
        log_probabilities_backward::launch(
            &logits.client.clone(),
            CubeCount::Static(rows as u32, 1, 1),
            CubeDim::new_1d(UNITS),
            addresses(&[&logits, &output]),
            vector_size(&[(&logits, leading), (&output, output_leading)]),
            logits.clone().into_tensor_arg(),
            targets.clone().into_tensor_arg(),
            gradient.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            width(&logits) as u32,
            leading,
            output_leading,
            [logits.dtype, targets.dtype].map(dtype_to_storage_type),
        );
    }
    output
}

/// Mean of a row of whole vectors, computed by all units of a plane.
#[cube]
fn plane_mean<F: Float, N: Size>(rows: &Tensor<Vector<F, N>>, first: usize, width: usize) -> f32 {
    let mut sum = Vector::<f32, N>::new(0.0);
    let mut column = UNIT_POS_PLANE as usize * N::value();
    while column < width {
        sum += Vector::cast_from(rows[(first + column) / N::value()]);
        column += PLANE_DIM as usize * N::value();
    }
    plane_sum(sum.vector_sum()) / width as f32
}

/// One over the standard deviation of a row around its mean.
#[cube]
fn plane_inverse_deviation<F: Float, N: Size>(
    rows: &Tensor<Vector<F, N>>,
    first: usize,
    width: usize,
    mean: f32,
    epsilon: f32,
) -> f32 {
    let mut sum = Vector::<f32, N>::new(0.0);
    let mut column = UNIT_POS_PLANE as usize * N::value();
    while column < width {
        let centred = Vector::<f32, N>::cast_from(rows[(first + column) / N::value()]) - Vector::new(mean);
        sum += centred * centred;
        column += PLANE_DIM as usize * N::value();
    }
    f32::new(1.0) / (plane_sum(sum.vector_sum()) / width as f32 + epsilon).sqrt()
}

#[cube(launch, address_type = "dynamic")]
fn layer_norm_forward<F: Float, N: Size>(
    input: &Tensor<Vector<F, N>>,
    gamma: &Tensor<Vector<F, N>>,
    beta: &Tensor<Vector<F, N>>,
    output: &mut Tensor<Vector<F, N>>,
    rows: u32,
    width: u32,
    leading: u32,
    output_leading: u32,
    epsilon: f32,
    #[define(F)] _type: ElemType,
) {
    let row = ABSOLUTE_POS / PLANE_DIM as usize;
    if row < rows as usize {
        let first = row * leading as usize;
        let width = width as usize;
        let mean = plane_mean::<F, N>(input, first, width);
        let scale = plane_inverse_deviation::<F, N>(input, first, width, mean, epsilon);
        let mut column = UNIT_POS_PLANE as usize * N::value();
        while column < width {
            let normalised = normalised::<F, N>(input, first + column, mean, scale);
            let place = column / N::value();
            let value = normalised * Vector::cast_from(gamma[place]) + Vector::cast_from(beta[place]);
            output[(row * output_leading as usize + column) / N::value()] = Vector::cast_from(value);
            column += PLANE_DIM as usize * N::value();
        }
    }
}

/// The numbers from a place on, around their mean and in units of their deviation.
#[cube]
fn normalised<F: Float, N: Size>(rows: &Tensor<Vector<F, N>>, place: usize, mean: f32, scale: f32) -> Vector<f32, N> {
    (Vector::<f32, N>::cast_from(rows[place / N::value()]) - Vector::new(mean)) * Vector::new(scale)
}

#[cube(launch, address_type = "dynamic")]
fn layer_norm_backward<F: Float, N: Size>(
    input: &Tensor<Vector<F, N>>,
    gamma: &Tensor<Vector<F, N>>,
    gradient: &Tensor<Vector<F, N>>,
    output: &mut Tensor<Vector<F, N>>,
    of_gamma: &mut Tensor<Vector<F, N>>,
    rows: u32,
    width: u32,
    leading: u32,
    gradient_leading: u32,
    output_leading: u32,
    epsilon: f32,
    #[define(F)] _type: ElemType,
) {
    let row = ABSOLUTE_POS / PLANE_DIM as usize;
    if row < rows as usize {
        let first = row * leading as usize;
        let gradient_first = row * gradient_leading as usize;
        let output_first = row * output_leading as usize;
        let width = width as usize;
        let mean = plane_mean::<F, N>(input, first, width);
        let scale = plane_inverse_deviation::<F, N>(input, first, width, mean, epsilon);
        let mut sums = Vector::<f32, N>::new(0.0);
        let mut correlations = Vector::<f32, N>::new(0.0);
        let mut column = UNIT_POS_PLANE as usize * N::value();
        while column < width {
            let normalised = normalised::<F, N>(input, first + column, mean, scale);
            let of_output = Vector::<f32, N>::cast_from(gradient[(gradient_first + column) / N::value()]);
            let of_normalised = of_output * Vector::cast_from(gamma[column / N::value()]);
            sums += of_normalised;
            correlations += of_normalised * normalised;
            of_gamma[(output_first + column) / N::value()] = Vector::cast_from(of_output * normalised);
            column += PLANE_DIM as usize * N::value();
        }
        let sum = plane_sum(sums.vector_sum()) / width as f32;
        let correlation = plane_sum(correlations.vector_sum()) / width as f32;
        let mut column = UNIT_POS_PLANE as usize * N::value();
        while column < width {
            let normalised = normalised::<F, N>(input, first + column, mean, scale);
            let of_output = Vector::<f32, N>::cast_from(gradient[(gradient_first + column) / N::value()]);
            let of_normalised = of_output * Vector::cast_from(gamma[column / N::value()]);
            let centred = of_normalised - Vector::new(sum) - normalised * Vector::new(correlation);
            output[(output_first + column) / N::value()] = Vector::cast_from(centred * Vector::new(scale));
            column += PLANE_DIM as usize * N::value();
        }
    }
}

/// Cubes with a plane for each row.
fn cubes(tensor: &CubeTensor, rows: usize) -> CubeCount {
    let planes = UNITS / tensor.client.properties().hardware.plane_size_max.max(1);
    CubeCount::Static(rows.div_ceil(planes as usize) as u32, 1, 1)
}

/// `[.., width]` to `[.., width]`.
pub(super) fn layer_norm(input: CubeTensor, gamma: CubeTensor, beta: CubeTensor, epsilon: f32) -> CubeTensor {
    let (input, leading) = in_rows(input);
    let [gamma, beta] = [gamma, beta].map(into_contiguous);
    let (output, output_leading) = in_rows(empty(&input, input.meta.shape().clone()));
    // A vector of gamma or beta is one row, so rows are whole vectors.
    let (rows, columns) = (row_count(&input), width(&input) as u32);
    if rows > 0 {
        layer_norm_forward::launch(
            &input.client.clone(),
            cubes(&input, rows),
            CubeDim::new_1d(UNITS),
            addresses(&[&input, &output]),
            vector_size(&[(&input, leading), (&output, output_leading), (&gamma, columns), (&beta, columns)]),
            input.clone().into_tensor_arg(),
            gamma.into_tensor_arg(),
            beta.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            rows as u32,
            columns,
            leading,
            output_leading,
            epsilon,
            dtype_to_storage_type(input.dtype),
        );
    }
    output
}

/// Gradient of the input, and the terms of the gradient of gamma: `[.., width]` both.
pub(super) fn layer_norm_gradient(
    input: CubeTensor,
    gamma: CubeTensor,
    gradient: CubeTensor,
    epsilon: f32,
) -> (CubeTensor, CubeTensor) {
    let (input, leading) = in_rows(input);
    let (gradient, gradient_leading) = in_rows(gradient);
    let gamma = into_contiguous(gamma);
    let (output, output_leading) = in_rows(empty(&input, input.meta.shape().clone()));
    let (of_gamma, _) = in_rows(empty(&input, input.meta.shape().clone()));
    let (rows, columns) = (row_count(&input), width(&input) as u32);
    if rows > 0 {
        layer_norm_backward::launch(
            &input.client.clone(),
            cubes(&input, rows),
            CubeDim::new_1d(UNITS),
            addresses(&[&input, &gradient, &output, &of_gamma]),
            vector_size(&[
                (&input, leading),
                (&gradient, gradient_leading),
                (&gamma, columns),
                (&output, output_leading),
                (&of_gamma, output_leading),
            ]),
            input.clone().into_tensor_arg(),
            gamma.into_tensor_arg(),
            gradient.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            of_gamma.clone().into_tensor_arg(),
            rows as u32,
            columns,
            leading,
            gradient_leading,
            output_leading,
            epsilon,
            dtype_to_storage_type(input.dtype),
        );
    }
    (output, of_gamma)
}
