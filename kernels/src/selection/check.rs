//! Small operations by the library, compared with Burn's on the CPU at the start of a program.

use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};

use crate::product;

/// Rows, inner numbers and columns: sums and columns that end within a vector of tensor cores.
const SIZES: [usize; 3] = [24, 1030, 57];
/// Largest difference, relative to the largest value: what bf16 rounds.
const LARGEST: f64 = 2e-2;

type Fault = (&'static str, String);

/// Runs one operation of each kind in f32 and bf16, with their gradients.
pub(super) fn all(device: &Device) -> Result<(), Fault> {
    compared(device, &OPERATIONS)
}

/// Runs convolutions and batch norms in f32 and bf16, with their gradients.
pub(super) fn cudnn(device: &Device) -> Result<(), Fault> {
    compared(device, &OF_CUDNN)
}

fn compared(device: &Device, operations: &[(&'static str, Operation)]) -> Result<(), Fault> {
    for float in [FloatDType::F32, FloatDType::BF16] {
        for (name, operation) in operations {
            let outcome =
                |device, computed| outcome(*operation, device, float, computed).map_err(|fault| (*name, fault));
            let found = outcome(device, float)?;
            let expected = outcome(&Device::flex(), FloatDType::F32)?;
            if !found.iter().zip(&expected).all(|(found, expected)| agree(found, expected)) {
                return Err((*name, "has another result than by Burn's kernels".into()));
            }
        }
    }
    Ok(())
}

/// Returns `true` if all numbers agree up to rounding; NaN agrees with none.
fn agree(found: &[f64], expected: &[f64]) -> bool {
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
    let close = |(found, expected): (&f64, &f64)| (found - expected).abs() <= LARGEST * largest;
    found.len() == expected.len() && found.iter().zip(expected).all(close)
}

/// A scalar of two matrices and a vector.
type Operation = fn(Tensor<2>, Tensor<2>, Tensor<1>) -> Tensor<1>;

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

const OF_CUDNN: [(&str, Operation); 6] = [
    ("a convolution", |left, right, bias| {
        let options = ConvOptions::new([1, 2], [1, 0], [2, 1], 1);
        let output = product::conv2d(image(left), kernel(right, [57, 6]), Some(bias), options);
        squares(output.flatten(1, 3))
    }),
    ("a convolution with the channels last", |left, right, bias| {
        let image = left.narrow(0, 0, 6).reshape([2, 5, 103, 6]).permute([0, 3, 1, 2]);
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        squares(product::conv2d(image, kernel(right, [57, 6]), Some(bias), options).flatten(1, 3))
    }),
    ("a convolution in groups", |left, right, bias| {
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 3);
        squares(product::conv2d(image(left), kernel(right, [57, 2]), Some(bias), options).flatten(1, 3))
    }),
    ("a transposed convolution", |left, right, _| {
        let options = ConvTransposeOptions::new([2, 1], [1, 1], [1, 0], [1, 1], 1);
        squares(product::conv_transpose2d(image(left), kernel(right, [6, 19]), None, options).flatten(1, 3))
    }),
    ("a batch norm", |left, right, vector| cubes(image(left), &right, vector)),
    ("a batch norm with the channels last", |left, right, vector| {
        cubes(left.narrow(0, 0, 6).reshape([2, 5, 103, 6]).permute([0, 3, 1, 2]), &right, vector)
    }),
];

/// Rows of the left matrix as two images of six channels.
fn image(left: Tensor<2>) -> Tensor<4> {
    left.narrow(0, 0, 6).reshape([2, 6, 5, 103])
}

/// Numbers of the right matrix as kernels of 3 by 3.
fn kernel(right: Tensor<2>, [outputs, inputs]: [usize; 2]) -> Tensor<4> {
    let [_, inner, columns] = SIZES;
    right.reshape([inner * columns]).narrow(0, 0, outputs * inputs * 9).reshape([outputs, inputs, 3, 3])
}

/// Products of a norm with other numbers, because the squares of norms have no gradients, with its statistics.
fn cubes(image: Tensor<4>, others: &Tensor<2>, vector: Tensor<1>) -> Tensor<1> {
    let dims = image.dims();
    // Behind those numbers that are the image's, too.
    let others = others.clone().detach().reshape([SIZES[1] * SIZES[2]]).narrow(0, 30_000, dims.iter().product());
    // Larger than the norm, whose share of the gradient cancels: the rest is not its rounding in bf16.
    let others = others.reshape(dims) * 4.0;
    let gamma = vector.clone().narrow(0, 0, 6);
    let norm = product::batch_norm_train(image, gamma, vector.narrow(0, 6, 6), 1e-5);
    let statistics = (norm.mean.square() + norm.variance).cast(FloatDType::F32).mean();
    squares((norm.output + others).flatten(1, 3)) + statistics
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
    let of = |gradient: Option<Tensor<2>>| gradient.map_or(Ok(Vec::new()), host);
    Ok([
        host(scalar.inner())?,
        of(left.grad(&gradients))?,
        of(right.grad(&gradients))?,
        vector.grad(&gradients).map_or(Ok(Vec::new()), host)?,
    ])
}

/// A number between -1 and 1, by the PCG hash: sums of products have the size of random ones, and no two layouts agree.
fn noise(index: u32) -> f32 {
    let state = index.wrapping_mul(747_796_405).wrapping_add(2_891_336_453);
    let word = ((state >> ((state >> 28) + 4)) ^ state).wrapping_mul(277_803_737);
    ((word >> 22) ^ word) as f32 / (1_u32 << 31) as f32 - 1.0
}

fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f64>, String> {
    let data = tensor.cast(FloatDType::F32).try_into_data().map_err(|error| format!("failed: {error}"))?;
    Ok(data.iter::<f64>().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The limit has to tell rounding from a wrong layout.
    #[test]
    fn rounded_inputs_are_within_the_limit_and_other_layouts_are_not() {
        let cpu = Device::flex();
        for (name, operation) in OPERATIONS.into_iter().chain(OF_CUDNN) {
            let exact = outcome(operation, &cpu, FloatDType::F32, FloatDType::F32).expect(name);
            let rounded = outcome(operation, &cpu, FloatDType::BF16, FloatDType::F32).expect(name);
            for (exact, rounded) in exact.iter().zip(&rounded) {
                assert!(agree(rounded, exact), "{name}");
                if exact.len() > 1 {
                    let mut moved = exact.clone();
                    moved.rotate_right(1);
                    assert!(!agree(&moved, exact), "{name}");
                }
            }
        }
    }

    /// Burn rounds after each step of a norm, the library only its results.
    #[test]
    fn burns_results_in_bf16_are_within_the_limit() {
        for (name, operation) in OPERATIONS.into_iter().chain(OF_CUDNN) {
            let [found, expected] = [FloatDType::BF16, FloatDType::F32]
                .map(|computed| outcome(operation, &Device::flex(), FloatDType::BF16, computed).expect(name));
            assert!(found.iter().zip(&expected).all(|(found, expected)| agree(found, expected)), "{name}");
        }
    }
}
