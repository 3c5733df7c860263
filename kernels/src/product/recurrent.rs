//! Recurrent layers.

#[cfg(feature = "cuda")]
use burn::backend::{Dispatch, DispatchDevice};
use burn::module::Param;
use burn::nn::activation::Activation;
use burn::nn::gru::Gru;
use burn::nn::{GateController, Linear, Lstm};
use burn::tensor::Tensor;
#[cfg(feature = "cuda")]
use burn::tensor::{DType, Device};

#[cfg(feature = "cuda")]
use super::by_library;
use super::linear;
#[cfg(feature = "cuda")]
use crate::cublaslt::Element;
#[cfg(feature = "cuda")]
use crate::operations::{LibraryOps, plan_recurrence};
use crate::recurrence::Cell;
#[cfg(feature = "cuda")]
use crate::recurrence::Recurrence;
#[cfg(feature = "cuda")]
use crate::selection::{Kind, has_cudnn, is_deterministic};

/// Hidden states of all steps, then the last state of an LSTM's cell: `[steps, batch, inputs]` to
/// `[steps + states - 1, batch, hidden]`.
///
/// Weights lie as [`Cell::weights`] describes; [`lstm_weights`] and [`gru_weights`] collect those of Burn's layers. `states` has
/// the hidden state before the first step, then that of an LSTM's cell: `[states, batch, hidden]`.
///
/// By cuDNN where the library is selected and cuDNN is there, the device is a CUDA device, and the type is f32, f16 or bf16. Else
/// by [`linear`]: all gates at once.
///
/// ```
/// use burn::nn::LstmConfig;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned_kernels::product::{lstm_weights, recurrent};
/// use gpu_tuned_kernels::recurrence::Cell;
///
/// let device = Device::flex();
/// let layer = LstmConfig::new(4, 8, true).init(&device);
/// let weights = lstm_weights(&layer).expect("a plain layer");
/// let states = Tensor::zeros([2, 3, 8], &device);
/// let output = recurrent(Cell::Lstm, Tensor::ones([5, 3, 4], &device), weights, states);
/// assert_eq!(output.dims(), [6, 3, 8]);
/// ```
///
/// # Panics
///
/// Panics if the shapes do not match.
#[cfg_attr(
    not(feature = "cuda"),
    expect(clippy::needless_pass_by_value, reason = "the library reads the tensors' memory")
)]
pub fn recurrent(cell: Cell, input: Tensor<3>, weights: Tensor<1>, states: Tensor<3>) -> Tensor<3> {
    let ([_, batch, inputs], [_, _, hidden], [count]) = (input.dims(), states.dims(), weights.dims());
    assert_eq!(states.dims(), [cell.states(), batch, hidden], "states of a recurrent layer");
    let has_bias = count == cell.weights(inputs, hidden, true);
    assert!(has_bias || count == cell.weights(inputs, hidden, false), "weights of a recurrent layer");
    #[cfg(feature = "cuda")]
    if weights.dtype() == input.dtype()
        && states.dtype() == input.dtype()
        && let Some(plan) = plan(cell, &input, hidden, has_bias)
    {
        let (input, weights, states) = (input.into_dispatch(), weights.into_dispatch(), states.into_dispatch());
        return Tensor::from_dispatch(Dispatch::library_recurrence(input, weights, states, plan));
    }
    by_steps(cell, input, &weights, &states, has_bias)
}

/// Returns `true` if [`recurrent`] is faster than Burn's layer with these gates, for an input `[steps, batch, inputs]`: on a CUDA
/// device where the library is selected.
pub(crate) fn is_recurrent_faster(input: &Tensor<3>, gates: &[&GateController]) -> bool {
    #[cfg(feature = "cuda")]
    if let Some((gate, _)) = gates.first().zip(have_biases(gates)) {
        return gate.hidden_transform.weight.dtype() == input.dtype() && by_library(input).is_some();
    }
    let _ = (input, gates);
    false
}

#[cfg(feature = "cuda")]
fn plan(
    cell: Cell,
    input: &Tensor<3>,
    hidden: usize,
    has_bias: bool,
) -> Option<std::sync::Arc<crate::cudnn::RecurrentPlan>> {
    let kind = match cell {
        Cell::Lstm => Kind::Lstm,
        Cell::Gru => Kind::Gru,
    };
    let tf32 = by_library(input).filter(|_| has_cudnn() && !kind.is_refused(input.dtype()))?;
    if is_deterministic() && !has_fixed_workspaces() {
        return None;
    }
    let element = match input.dtype() {
        DType::F32 => Element::F32 { tf32 },
        DType::F16 => Element::F16,
        DType::BF16 => Element::Bf16,
        _ => return None,
    };
    let [steps, batch, inputs] = input.dims();
    let recurrence = Recurrence { cell, element, has_bias, steps, batch, inputs, hidden };
    plan_recurrence(device_id(&input.device())?, &recurrence)
}

/// Returns `true` if the user fixed the workspaces of cuBLAS, which cuDNN's recurrent layers call: by NVIDIA's release notes of
/// cuDNN 8, equal runs may have other bits else.
#[cfg(feature = "cuda")]
fn has_fixed_workspaces() -> bool {
    static IS_SET: std::sync::LazyLock<bool> =
        std::sync::LazyLock::new(|| std::env::var_os("CUBLAS_WORKSPACE_CONFIG").is_some_and(|it| !it.is_empty()));
    *IS_SET
}

/// CubeCL's device.
#[cfg(feature = "cuda")]
pub(crate) fn device_id(device: &Device) -> Option<cubecl_common::device::DeviceId> {
    let dispatch = device.as_dispatch();
    if let DispatchDevice::Cube(device) = dispatch {
        return Some(device.to_id());
    }
    if matches!(dispatch, DispatchDevice::Autodiff(_)) { device_id(&device.clone().inner()) } else { None }
}

/// The layer by products of all gates: of all steps with the input's weights, and of each step with those of the hidden state.
fn by_steps(cell: Cell, input: Tensor<3>, weights: &Tensor<1>, states: &Tensor<3>, has_bias: bool) -> Tensor<3> {
    let ([steps, batch, inputs], [_, _, hidden]) = (input.dims(), states.dims());
    let rows = cell.gates() * hidden;
    let mut at = 0;
    let mut next = |length: usize| {
        at += length;
        weights.clone().narrow(0, at - length, length)
    };
    let [of_input, of_hidden] =
        [inputs, hidden].map(|columns| next(rows * columns).reshape([rows, columns]).transpose());
    let [input_bias, hidden_bias] = [(); 2].map(|()| has_bias.then(|| next(rows)));
    let of_inputs = linear(input.reshape([steps * batch, inputs]), of_input, input_bias);
    let gate = |sums: &Tensor<2>, gate: usize| sums.clone().narrow(1, gate * hidden, hidden);
    let sigmoid = burn::tensor::activation::sigmoid::<2>;
    let state = |which| states.clone().narrow(0, which, 1).reshape([batch, hidden]);
    let mut hidden_state = state(0);
    let mut cell_state = (cell == Cell::Lstm).then(|| state(1));
    let mut outputs = Vec::with_capacity(steps + 1);
    for step in 0..steps {
        let of_input = of_inputs.clone().narrow(0, step * batch, batch);
        let of_state = linear(hidden_state.clone(), of_hidden.clone(), hidden_bias.clone());
        let sum = |which: usize| gate(&of_input, which) + gate(&of_state, which);
        hidden_state = if let Some(before) = cell_state.take() {
            let new = sigmoid(sum(1)) * before + sigmoid(sum(0)) * sum(2).tanh();
            cell_state = Some(new.clone());
            sigmoid(sum(3)) * new.tanh()
        } else {
            let candidate = (gate(&of_input, 2) + sigmoid(sum(0)) * gate(&of_state, 2)).tanh();
            let update = sigmoid(sum(1));
            update.clone() * hidden_state + (1.0 - update) * candidate
        };
        outputs.push(hidden_state.clone());
    }
    outputs.extend(cell_state);
    Tensor::stack(outputs, 0)
}

/// Weights of Burn's LSTM as [`recurrent`] reads them, with gradients for its parameters.
///
/// `None` for a layer that [`recurrent`] does not compute: with other activations, clipping, coupled gates, or biases of some
/// gates only.
pub fn lstm_weights(layer: &Lstm) -> Option<Tensor<1>> {
    joined(&lstm_gates(layer)?)
}

/// Weights of Burn's GRU as [`recurrent`] reads them, with gradients for its parameters.
///
/// `None` for a layer that [`recurrent`] does not compute: with other activations, clipping, a reset before the product, or
/// biases of some gates only.
pub fn gru_weights(layer: &Gru) -> Option<Tensor<1>> {
    joined(&gru_gates(layer)?)
}

/// Gates of a layer that cuDNN computes, in order.
pub(crate) fn lstm_gates(layer: &Lstm) -> Option<[&GateController; 4]> {
    let has_default_activations =
        is_sigmoid(&layer.gate_activation) && is_tanh(&layer.cell_activation) && is_tanh(&layer.hidden_activation);
    if !has_default_activations || layer.clip.is_some() || layer.input_forget {
        return None;
    }
    Some([&layer.input_gate, layer.forget_gate.as_ref()?, &layer.cell_gate, &layer.output_gate])
}

/// As [`lstm_gates`].
pub(crate) fn gru_gates(layer: &Gru) -> Option<[&GateController; 3]> {
    let has_default_activations = is_sigmoid(&layer.gate_activation) && is_tanh(&layer.hidden_activation);
    let is_plain = has_default_activations && layer.clip.is_none() && layer.reset_after;
    is_plain.then_some([&layer.reset_gate, &layer.update_gate, &layer.new_gate])
}

fn is_sigmoid(activation: &Activation) -> bool {
    matches!(activation, Activation::Sigmoid(_))
}

fn is_tanh(activation: &Activation) -> bool {
    matches!(activation, Activation::Tanh(_))
}

/// The layers of a gate: that of the input, and that of the hidden state.
const LAYERS: [fn(&GateController) -> &Linear; 2] = [|gate| &gate.input_transform, |gate| &gate.hidden_transform];

/// Returns `true` if all layers have a bias, `false` if none has.
fn have_biases(gates: &[&GateController]) -> Option<bool> {
    let mut all = LAYERS.iter().flat_map(|of| gates.iter().map(|gate| of(gate).bias.is_some()));
    let first = all.next()?;
    all.all(|has_bias| has_bias == first).then_some(first)
}

/// Weights in the order of [`Cell::weights`].
fn joined(gates: &[&GateController]) -> Option<Tensor<1>> {
    have_biases(gates)?;
    let matrices = LAYERS.map(|of| {
        let matrices = gates.iter().map(|gate| of(gate).weight.val()).collect();
        Tensor::cat(matrices, 1).transpose().flatten::<1>(0, 1)
    });
    let biases = LAYERS.into_iter().flat_map(|of| gates.iter().filter_map(move |gate| of(gate).bias.as_ref()));
    Some(Tensor::cat(matrices.into_iter().chain(biases.map(Param::val)).collect(), 0))
}
