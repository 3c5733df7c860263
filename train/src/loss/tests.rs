use burn::nn::loss::CrossEntropyLossConfig;
use burn::tensor::{DType, Device, FloatDType, Int, Tensor, TensorData};
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{ChunkedCrossEntropy, chunked_cross_entropy};
use crate::mixed::in_f32;

const ROWS: usize = 23;
const WIDTH: usize = 12;
const VOCABULARY: usize = 57;
/// Factor that multiplies the loss, such as a loss scale.
const FACTOR: f64 = 8.0;

/// Inputs of the loss, in f64 and without autodiff.
struct Inputs {
    hidden: Tensor<2>,
    weight: Tensor<2>,
    bias: Option<Tensor<1>>,
    targets: Tensor<1, Int>,
}

/// The loss, and gradients with respect to hidden values, weights and bias.
struct Outcome {
    loss: f64,
    gradients: Vec<Vec<f64>>,
}

impl Inputs {
    fn new() -> Self {
        Self::drawn(33)
    }

    fn drawn(seed: u64) -> Self {
        let device = &Device::flex();
        // Burn's generator is shared with tests in other threads.
        let mut generator = StdRng::seed_from_u64(seed);
        let targets: Vec<u64> = (0..ROWS).map(|_| generator.random_range(0..VOCABULARY) as u64).collect();
        let mut uniform = |[rows, columns]: [usize; 2]| {
            let values: Vec<f64> = (0..rows * columns).map(|_| generator.random_range(-1.7..1.7)).collect();
            Tensor::from_data(TensorData::new(values, [rows, columns]), (device, DType::F64))
        };
        Self {
            hidden: uniform([ROWS, WIDTH]),
            weight: uniform([WIDTH, VOCABULARY]),
            bias: Some(uniform([1, VOCABULARY]).squeeze_dim(0)),
            targets: Tensor::from_data(TensorData::new(targets, [ROWS]), device),
        }
    }

    /// The inputs rounded to a type.
    fn rounded(&self, float: FloatDType) -> Self {
        Self {
            hidden: self.hidden.clone().cast(float),
            weight: self.weight.clone().cast(float),
            bias: self.bias.clone().map(|bias| bias.cast(float)),
            targets: self.targets.clone(),
        }
    }

    fn outcome(&self, loss: impl FnOnce(Self) -> Tensor<1>) -> Outcome {
        let hidden = self.hidden.clone().autodiff().require_grad();
        let weight = self.weight.clone().autodiff().require_grad();
        let bias = self.bias.clone().map(|bias| bias.autodiff().require_grad());
        let (for_loss, targets) = (bias.clone(), self.targets.clone().autodiff());
        let loss = loss(Self { hidden: hidden.clone(), weight: weight.clone(), bias: for_loss, targets });
        let gradients = (loss.clone() * FACTOR).backward();
        let found = [hidden.grad(&gradients), weight.grad(&gradients)].map(|gradient| numbers(gradient.unwrap()));
        let to_bias = bias.map(|bias| numbers(bias.grad(&gradients).unwrap()));
        Outcome { loss: numbers(loss)[0], gradients: found.into_iter().chain(to_bias).collect() }
    }

    fn in_chunks(&self, chunk: usize, pad_tokens: &[i64]) -> Outcome {
        let loss = ChunkedCrossEntropy::new(chunk).with_pad_tokens(pad_tokens.to_vec());
        self.outcome(|Self { hidden, weight, bias, targets }| {
            loss.forward(hidden, weight, bias, targets).into_parts().0
        })
    }

    fn burns(&self, pad_tokens: &[i64]) -> Outcome {
        let pad_tokens = (!pad_tokens.is_empty()).then(|| pad_tokens.iter().map(|&token| token as usize).collect());
        self.outcome(|Self { hidden, weight, bias, targets }| {
            let product = hidden.matmul(weight);
            let logits = match bias {
                Some(bias) => product + bias.unsqueeze(),
                None => product,
            };
            let loss = CrossEntropyLossConfig::new().with_pad_tokens(pad_tokens).init(&logits.device());
            loss.forward(in_f32(logits), targets)
        })
    }
}

impl Outcome {
    /// The largest distance from `right`: of the loss, and of each gradient relative to its largest number.
    fn distance(&self, right: &Self) -> f64 {
        assert_eq!(self.gradients.len(), right.gradients.len());
        let of_gradient = |(found, right): (&Vec<f64>, &Vec<f64>)| {
            assert_eq!(found.len(), right.len());
            let largest = right.iter().fold(0.0, |largest: f64, value| largest.max(value.abs()));
            let differences = found.iter().zip(right).map(|(found, right)| (found - right).abs());
            differences.fold(0.0, nan_or_max) / largest
        };
        let gradients = self.gradients.iter().zip(&right.gradients).map(of_gradient);
        gradients.fold((self.loss - right.loss).abs(), nan_or_max)
    }
}

fn nan_or_max(a: f64, b: f64) -> f64 {
    if a.is_nan() || b.is_nan() { f64::NAN } else { a.max(b) }
}

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f64> {
    tensor.into_data().iter::<f64>().collect()
}

#[test]
fn chunks_give_the_loss_and_gradients_of_all_rows_at_once() {
    let inputs = Inputs::new();
    for pad_tokens in [&[][..], &[numbers(inputs.targets.clone().float())[3] as i64, 5]] {
        let right = inputs.burns(pad_tokens);
        for chunk in [0, 1, 4, ROWS - 1, ROWS, 100] {
            assert!(inputs.in_chunks(chunk, pad_tokens).distance(&right) < 1e-12, "{chunk}, {pad_tokens:?}");
        }
    }
    let inputs = Inputs { bias: None, ..inputs };
    assert!(inputs.in_chunks(4, &[]).distance(&inputs.burns(&[])) < 1e-12);
}

/// In 1,000 draws the largest errors were 1.4e-6, 2.6e-3 and 2.4e-2, and those of Burn's loss 1.7e-6, 2.6e-3 and 2.4e-2.
#[test]
fn each_type_is_as_close_to_f64_as_all_rows_at_once() {
    for (float, bound) in [(FloatDType::F32, 2e-6), (FloatDType::F16, 4e-3), (FloatDType::BF16, 3e-2)] {
        let (mut furthest, mut burns) = (0.0, 0.0);
        for seed in 0..20 {
            let rounded = Inputs::drawn(seed).rounded(float);
            let right = rounded.rounded(FloatDType::F64).burns(&[]);
            furthest = nan_or_max(furthest, rounded.in_chunks(4, &[]).distance(&right));
            burns = nan_or_max(burns, rounded.burns(&[]).distance(&right));
        }
        assert!(furthest < bound && furthest < 1.5 * burns, "{float:?}: {furthest}, Burn's loss {burns}");
    }
}

#[test]
fn the_loss_of_16_bit_inputs_is_f32() {
    let Inputs { hidden, weight, bias, targets } = Inputs::new().rounded(FloatDType::F16);
    assert_eq!(chunked_cross_entropy(hidden, weight, bias, targets, 4).dtype(), DType::F32);
}

#[test]
fn the_sum_of_many_rows_does_not_overflow_f16() {
    let device = &Device::flex();
    let (rows, value) = (512, 512.0);
    let inputs = Inputs {
        hidden: Tensor::full([rows, 1], value, (device, DType::F16)),
        weight: Tensor::zeros([1, 2], (device, DType::F16)),
        bias: None,
        targets: Tensor::zeros([rows], device),
    };
    let found = inputs.in_chunks(rows, &[]);
    // Half of the probability is for the other class. The sum over rows is 131072, above the largest f16.
    assert_eq!(found.gradients[1], [-value / 2.0 * FACTOR, value / 2.0 * FACTOR]);
}

#[test]
fn gradients_below_f16_pass_with_a_loss_scale() {
    let device = &Device::flex();
    let rows = 1_u16 << 12;
    let inputs = Inputs {
        hidden: Tensor::zeros([usize::from(rows), 1], (device, DType::F16)),
        weight: Tensor::from_data([[0.0, 1e-3]], (device, DType::F16)),
        bias: None,
        targets: Tensor::zeros([usize::from(rows)], device),
    };
    // 1.2e-7 a row before the factor: twice the smallest f16.
    let found = inputs.in_chunks(64, &[]).gradients[0][0];
    let right = 0.5e-3 / f64::from(rows) * FACTOR;
    assert!((found / right - 1.0).abs() < 0.05, "{found}, {right}");
}

#[test]
fn a_tied_head_adds_to_the_gradient_of_the_embedding() {
    let Inputs { hidden, weight, targets, .. } = Inputs::new();
    let embedding = weight.transpose().autodiff().require_grad();
    let targets = targets.autodiff();
    let gradient = |loss: &dyn Fn(Tensor<2>, Tensor<2>, Tensor<1, Int>) -> Tensor<1>| {
        let hidden = hidden.clone().autodiff() + embedding.clone().slice_dim(0, 0..1);
        let loss = loss(hidden, embedding.clone().transpose(), targets.clone());
        numbers(embedding.grad(&loss.backward()).unwrap())
    };
    let found = gradient(&|hidden, weight, targets| chunked_cross_entropy(hidden, weight, None, targets, 5));
    let right = gradient(&|hidden, weight, targets| {
        let logits = hidden.matmul(weight);
        CrossEntropyLossConfig::new().init(&logits.device()).forward(logits, targets)
    });
    assert!(found.iter().zip(&right).all(|(found, right)| (found - right).abs() < 1e-12));
}

#[test]
fn weights_without_autodiff_are_constants() {
    let Inputs { hidden, weight, bias, targets } = Inputs::new();
    let value = numbers(chunked_cross_entropy(hidden.clone(), weight.clone(), bias.clone(), targets.clone(), 5));
    let hidden = hidden.autodiff().require_grad();
    let loss = chunked_cross_entropy(hidden.clone(), weight, bias, targets, 5);
    assert_eq!(numbers(loss.clone()), value);
    assert!(hidden.grad(&loss.backward()).is_some());
}

#[test]
fn padding_may_be_outside_of_the_vocabulary() {
    let mut inputs = Inputs::new();
    inputs.targets = inputs.targets.slice_fill(2..5, 0);
    let right = inputs.burns(&[0]);
    inputs.targets = inputs.targets.clone().mask_fill(inputs.targets.equal_scalar(0), -100);
    assert!(inputs.in_chunks(4, &[-100]).distance(&right) < 1e-12);
}

#[test]
fn a_batch_of_padding_has_no_mean() {
    let mut inputs = Inputs::new();
    inputs.targets = inputs.targets.zeros_like();
    assert!(inputs.in_chunks(4, &[0]).loss.is_nan());
    assert!(inputs.burns(&[0]).loss.is_nan());
}

#[test]
#[should_panic(expected = "skip empty batches")]
fn a_batch_without_rows_panics_with_the_reason() {
    let inputs = Inputs::new();
    let rows =
        Inputs { hidden: inputs.hidden.slice_dim(0, 0..0), targets: inputs.targets.slice_dim(0, 0..0), ..inputs };
    chunked_cross_entropy(rows.hidden, rows.weight, rows.bias, rows.targets, 4);
}

/// One class has no gradient, and the loss is zero.
#[test]
fn a_vocabulary_of_one_and_a_last_chunk_of_one_row_are_those_of_burn() {
    let inputs = Inputs::new();
    let one = Inputs {
        weight: inputs.weight.slice_dim(1, 0..1),
        bias: inputs.bias.map(|bias| bias.slice_dim(0, 0..1)),
        targets: inputs.targets.zeros_like(),
        ..inputs
    };
    let found = one.in_chunks(ROWS - 1, &[]);
    assert!(found.loss.abs() < 1e-6, "{}", found.loss);
    assert!(found.gradients.iter().flatten().all(|value| *value == 0.0));
}

#[cfg(feature = "counting-allocator")]
mod memory {
    use super::*;
    use crate::allocation::{live_bytes, peak_bytes, restart_peak};

    /// Bytes that a step takes at most.
    fn peak(step: impl FnOnce() -> Outcome) -> usize {
        let before = live_bytes();
        restart_peak();
        step();
        peak_bytes() - before
    }

    #[test]
    fn memory_grows_with_the_chunk_not_with_the_rows() {
        own_process::alone(memory_grows_with_the_chunk_not_with_the_rows, || {
            let device = &Device::flex();
            let (rows, chunk, width, vocabulary) = (512, 64, 16, 4096);
            let inputs = Inputs {
                hidden: Tensor::ones([rows, width], (device, DType::F32)),
                weight: Tensor::ones([width, vocabulary], (device, DType::F32)),
                bias: None,
                targets: Tensor::zeros([rows], device),
            };
            let logits = |rows| 4 * rows * vocabulary;
            let all = peak(|| inputs.burns(&[]));
            let chunked = peak(|| inputs.in_chunks(chunk, &[]));
            // The second part: gradients of the weights, their sum, and copies in f64 for the outcome.
            assert!(all > 2 * logits(rows), "{all} bytes");
            assert!(chunked < 4 * logits(chunk) + 8 * 4 * width * vocabulary, "{chunked} bytes, {all} at once");
        });
    }
}

#[test]
fn an_input_alone_can_have_a_gradient() {
    let inputs = Inputs::new();
    let all = inputs.outcome(|it| chunked_cross_entropy(it.hidden, it.weight, it.bias, it.targets, 4)).gradients;
    let Inputs { hidden, weight, bias, targets } = inputs;
    let head = weight.clone().autodiff().require_grad();
    let loss = chunked_cross_entropy(hidden.clone(), head.clone(), bias.clone(), targets.clone(), 4) * FACTOR;
    assert_eq!(head.grad(&loss.backward()).map(numbers).as_ref(), all.get(1));
    let tracked = bias.expect("it has one").autodiff().require_grad();
    let loss = chunked_cross_entropy(hidden, weight, Some(tracked.clone()), targets, 4) * FACTOR;
    assert_eq!(tracked.grad(&loss.backward()).map(numbers).as_ref(), all.get(2));
}
