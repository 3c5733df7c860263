use burn::module::Module;
use burn::nn::{Lstm, LstmConfig, LstmState};
use burn::optim::GradientsParams;
use burn::tensor::{Device, Distribution, Tensor};

use super::joint_lstm;
use crate::visit::visit_floats;

const SAMPLES: usize = 3;
const STEPS: usize = 5;
const INPUTS: usize = 4;
const HIDDEN: usize = 6;

type Forward = fn(&Lstm, Tensor<3>, Option<LstmState<2>>) -> (Tensor<3>, LstmState<2>);

fn numbers<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Outputs, last state, and gradients of the input, the first state and all parameters.
fn results(layer: &Lstm, forward: Forward, with_state: bool) -> Vec<Vec<f32>> {
    let device = &layer.devices()[0];
    let random = |shape: [usize; 3]| Tensor::<3>::random(shape, Distribution::Normal(0.0, 1.0), device);
    device.seed(7);
    let shape = if layer.batch_first { [SAMPLES, STEPS, INPUTS] } else { [STEPS, SAMPLES, INPUTS] };
    let input = random(shape).require_grad();
    let state = |deviation: f32| (random([1, SAMPLES, HIDDEN]) * deviation).squeeze_dim::<2>(0).detach().require_grad();
    let first = with_state.then(|| LstmState::new(state(2.0), state(1.0)));
    // Every output counts with another factor. Drawn before the parameters, which Burn draws at their first use.
    let factors = random([shape[0], shape[1], HIDDEN]);
    let (output, last) = forward(layer, input.clone(), first.clone());
    let loss = (output.clone() * factors).sum() + last.cell.clone().square().sum() + last.hidden.clone().sum();
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
    device.seed(5);
    for config in configs {
        let layer = config.init(&device);
        for with_state in [false, true] {
            let right = results(&layer, Lstm::forward, with_state);
            let found = results(&layer, joint_lstm, with_state);
            assert_eq!(found.len(), right.len());
            for (found, right) in found.iter().flatten().zip(right.iter().flatten()) {
                assert!((found - right).abs() < 1e-5, "{found} instead of {right}: {config:?}, {with_state}");
            }
        }
    }
}
