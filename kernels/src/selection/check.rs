//! Small operations by the library, compared with Burn's at the start of a program.

use burn::tensor::{DType, Device, FloatDType, Int, Tensor};

use super::{Kernels, SELECTED, selected};
use crate::product;

/// Rows, inner numbers and columns: none is a power of two.
const SIZES: [u32; 3] = [24, 40, 56];
/// Largest difference, relative to the largest value: what bf16 rounds.
const LARGEST: f64 = 2e-2;

type Fault = (&'static str, String);

/// Runs one operation of each kind in f32 and bf16, with their gradients.
pub(super) fn all(device: &Device) -> Result<(), Fault> {
    for float in [FloatDType::F32, FloatDType::BF16] {
        for (name, operation) in OPERATIONS {
            let found = outcome(operation, device, float).map_err(|fault| (name, fault))?;
            let expected = by_burn(|| outcome(operation, device, float)).map_err(|fault| (name, fault))?;
            let largest = expected.iter().copied().fold(f64::MIN_POSITIVE, |largest, value| largest.max(value.abs()));
            // False for NaN.
            let agree = |(found, expected): (&f64, &f64)| (found - expected).abs() <= LARGEST * largest;
            if found.len() != expected.len() || !found.iter().zip(&expected).all(agree) {
                return Err((name, "has another result than by Burn's kernels".into()));
            }
        }
    }
    Ok(())
}

/// Runs `work` with Burn's kernels.
fn by_burn<T>(work: impl FnOnce() -> T) -> T {
    let before = SELECTED.swap(0, std::sync::atomic::Ordering::Relaxed);
    debug_assert_eq!(selected(), Kernels::Burn);
    let done = work();
    SELECTED.store(before, std::sync::atomic::Ordering::Relaxed);
    done
}

/// A scalar of two matrices and a vector.
type Operation = fn(Tensor<2>, Tensor<2>, Tensor<1>) -> Tensor<1>;

const OPERATIONS: [(&str, Operation); 5] = [
    ("a product", |left, right, _| squares(product::matmul(left, right))),
    ("a linear layer", |left, right, bias| squares(product::linear(left, right, Some(bias)))),
    ("a layer norm", |_, rows, vector| squares(product::layer_norm(rows, vector.clone(), vector, 1e-5))),
    ("an embedding", |_, table, _| {
        let tokens = Tensor::<1, Int>::arange(0..8, &table.device()).reshape([2, 4]);
        product::embedding(table, tokens).sum()
    }),
    ("a loss", |_, logits, _| {
        let targets = Tensor::<1, Int>::arange(0..i64::from(SIZES[1]), &logits.device());
        product::target_log_probs(logits, targets).sum()
    }),
];

fn squares(tensor: Tensor<2>) -> Tensor<1> {
    tensor.clone().mul(tensor).mean()
}

/// The scalar and its gradients.
fn outcome(operation: Operation, device: &Device, float: FloatDType) -> Result<Vec<f64>, String> {
    let device = device.clone().inner().autodiff();
    let [rows, inner, columns] = SIZES;
    let matrix = |shape: [u32; 2]| {
        let numbers =
            Tensor::<1, Int>::arange(0..i64::from(shape[0] * shape[1]), &device).float().cast(FloatDType::F32);
        ((numbers * 0.7).sin()).reshape(shape.map(|size| size as usize)).cast(float).detach().require_grad()
    };
    let (left, right) = (matrix([rows, inner]), matrix([inner, columns]));
    let vector = matrix([1, columns]).reshape([columns as usize]).detach().require_grad();
    let scalar = operation(left.clone(), right.clone(), vector.clone());
    let gradients = scalar.backward();
    let mut outcome = host(scalar.inner())?;
    outcome.extend(left.grad(&gradients).map(host).transpose()?.into_iter().flatten());
    outcome.extend(right.grad(&gradients).map(host).transpose()?.into_iter().flatten());
    outcome.extend(vector.grad(&gradients).map(host).transpose()?.into_iter().flatten());
    Ok(outcome)
}

fn host<const D: usize>(tensor: Tensor<D>) -> Result<Vec<f64>, String> {
    let tensor = if tensor.dtype() == DType::F32 { tensor } else { tensor.cast(FloatDType::F32) };
    let data = tensor.try_into_data().map_err(|error| format!("failed: {error}"))?;
    Ok(data.iter::<f64>().collect())
}
