//! GELU by its tanh approximation, of Burn's kernels: its gradient, and outputs where the library has no algorithm.

use burn::backend::tensor::FloatTensor;
use burn::backend::{Backend, TensorMetadata};
use burn::tensor::{DType, FloatDType};

/// Factor of the cube.
const CUBIC: f64 = 0.044_715;
/// Square root of 2 / π.
const SLOPE: f64 = std::f64::consts::FRAC_2_SQRT_PI * std::f64::consts::FRAC_1_SQRT_2;

/// GELU of numbers.
pub(super) fn output<B: Backend>(input: FloatTensor<B>) -> FloatTensor<B> {
    let outside = input.dtype();
    let input = in_f32::<B>(input);
    let (tanh, _) = tanh_and_squares::<B>(input.clone());
    let doubled = B::float_mul(input, B::float_add_scalar(tanh, 1.into()));
    B::float_cast(B::float_mul_scalar(doubled, 0.5.into()), outside.into())
}

/// Gradient of the input.
pub(super) fn gradient<B: Backend>(input: FloatTensor<B>, gradient: FloatTensor<B>) -> FloatTensor<B> {
    let outside = gradient.dtype();
    let (input, gradient) = (in_f32::<B>(input), in_f32::<B>(gradient));
    let (tanh, squares) = tanh_and_squares::<B>(input.clone());
    // Twice the derivative: 1 + tanh + x · (1 - tanh²) · SLOPE · (1 + 3 · CUBIC · x²)
    let of_tanh = B::float_add_scalar(B::float_neg(B::float_mul(tanh.clone(), tanh.clone())), 1.into());
    let of_inner = B::float_mul_scalar(squares, (3.0 * CUBIC * SLOPE).into());
    let of_inner = B::float_mul(input, B::float_add_scalar(of_inner, SLOPE.into()));
    let doubled = B::float_add(B::float_add_scalar(tanh, 1.into()), B::float_mul(of_tanh, of_inner));
    let doubled = B::float_mul(gradient, doubled);
    B::float_cast(B::float_mul_scalar(doubled, 0.5.into()), outside.into())
}

/// tanh(SLOPE · (x + CUBIC · x³)), and x².
fn tanh_and_squares<B: Backend>(input: FloatTensor<B>) -> (FloatTensor<B>, FloatTensor<B>) {
    let squares = B::float_mul(input.clone(), input.clone());
    let slope = B::float_add_scalar(B::float_mul_scalar(squares.clone(), (CUBIC * SLOPE).into()), SLOPE.into());
    (B::float_tanh(B::float_mul(input, slope)), squares)
}

/// 16-bit numbers would be rounded after each operation.
fn in_f32<B: Backend>(tensor: FloatTensor<B>) -> FloatTensor<B> {
    if tensor.dtype() == DType::F32 { tensor } else { B::float_cast(tensor, FloatDType::F32) }
}

#[cfg(test)]
mod tests {
    use burn::backend::Dispatch;
    use burn::tensor::{Device, Distribution, Tensor, Tolerance, activation};

    use super::*;

    #[test]
    fn gelu_and_its_gradient_are_burns() {
        let device = Device::flex();
        device.seed(3);
        let [x, factor] =
            [Distribution::Uniform(-6.0, 6.0), Distribution::Default].map(|of| Tensor::<1>::random([500], of, &device));
        let input = Tensor::from_inner(x.clone()).require_grad();
        let expected = activation::gelu_approximate(input.clone());
        let gradients = (expected.clone() * Tensor::from_inner(factor.clone())).sum().backward();
        let of_input = input.grad(&gradients).expect("it is required");
        let output = output::<Dispatch>(x.clone().into_dispatch());
        let gradient = gradient::<Dispatch>(x.into_dispatch(), factor.into_dispatch());
        for (found, expected) in [(output, expected.inner()), (gradient, of_input)] {
            let found = Tensor::<1>::from_dispatch(found).into_data();
            found.assert_approx_eq::<f32>(&expected.into_data(), Tolerance::rel_abs(1e-4, 1e-5));
        }
    }
}
