//! Kernels that read rows once: log probabilities of targets, and layer norms. Sums are in f32.

#![allow(clippy::used_underscore_binding, reason = "the macro `cube` uses the types of elements")]
#![allow(clippy::cast_possible_wrap, reason = "columns are counted in u32 and classes in i32")]

use burn::backend::cubecl::dtype_to_storage_type;
use burn::tensor::{DType, Shape};
use burn_cubecl::kernel::into_contiguous;
use burn_cubecl::tensor::CubeTensor;
use cubecl::prelude::*;

use super::{Operand, empty, empty_of};
use crate::matrix::Matrices;

/// Units of a cube: 8 planes of 32 on NVIDIA's GPUs.
const UNITS: u32 = 256;
const PLANES: usize = 8;
/// Not above any logit, and finite: the difference to itself is a number.
const LOWEST: f32 = f32::MIN;

/// Logarithm of the sum of exponentials of a row, computed by all units of a cube.
#[cube]
fn log_sum_exp<F: Float>(row: &Tensor<F>, first: usize, width: usize) -> f32 {
    let mut largest = f32::new(LOWEST);
    let mut sum = f32::new(0.0);
    let mut column = UNIT_POS_X as usize;
    while column < width {
        let value = f32::cast_from(row[first + column]);
        if value > largest {
            sum = sum * (largest - value).exp() + 1.0;
            largest = value;
        } else {
            sum += (value - largest).exp();
        }
        column += CUBE_DIM_X as usize;
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
fn log_probabilities<F: Float, I: Int>(
    logits: &Tensor<F>,
    targets: &Tensor<I>,
    output: &mut Tensor<f32>,
    width: u32,
    leading: u32,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let row = CUBE_POS_X as usize;
    let first = row * leading as usize;
    let width = width as usize;
    let normaliser = log_sum_exp::<F>(logits, first, width);
    if UNIT_POS_X == 0 {
        let target = i64::cast_from(targets[row]);
        let mut probability = f32::new(f32::NAN);
        if target >= 0 && target < width as i64 {
            probability = f32::cast_from(logits[first + target as usize]) - normaliser;
        }
        output[row] = probability;
    }
}

#[cube(launch, address_type = "dynamic")]
fn log_probabilities_backward<F: Float, I: Int>(
    logits: &Tensor<F>,
    targets: &Tensor<I>,
    gradient: &Tensor<f32>,
    output: &mut Tensor<F>,
    width: u32,
    leading: u32,
    output_leading: u32,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let row = CUBE_POS_X as usize;
    let first = row * leading as usize;
    let width = width as usize;
    let normaliser = log_sum_exp::<F>(logits, first, width);
    let target = i64::cast_from(targets[row]);
    let factor = gradient[row];
    let mut column = UNIT_POS_X as usize;
    while column < width {
        let mut of_column = -(f32::cast_from(logits[first + column]) - normaliser).exp();
        if column as i64 == target {
            of_column += 1.0;
        }
        output[row * output_leading as usize + column] = F::cast_from(of_column * factor);
        column += CUBE_DIM_X as usize;
    }
}

/// Rows with the leading dimension of their memory.
pub(super) fn in_rows(tensor: CubeTensor) -> (CubeTensor, u32) {
    let operand = Operand::new(tensor, Matrices::flat);
    let operand = if operand.matrices.transposed {
        Operand::new(into_contiguous(operand.tensor), Matrices::flat)
    } else {
        operand
    };
    (operand.tensor, operand.matrices.leading as u32)
}

/// Width of indices into the largest of the tensors.
pub(super) fn addresses(tensors: &[&CubeTensor]) -> AddressType {
    tensors.iter().map(|tensor| tensor.required_address_type()).max().unwrap_or_default()
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

/// Mean of a row, computed by all units of a plane.
#[cube]
fn plane_mean<F: Float>(row: &Tensor<F>, first: usize, width: usize) -> f32 {
    let mut sum = f32::new(0.0);
    let mut column = UNIT_POS_PLANE as usize;
    while column < width {
        sum += f32::cast_from(row[first + column]);
        column += PLANE_DIM as usize;
    }
    plane_sum(sum) / width as f32
}

/// One over the standard deviation of a row around its mean.
#[cube]
fn plane_inverse_deviation<F: Float>(row: &Tensor<F>, first: usize, width: usize, mean: f32, epsilon: f32) -> f32 {
    let mut sum = f32::new(0.0);
    let mut column = UNIT_POS_PLANE as usize;
    while column < width {
        let centred = f32::cast_from(row[first + column]) - mean;
        sum += centred * centred;
        column += PLANE_DIM as usize;
    }
    f32::new(1.0) / (plane_sum(sum) / width as f32 + epsilon).sqrt()
}

#[cube(launch, address_type = "dynamic")]
fn layer_norm_forward<F: Float>(
    input: &Tensor<F>,
    gamma: &Tensor<F>,
    beta: &Tensor<F>,
    output: &mut Tensor<F>,
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
        let mean = plane_mean::<F>(input, first, width);
        let scale = plane_inverse_deviation::<F>(input, first, width, mean, epsilon);
        let mut column = UNIT_POS_PLANE as usize;
        while column < width {
            let normalised = (f32::cast_from(input[first + column]) - mean) * scale;
            let value = normalised * f32::cast_from(gamma[column]) + f32::cast_from(beta[column]);
            output[row * output_leading as usize + column] = F::cast_from(value);
            column += PLANE_DIM as usize;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn layer_norm_backward<F: Float>(
    input: &Tensor<F>,
    gamma: &Tensor<F>,
    gradient: &Tensor<F>,
    output: &mut Tensor<F>,
    of_gamma: &mut Tensor<F>,
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
        let mean = plane_mean::<F>(input, first, width);
        let scale = plane_inverse_deviation::<F>(input, first, width, mean, epsilon);
        let mut sum = f32::new(0.0);
        let mut correlation = f32::new(0.0);
        let mut column = UNIT_POS_PLANE as usize;
        while column < width {
            let normalised = (f32::cast_from(input[first + column]) - mean) * scale;
            let of_output = f32::cast_from(gradient[gradient_first + column]);
            let of_normalised = of_output * f32::cast_from(gamma[column]);
            sum += of_normalised;
            correlation += of_normalised * normalised;
            of_gamma[output_first + column] = F::cast_from(of_output * normalised);
            column += PLANE_DIM as usize;
        }
        let sum = plane_sum(sum) / width as f32;
        let correlation = plane_sum(correlation) / width as f32;
        let mut column = UNIT_POS_PLANE as usize;
        while column < width {
            let normalised = (f32::cast_from(input[first + column]) - mean) * scale;
            let of_normalised = f32::cast_from(gradient[gradient_first + column]) * f32::cast_from(gamma[column]);
            output[output_first + column] = F::cast_from((of_normalised - sum - normalised * correlation) * scale);
            column += PLANE_DIM as usize;
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
    let rows = row_count(&input);
    if rows > 0 {
        layer_norm_forward::launch(
            &input.client.clone(),
            cubes(&input, rows),
            CubeDim::new_1d(UNITS),
            addresses(&[&input, &output]),
            input.clone().into_tensor_arg(),
            gamma.into_tensor_arg(),
            beta.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            rows as u32,
            width(&input) as u32,
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
    let rows = row_count(&input);
    if rows > 0 {
        layer_norm_backward::launch(
            &input.client.clone(),
            cubes(&input, rows),
            CubeDim::new_1d(UNITS),
            addresses(&[&input, &gradient, &output, &of_gamma]),
            input.clone().into_tensor_arg(),
            gamma.into_tensor_arg(),
            gradient.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            of_gamma.clone().into_tensor_arg(),
            rows as u32,
            width(&input) as u32,
            leading,
            gradient_leading,
            output_leading,
            epsilon,
            dtype_to_storage_type(input.dtype),
        );
    }
    (output, of_gamma)
}
