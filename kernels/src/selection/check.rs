//! Small operations by the library, compared with Burn's on the CPU at the start of a program.

use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};

use super::Kind;
use crate::product;
use crate::recurrence::Cell;

/// Rows, inner numbers and columns: sums and columns that end within a vector of tensor cores.
const SIZES: [usize; 3] = [24, 1030, 57];
/// Largest difference, relative to the largest value: what bf16 rounds.
const LARGEST: f64 = 2e-2;

/// The types of numbers that are checked.
pub(super) const FLOATS: [FloatDType; 2] = [FloatDType::F32, FloatDType::BF16];

pub(super) fn precision(float: FloatDType) -> &'static str {
    if float == FloatDType::F32 { "f32" } else { "bf16" }
}

/// Names of an [`outcome`].
type Parts = [&'static str; 4];
const OF_PRODUCTS: Parts = ["the output", "the left gradient", "the right gradient", "the vector's gradient"];
pub(super) const OF_CONVOLUTIONS: Parts =
    ["the output", "the gradient of the input", "the gradient of the weight", "the gradient of the vectors"];

/// Runs one operation of each kind in f32 and bf16, with their gradients. The fault has the operation and its precision.
pub(super) fn all(device: &Device) -> Result<(), (&'static str, &'static str, String)> {
    for float in FLOATS {
        for (name, operation) in OPERATIONS {
            compared(device, operation, float, OF_PRODUCTS).map_err(|fault| (name, precision(float), fault))?;
        }
    }
    Ok(())
}

/// Compares an operation with Burn's on the CPU.
pub(super) fn compared(device: &Device, operation: Operation, float: FloatDType, parts: Parts) -> Result<(), String> {
    let found = outcome(operation, device, float, float, parts)?;
    let expected = outcome(operation, &Device::flex(), float, FloatDType::F32, parts)?;
    for ((found, expected), part) in found.iter().zip(&expected).zip(parts) {
        let difference = difference(found, expected);
        if !is_rounding(difference) {
            return Err(format!(
                "has another result than by Burn's kernels: {part} differs by {difference:.1e} of its largest value"
            ));
        }
    }
    Ok(())
}

/// Returns `false` for NaN.
fn is_rounding(difference: f64) -> bool {
    difference <= LARGEST
}

/// Largest difference, relative to the largest value; NaN if there is one.
fn difference(found: &[f64], expected: &[f64]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
    let differences = found.iter().zip(expected).map(|(found, expected)| (found - expected).abs() / largest);
    differences.fold(0.0, |most, next| if next > most || next.is_nan() { next } else { most })
}

/// A scalar of two matrices and a vector.
pub(super) type Operation = fn(Tensor<2>, Tensor<2>, Tensor<1>) -> Tensor<1>;

const OPERATIONS: [(&str, Operation); 7] = [
    ("a product", |left, right, _| squares(product::matmul(left, right))),
    ("a batch of products", |left, right, _| {
        let [rows, inner, columns] = SIZES;
        let right = right.unsqueeze::<3>().expand([2, inner, columns]);
        squares(product::matmul(left.reshape([2, rows / 2, inner]), right).reshape([rows, columns]))
    }),
    ("a linear layer", |left, right, bias| squares(product::linear(left, right, Some(bias)))),
    ("a linear layer with GELU", |left, right, bias| squares(product::linear_with_gelu(left, right, bias))),
    ("a layer norm", |_, rows, vector| squares(product::layer_norm(rows, vector.clone(), vector, 1e-5))),
    ("an embedding", |_, table, _| {
        let tokens = numbered(8, SIZES[1], &table.device()).reshape([2, 4]);
        squares(product::embedding(table, tokens).reshape([8, SIZES[2]]))
    }),
    ("a loss", |_, logits, _| {
        let targets = numbered(SIZES[1], SIZES[2], &logits.device());
        product::target_log_probs(logits, targets).mean()
    }),
];

/// Kinds that are part of later ones come first.
pub(super) const OF_CUDNN: [(Kind, &str, Operation); 12] = [
    (Kind::Convolution, "a convolution", |left, right, _| {
        let options = ConvOptions::new([1, 2], [1, 0], [2, 1], 1);
        squares(product::conv2d(image(left), kernel(right, [57, 6]), None, options).flatten(1, 3))
    }),
    (Kind::BiasGradient, "a bias of a convolution", |left, right, bias| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        squares(product::conv2d(image(left), kernel(right, [57, 6]), Some(bias), options).flatten(1, 3))
    }),
    (Kind::Gaps, "a convolution with padded rows", |left, right, _| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        // Uploaded tensors have padded rows, those of kernels often not. Whole numbers are exact in bf16.
        let dims = [2, 6, 5, 103];
        let rows = (0..dims.iter().product()).map(|index: usize| (noise(index as u32) * 100.0).round() / 64.0);
        let rows = TensorData::new(rows.collect(), dims);
        let image = Tensor::<4>::from_data(rows, (&left.device(), left.dtype()));
        let output = product::conv2d(image.clone(), kernel(right.clone(), [57, 6]), None, options);
        // The pass that is a convolution's gradient of the input, with rows of its own.
        let options = ConvTransposeOptions::new([1, 1], [1, 1], [0, 0], [1, 1], 1);
        let transposed = product::conv_transpose2d(image, kernel(right, [6, 57]), None, options);
        squares(output.flatten(1, 3)) + squares(transposed.flatten(1, 3))
    }),
    (Kind::ChannelsLast, "a convolution with the channels last", |left, right, _| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        squares(product::conv2d(channels_last(left), kernel(right, [57, 6]), None, options).flatten(1, 3))
    }),
    (Kind::Groups, "a convolution in groups", |left, right, _| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 3);
        squares(product::conv2d(image(left), kernel(right, [57, 2]), None, options).flatten(1, 3))
    }),
    (Kind::Transposed, "a transposed convolution", |left, right, _| {
        let options = ConvTransposeOptions::new([2, 1], [1, 1], [1, 0], [1, 1], 1);
        squares(product::conv_transpose2d(image(left), kernel(right, [6, 19]), None, options).flatten(1, 3))
    }),
    (Kind::BatchNorm, "a batch norm", |left, right, vector| cubes(image(left), &right, vector)),
    (Kind::BatchNormChannelsLast, "a batch norm with the channels last", |left, right, vector| {
        cubes(channels_last(left), &right, vector)
    }),
    (Kind::GroupNorm, "a group norm", |left, right, vector| {
        let vectors = Some((vector.clone().narrow(0, 0, 6), vector.narrow(0, 6, 6)));
        cubed(product::group_norm(image(left), vectors, 3, 1e-5), &right)
    }),
    (Kind::Lstm, "an LSTM", |left, right, _| recurrence(Cell::Lstm, left, right)),
    (Kind::Gru, "a GRU", |left, right, _| recurrence(Cell::Gru, left, right)),
    (Kind::Attention, "attention", |left, right, _| attention(left, right)),
];

/// Attention with a bias, and causal attention: numbers of the left matrix as queries and keys, and of the right one as values.
fn attention(left: Tensor<2>, right: Tensor<2>) -> Tensor<1> {
    // The keys fill a tile, which versions before 9.15.1 need.
    let ([rows, inner_columns, _], [batch, queries, keys, heads, inner]) = (SIZES, [2, 40, 128, 3, 16]);
    let all = left.reshape([rows * inner_columns]);
    let of_queries = batch * queries * heads * inner;
    // Scores of random numbers differ little: queries are four times as large.
    let query = all.clone().narrow(0, 0, of_queries).reshape([batch, queries, heads, inner]) * 4.0;
    let key = all.narrow(0, of_queries, batch * keys * heads * inner).reshape([batch, keys, heads, inner]);
    let value = numbers(right.clone(), [batch, keys, heads, inner]);
    let bias = numbers(right, [batch, queries, keys]).detach();
    // In the layout of heads before rows.
    let value_of_heads = value.clone().swap_dims(1, 2).add_scalar(0.0).swap_dims(1, 2);
    let biased = product::attention(query.clone(), key.clone(), value, Some(bias), false);
    let causal = product::attention(query, key, value_of_heads, None, true);
    squares(biased.flatten(1, 3)) + squares(causal.flatten(1, 3))
}

/// A layer over short sequences: numbers of the left matrix as input and states, and of the right one as weights.
fn recurrence(cell: Cell, left: Tensor<2>, right: Tensor<2>) -> Tensor<1> {
    let ([rows, inner, _], [steps, batch, inputs, hidden]) = (SIZES, [5, 4, 6, 10]);
    let all = left.reshape([rows * inner]);
    let of_input = steps * batch * inputs;
    let input = all.clone().narrow(0, 0, of_input).reshape([steps, batch, inputs]);
    let of_states = cell.states() * batch * hidden;
    let states = all.narrow(0, of_input, of_states).reshape([cell.states(), batch, hidden]);
    // Larger weights saturate the gates.
    let weights = numbers(right, [cell.weights(inputs, hidden, true)]).mul_scalar(0.5);
    // Without gradients the library has another pass, whose result is the gradient of this one's.
    let inferred = product::recurrent(cell, input.clone().inner(), weights.clone().inner(), states.clone().inner());
    let trained = product::recurrent(cell, input, weights, states);
    (trained.cast(FloatDType::F32) * Tensor::from_inner(inferred.cast(FloatDType::F32))).mean()
}

/// The first numbers of a matrix, as a tensor of this shape.
fn numbers<const D: usize>(matrix: Tensor<2>, shape: [usize; D]) -> Tensor<D> {
    let [rows, columns] = matrix.dims();
    matrix.reshape([rows * columns]).narrow(0, 0, shape.iter().product()).reshape(shape)
}

/// Numbers of the left matrix as two images of six channels.
fn image(left: Tensor<2>) -> Tensor<4> {
    numbers(left, [2, 6, 5, 103])
}

/// As [`image`], with the channels of a position contiguous.
fn channels_last(left: Tensor<2>) -> Tensor<4> {
    numbers(left, [2, 5, 103, 6]).permute([0, 3, 1, 2])
}

/// Numbers of the right matrix as kernels of 3 by 3.
fn kernel(right: Tensor<2>, [outputs, inputs]: [usize; 2]) -> Tensor<4> {
    numbers(right, [outputs, inputs, 3, 3])
}

/// A batch norm [`cubed`], with its statistics, and those of two numbers: the library's variance is twice Burn's there.
fn cubes(image: Tensor<4>, others: &Tensor<2>, vector: Tensor<1>) -> Tensor<1> {
    let (gamma, beta) = (vector.clone().narrow(0, 0, 6), vector.narrow(0, 6, 6));
    let two = image.clone().narrow(2, 0, 1).narrow(3, 0, 1).detach();
    let of_two = product::batch_norm_train(two, gamma.clone(), beta.clone(), 1e-5);
    let norm = product::batch_norm_train(image, gamma, beta, 1e-5);
    let [statistics, of_two] = [(norm.mean, norm.variance), (of_two.mean, of_two.variance)]
        .map(|(mean, variance)| (mean.square() + variance).cast(FloatDType::F32).mean());
    cubed(norm.output, others) + statistics + of_two * 4.0
}

/// Products of a norm with other numbers, because the squares of norms have no gradients.
fn cubed(norm: Tensor<4>, others: &Tensor<2>) -> Tensor<1> {
    let dims = norm.dims();
    // Behind those numbers that are the image's, too.
    let others = others.clone().detach().reshape([SIZES[1] * SIZES[2]]).narrow(0, 30_000, dims.iter().product());
    // Larger than the norm, whose share of the gradient cancels: the rest is not its rounding in bf16.
    let others = others.reshape(dims) * 4.0;
    squares((norm + others).flatten(1, 3))
}

fn squares(tensor: Tensor<2>) -> Tensor<1> {
    tensor.cast(FloatDType::F32).square().mean()
}

/// So many whole numbers below a limit.
fn numbered(count: usize, limit: usize, device: &Device) -> Tensor<1, Int> {
    let numbers: Vec<i32> = (0..count as u32).map(|index| (7 * index % limit as u32).cast_signed()).collect();
    Tensor::from_data(TensorData::new(numbers, [count]), device)
}

/// The scalar, and the gradients of the matrices and the vector, for inputs rounded to `float` and converted to `computed`.
fn outcome(
    operation: Operation,
    device: &Device,
    float: FloatDType,
    computed: FloatDType,
    parts: Parts,
) -> Result<[Vec<f64>; 4], String> {
    let device = device.clone().inner().autodiff();
    let [rows, inner, columns] = SIZES;
    let matrix = |shape: [usize; 2]| {
        let numbers: Vec<f32> = (0..shape[0] * shape[1]).map(|index| noise(index as u32)).collect();
        let matrix = Tensor::<2>::from_data(TensorData::new(numbers, shape), (&device, DType::F32));
        matrix.cast(float).cast(computed)
    };
    let leaf = |tensor: Tensor<2>| tensor.detach().require_grad();
    let (left, right) = (leaf(matrix([rows, inner])), leaf(matrix([inner, columns])));
    let vector = matrix([1, columns]).reshape([columns]).detach().require_grad();
    let scalar = operation(left.clone(), right.clone(), vector.clone());
    let gradients = scalar.backward();
    let of = |gradient: Option<Tensor<2>>, part| gradient.map_or(Ok(Vec::new()), |gradient| host(gradient, part));
    Ok([
        host(scalar.inner(), parts[0])?,
        of(left.grad(&gradients), parts[1])?,
        of(right.grad(&gradients), parts[2])?,
        vector.grad(&gradients).map_or(Ok(Vec::new()), |gradient| host(gradient, parts[3]))?,
    ])
}

/// A number between -1 and 1, by the PCG hash: sums of products have the size of random ones, and no two layouts agree.
fn noise(index: u32) -> f32 {
    let state = index.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    ((word >> 22) ^ word) as f32 / (1_u32 << 31) as f32 - 1.0
}

fn host<const D: usize>(tensor: Tensor<D>, part: &str) -> Result<Vec<f64>, String> {
    let data = tensor.cast(FloatDType::F32).try_into_data();
    let data = data.map_err(|error| format!("fails at {part}: {}", first_cause(&error.to_string())))?;
    Ok(data.iter::<f64>().collect())
}

/// The last line before the backtrace: CubeCL's errors begin with all that was skipped.
fn first_cause(error: &str) -> &str {
    error.lines().take_while(|line| !line.starts_with("Backtrace:")).last().unwrap_or(error).trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> impl Iterator<Item = (&'static str, Operation)> {
        OPERATIONS.into_iter().chain(OF_CUDNN.map(|(_, name, operation)| (name, operation)))
    }

    /// The limit has to tell rounding from a wrong layout.
    #[test]
    fn rounded_inputs_are_within_the_limit_and_other_layouts_are_not() {
        let cpu = Device::flex();
        for (name, operation) in all() {
            let [exact, rounded] = [FloatDType::F32, FloatDType::BF16]
                .map(|float| outcome(operation, &cpu, float, FloatDType::F32, OF_PRODUCTS).expect(name));
            for (exact, rounded) in exact.iter().zip(&rounded) {
                assert!(is_rounding(difference(rounded, exact)), "{name}");
                if exact.len() > 1 {
                    let mut moved = exact.clone();
                    moved.rotate_right(1);
                    assert!(!is_rounding(difference(&moved, exact)), "{name}");
                }
            }
        }
    }

    #[test]
    fn a_variance_of_two_numbers_divided_by_one_is_beyond_the_limit() {
        let (_, name, operation) = OF_CUDNN.into_iter().find(|(kind, ..)| *kind == Kind::BatchNorm).expect("its check");
        let [scalar, ..] =
            outcome(operation, &Device::flex(), FloatDType::F32, FloatDType::F32, OF_PRODUCTS).expect(name);
        let number = |sample: u32, channel: u32| f64::from(noise(sample * 6 * 515 + channel * 515));
        let variances = (0..6).map(|channel| ((number(0, channel) - number(1, channel)) / 2.0).powi(2));
        let doubled = scalar[0] + 4.0 * variances.sum::<f64>() / 6.0;
        assert!(!is_rounding(difference(&[doubled], &scalar)));
    }

    /// Burn rounds after each step of a norm, the library only its results.
    #[test]
    fn burns_results_in_bf16_are_within_the_limit() {
        for (name, operation) in all() {
            assert_eq!(compared(&Device::flex(), operation, FloatDType::BF16, OF_PRODUCTS), Ok(()), "{name}");
        }
    }

    #[test]
    fn the_cause_of_an_error_is_the_last_line_before_the_backtrace() {
        assert_eq!(first_cause("lost"), "lost");
        assert_eq!(first_cause("lost\nCaused by:\n  failed: 4000\nBacktrace:\nnone"), "failed: 4000");
    }

    #[test]
    fn differences_are_relative_to_the_largest_value() {
        assert!((difference(&[1.0, -4.0], &[1.5, -4.0]) - 0.125).abs() < 1e-12);
        assert!(difference(&[f64::NAN, 1.0], &[1.0, 1.0]).is_nan() && !is_rounding(f64::NAN));
        assert!(!is_rounding(difference(&[1.0], &[1.0, 1.0])));
    }
}
