use burn::module::Module;
use burn::nn::{Lstm, LstmConfig, LstmState};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Distribution, Tensor};

use super::joint_lstm;
use crate::shape::visit_floats;

const SAMPLES: usize = 3;
const STEPS: usize = 5;
const INPUTS: usize = 4;
const HIDDEN: usize = 6;

type Forward = fn(&Lstm, Tensor<3>, Option<LstmState<2>>) -> (Tensor<3>, LstmState<2>);

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Inputs of a layer, drawn once, because tests in other threads draw from the same random numbers.
struct Inputs {
    input: Tensor<3>,
    first: Option<[Tensor<2>; 2]>,
    /// Factor of each output in the loss.
    factors: Tensor<3>,
}

impl Inputs {
    fn new(layer: &Lstm, with_state: bool) -> Self {
        let device = Device::flex().autodiff();
        let random = |shape: [usize; 3]| Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), &device);
        let state = |deviation: f32| (random([1, SAMPLES, HIDDEN]) * deviation).squeeze_dim::<2>(0);
        let [outer, inner] = if layer.batch_first { [SAMPLES, STEPS] } else { [STEPS, SAMPLES] };
        Self {
            input: random([outer, inner, INPUTS]),
            first: with_state.then(|| [state(2.0), state(1.0)]),
            factors: random([outer, inner, HIDDEN]),
        }
    }
}

/// Outputs, last state, and gradients of the input, the first state and all parameters.
fn results(layer: &Lstm, forward: Forward, inputs: &Inputs) -> Vec<Vec<f32>> {
    let input = inputs.input.clone().detach().require_grad();
    let first = inputs.first.clone().map(|first| {
        let [cell, hidden] = first.map(|tensor| tensor.detach().require_grad());
        LstmState::new(cell, hidden)
    });
    let (output, last) = forward(layer, input.clone(), first.clone());
    let loss =
        (output.clone() * inputs.factors.clone()).sum() + last.cell.clone().square().sum() + last.hidden.clone().sum();
    let gradients = loss.backward();
    let mut found = vec![numbers(output), numbers(last.cell), numbers(last.hidden)];
    found.push(numbers(input.grad(&gradients).unwrap()));
    for tensor in first.into_iter().flat_map(|state| [state.cell, state.hidden]) {
        found.push(numbers(tensor.grad(&gradients).unwrap()));
    }
    let of_parameters = GradientsParams::from_grads(gradients, layer);
    let state = (found, &of_parameters);
    let (found, _) = visit_floats!(layer, (found, gradients) = state, (Vec<Vec<f32>>, &'v GradientsParams), |param| {
        found.push(numbers(gradients.get::<D>(param.id).expect("each parameter has a gradient")));
    });
    found
}

#[test]
fn results_and_gradients_are_those_of_burns_lstm() {
    let config = LstmConfig::new(INPUTS, HIDDEN, true);
    let configs = [
        config.clone(),
        LstmConfig::new(INPUTS, HIDDEN, false),
        config.clone().with_batch_first(false),
        config.clone().with_reverse(true),
        config.clone().with_clip(Some(0.5)),
        config.with_input_forget(true),
    ];
    let device = Device::flex().autodiff();
    for config in configs {
        let layer = config.init(&device);
        for with_state in [false, true] {
            let inputs = Inputs::new(&layer, with_state);
            let right = results(&layer, Lstm::forward, &inputs);
            let found = results(&layer, joint_lstm, &inputs);
            assert_eq!(found.len(), right.len());
            for (found, right) in found.iter().flatten().zip(right.iter().flatten()) {
                assert!((found - right).abs() < 1e-5, "{found} instead of {right}: {config:?}, {with_state}");
            }
        }
    }
}
