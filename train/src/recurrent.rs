//! Burn's LSTM with one matrix product a time step.
//!
//! Burn's `Lstm::forward` multiplies input and state by a matrix for each of four gates: eight products a time step, and
//! sixteen backward. On an H100 a product of 128 samples by a matrix of 256 x 256 takes about 15 us, for 0.03 us of
//! arithmetic at the peak rate.

use burn::module::Param;
use burn::nn::{GateController, Linear, Lstm, LstmState};
use burn::tensor::Tensor;

/// [`Lstm::forward`] with all gates in one matrix product a time step.
///
/// Shapes, state and results are those of `Lstm::forward`; sums have other rounding. The layer and its records stay as they are.
/// The call joins the layer's matrices, which takes memory for a copy of its parameters until the backward pass.
///
/// ```
/// # extern crate gpu_tuned_train as gpu_tuned;
/// use burn::nn::LstmConfig;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned::recurrent::joint_lstm;
///
/// let device = Device::flex();
/// let layer = LstmConfig::new(4, 8, true).init(&device);
/// let input = Tensor::<3>::ones([2, 5, 4], &device); // [samples, steps, inputs]
/// let (output, state) = joint_lstm(&layer, input, None); // was: layer.forward(input, None)
/// # assert_eq!((output.dims(), state.hidden.dims()), ([2, 5, 8], [2, 8]));
/// ```
#[expect(clippy::needless_pass_by_value, reason = "the signature is that of Burn's `Lstm::forward`")]
pub fn joint_lstm(layer: &Lstm, input: Tensor<3>, state: Option<LstmState<2>>) -> (Tensor<3>, LstmState<2>) {
    let time = usize::from(layer.batch_first);
    let (samples, steps) = (input.dims()[1 - time], input.dims()[time]);
    let initial = || Tensor::zeros([samples, layer.d_hidden], (&input.device(), input.dtype()));
    let LstmState { mut cell, mut hidden } = state.unwrap_or_else(|| LstmState::new(initial(), initial()));
    let gates = JointGates::new(layer);
    let mut outputs = Vec::with_capacity(steps);
    for step in 0..steps {
        let step = if layer.reverse { steps - 1 - step } else { step };
        let now = input.clone().slice_dim(time, step..=step).squeeze_dim(time);
        let mut values = gates.forward(now, hidden).into_iter();
        let mut next = || values.next().expect("BUG: there is a value for each gate");
        let admitted = layer.gate_activation.forward(next());
        let shown = layer.gate_activation.forward(next());
        let candidate = layer.cell_activation.forward(next());
        let kept = match layer.forget_gate {
            Some(_) => layer.gate_activation.forward(next()),
            None => 1.0 - admitted.clone(),
        };
        cell = kept * cell + admitted * candidate;
        if let Some(clip) = layer.clip {
            cell = cell.clamp(-clip, clip);
        }
        hidden = shown * layer.hidden_activation.forward(cell.clone());
        outputs.push(hidden.clone());
    }
    if layer.reverse {
        outputs.reverse();
    }
    (Tensor::stack(outputs, time), LstmState::new(cell, hidden))
}

/// Parameters of all gates, side by side.
struct JointGates {
    /// `[inputs + hidden, gates * hidden]`
    weight: Tensor<2>,
    /// `[1, gates * hidden]`
    bias: Option<Tensor<2>>,
    count: usize,
}

impl JointGates {
    /// Joins the input gate, the output gate, the cell gate and, if there is one, the forget gate.
    fn new(layer: &Lstm) -> Self {
        let gates = [&layer.input_gate, &layer.output_gate, &layer.cell_gate];
        let gates: Vec<&GateController> = gates.into_iter().chain(&layer.forget_gate).collect();
        let weight = |gate: &&GateController| {
            Tensor::cat(vec![gate.input_transform.weight.val(), gate.hidden_transform.weight.val()], 0)
        };
        let bias = |linear: &Linear| linear.bias.as_ref().map(Param::val);
        let bias = |gate: &&GateController| match (bias(&gate.input_transform), bias(&gate.hidden_transform)) {
            (Some(input), Some(hidden)) => Some(input + hidden),
            (input, hidden) => input.or(hidden),
        };
        let biases: Option<Vec<_>> = gates.iter().map(bias).collect();
        Self {
            weight: Tensor::cat(gates.iter().map(weight).collect(), 1),
            bias: biases.map(|biases| Tensor::cat(biases, 0).unsqueeze()),
            count: gates.len(),
        }
    }

    /// The values of the gates before their activations.
    fn forward(&self, input: Tensor<2>, hidden: Tensor<2>) -> Vec<Tensor<2>> {
        let mut values = Tensor::cat(vec![input, hidden], 1).matmul(self.weight.clone());
        if let Some(bias) = &self.bias {
            values = values + bias.clone();
        }
        values.chunk(self.count, 1)
    }
}

#[cfg(test)]
mod tests;
