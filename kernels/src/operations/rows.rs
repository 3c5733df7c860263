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

/// Logarithm of the sum of exponentials of a row: computed by one unit if the row is narrow, else by all units of a cube.
#[cube]
fn log_sum_exp<F: Float, N: Size>(
    logits: &Tensor<Vector<F, N>>,
    first: usize,
    width: usize,
    #[comptime] is_narrow: bool,
) -> f32 {
    let size = logits.vector_size();
    let (start, step) = units_of_row(is_narrow);
    let mut largest = f32::new(LOWEST);
    let mut sum = f32::new(0.0);
    let mut vector = start;
    while vector * size < width {
        let values = Vector::<f32, N>::cast_from(logits[first + vector]);
        let mut highest = largest;
        #[unroll]
        for lane in 0..size {
            if vector * size + lane < width {
                highest = max(highest, values.extract(lane));
            }
        }
        sum *= (largest - highest).exp();
        #[unroll]
        for lane in 0..size {
            if vector * size + lane < width {
                sum += (values.extract(lane) - highest).exp();
            }
        }
        largest = highest;
        vector += step;
    }
    if !is_narrow {
        let in_plane = plane_max(largest);
        let sum_in_plane = plane_sum(sum * (largest - in_plane).exp());
        let mut maxima = Shared::new_slice(PLANES);
        let mut sums = Shared::new_slice(PLANES);
        if UNIT_POS_PLANE == 0 {
            maxima[PLANE_POS as usize] = in_plane;
            sums[PLANE_POS as usize] = sum_in_plane;
        }
        sync_cube();
        largest = maxima[0];
        for plane in 1..PLANES {
            largest = max(largest, maxima[plane]);
        }
        sum = f32::new(0.0);
        for plane in 0..PLANES {
            sum += sums[plane] * (maxima[plane] - largest).exp();
        }
    }
    largest + sum.ln()
}

/// The first vector of a row that the unit reads, and the distance to its next.
#[cube]
fn units_of_row(#[comptime] is_narrow: bool) -> (usize, usize) {
    if is_narrow { (0usize.runtime(), 1usize.runtime()) } else { (UNIT_POS_X as usize, CUBE_DIM_X as usize) }
}

/// The row of the unit.
#[cube]
fn row_of_unit(#[comptime] is_narrow: bool) -> usize {
    if is_narrow { ABSOLUTE_POS } else { CUBE_POS_X as usize }
}

#[cube(launch, address_type = "dynamic")]
fn log_probabilities<F: Float, I: Int, N: Size>(
    logits: &Tensor<Vector<F, N>>,
    targets: &Tensor<I>,
    output: &mut Tensor<f32>,
    rows: u32,
    width: u32,
    leading: u32,
    #[comptime] is_narrow: bool,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let row = row_of_unit(is_narrow);
    if row < rows as usize {
        let size = logits.vector_size();
        let first = row * (leading as usize / size);
        let width = width as usize;
        let normaliser = log_sum_exp::<F, N>(logits, first, width, is_narrow);
        if is_narrow || UNIT_POS_X == 0 {
            let target = i64::cast_from(targets[row]);
            let mut probability = f32::new(f32::NAN);
            if target >= 0 && target < width as i64 {
                let column = target as usize;
                let logit = logits[first + column / size].extract_dynamic(column % size);
                probability = f32::cast_from(logit) - normaliser;
            }
            output[row] = probability;
        }
    }
}

#[cube(launch, address_type = "dynamic")]
fn log_probabilities_backward<F: Float, I: Int, N: Size>(
    logits: &Tensor<Vector<F, N>>,
    targets: &Tensor<I>,
    gradient: &Tensor<f32>,
    output: &mut Tensor<Vector<F, N>>,
    rows: u32,
    width: u32,
    leading: u32,
    output_leading: u32,
    #[comptime] is_narrow: bool,
    #[define(F, I)] _types: [ElemType; 2],
) {
    let row = row_of_unit(is_narrow);
    if row < rows as usize {
        let size = logits.vector_size();
        let first = row * (leading as usize / size);
        let output_first = row * (output_leading as usize / size);
        let width = width as usize;
        let normaliser = log_sum_exp::<F, N>(logits, first, width, is_narrow);
        let target = i64::cast_from(targets[row]);
        let factor = gradient[row];
        let (start, step) = units_of_row(is_narrow);
        let mut vector = start;
        while vector * size < width {
            let values = Vector::<f32, N>::cast_from(logits[first + vector]);
            let mut of_columns = Vector::<f32, N>::empty();
            #[unroll]
            for lane in 0..size {
                let mut of_column = -(values.extract(lane) - normaliser).exp();
                if (vector * size + lane) as i64 == target {
                    of_column += 1.0;
                }
                of_columns.insert(lane, of_column * factor);
            }
            // Columns behind the width are padding of the row.
            output[output_first + vector] = Vector::cast_from(of_columns);
            vector += step;
        }
    }
}

/// Largest number of columns of a row that one unit computes.
const NARROW: usize = 32;

/// Cubes for rows of this width, and `true` if a unit computes a row.
fn cubes_of_rows(rows: usize, width: usize) -> (CubeCount, bool) {
    let is_narrow = width <= NARROW;
    let cubes = if is_narrow { rows.div_ceil(UNITS as usize) } else { rows };
    (CubeCount::Static(cubes as u32, 1, 1), is_narrow)
}

/// Most numbers in one load that start each row of these tensors, which have leading dimensions: 16 bytes or a power of two less.
fn vector_size(tensors: &[(&CubeTensor, u32)]) -> usize {
    let fits = |size: &usize| {
        tensors.iter().all(|(tensor, leading)| {
            let bytes = size * tensor.dtype.size();
            let offset = tensor.handle.offset_start.unwrap_or(0);
            bytes <= 16 && (*leading as usize).is_multiple_of(*size) && offset.is_multiple_of(bytes as u64)
        })
    };
    [8, 4, 2].into_iter().find(fits).unwrap_or(1)
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
        let (cubes, is_narrow) = cubes_of_rows(rows, width(&logits));
        log_probabilities::launch(
            &logits.client.clone(),
            cubes,
            CubeDim::new_1d(UNITS),
            addresses(&[&logits]),
            vector_size(&[(&logits, leading)]),
            logits.clone().into_tensor_arg(),
            targets.clone().into_tensor_arg(),
            output.clone().into_tensor_arg(),
            rows as u32,
            width(&logits) as u32,
            leading,
            is_narrow,
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
        let (cubes, is_narrow) = cubes_of_rows(rows, width(&logits));
        log_probabilities_backward::launch(
            &logits.client.clone(),
            cubes,
            CubeDim::new_1d(UNITS),
            addresses(&[&logits, &output]),
            vector_size(&[(&logits, leading), (&output, output_leading)]),
            logits.clone().into_tensor_arg(),
            targets.clone().into_tensor_arg(),
            gradient.into_tensor_arg(),
            output.clone().into_tensor_arg(),
            rows as u32,
            width(&logits) as u32,
            leading,
            output_leading,
            is_narrow,
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
