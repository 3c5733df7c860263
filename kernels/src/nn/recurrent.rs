//! LSTM and GRU by cuDNN, or by products of all gates.

use burn::nn as burn_nn;
use burn::nn::LstmState;
use burn::nn::gru as burn_gru;
use burn::tensor::Tensor;

use super::ByLibrary;
use crate::product::{self, gru_gates, gru_weights, is_recurrent_faster, lstm_gates, lstm_weights};
use crate::recurrence::Cell;

/// Long short-term memory.
pub type Lstm = ByLibrary<burn_nn::Lstm>;
/// Two LSTMs in opposite directions.
pub type BiLstm = ByLibrary<burn_nn::BiLstm>;
/// A gated recurrent unit.
pub type Gru = ByLibrary<burn_gru::Gru>;
/// Two gated recurrent units in opposite directions.
pub type BiGru = ByLibrary<burn_gru::BiGru>;

impl Lstm {
    /// Applies the layer to sequences, `[batch, steps, d_input]`, or `[steps, batch, d_input]` unless the batch is first.
    /// Returns the hidden state of each step, in this order as well, and the last state.
    pub fn forward(&self, input: Tensor<3>, state: Option<LstmState<2>>) -> (Tensor<3>, LstmState<2>) {
        let Self(layer) = self;
        match lstm_gates(layer) {
            Some(gates) if is_recurrent_faster(&input, &gates) => joint_lstm(layer, input, state),
            _ => layer.forward(input, state),
        }
    }
}

/// `Lstm::forward` with all gates in one matrix product a time step, and one for the inputs of all steps, or by cuDNN where
/// [`recurrent`](product::recurrent) is.
///
/// Shapes, state and results are those of `Lstm::forward`; sums have other rounding. The layer and its records stay as they are.
/// The call joins the layer's matrices, which takes memory for a copy of its parameters until the backward pass. Layers with
/// other activations, clipping, or coupled gates are computed by `Lstm::forward`.
///
/// ```
/// use burn::nn::LstmConfig;
/// use burn::tensor::{Device, Tensor};
/// use gpu_tuned_kernels::nn::joint_lstm;
///
/// let device = Device::flex();
/// let layer = LstmConfig::new(4, 8, true).init(&device);
/// let input = Tensor::<3>::ones([2, 5, 4], &device); // [samples, steps, inputs]
/// let (output, state) = joint_lstm(&layer, input, None); // was: layer.forward(input, None)
/// # assert_eq!((output.dims(), state.hidden.dims()), ([2, 5, 8], [2, 8]));
/// ```
pub fn joint_lstm(layer: &burn_nn::Lstm, input: Tensor<3>, state: Option<LstmState<2>>) -> (Tensor<3>, LstmState<2>) {
    let steps_first = swapped(input.clone(), layer.batch_first);
    match lstm(layer, &steps_first, state.as_ref(), layer.reverse) {
        Some((output, state)) => (swapped(output, layer.batch_first), state),
        None => layer.forward(input, state),
    }
}

impl BiLstm {
    /// Applies both layers to sequences, as [`Lstm::forward`]. Outputs lie side by side: `[.., 2 * d_hidden]`, states one after
    /// the other: `[2, batch, d_hidden]`.
    pub fn forward(&self, input: Tensor<3>, state: Option<LstmState<3>>) -> (Tensor<3>, LstmState<3>) {
        let Self(layer) = self;
        let steps_first = swapped(input.clone(), layer.batch_first);
        let of = |which: usize| {
            let of = |states: &Tensor<3>| states.clone().narrow(0, which, 1).squeeze_dim(0);
            state.as_ref().map(|state| LstmState::new(of(&state.cell), of(&state.hidden)))
        };
        let computed = || {
            // As Burn's config makes them: both layers have the batch first.
            if !layer.forward.batch_first || !is_recurrent_faster(&input, &lstm_gates(&layer.forward)?) {
                return None;
            }
            let one = lstm(&layer.forward, &steps_first, of(0).as_ref(), layer.forward.reverse)?;
            Some([one, lstm(&layer.reverse, &steps_first, of(1).as_ref(), true)?])
        };
        match computed() {
            Some([(one, of_one), (other, of_other)]) => (
                swapped(Tensor::cat(vec![one, other], 2), layer.batch_first),
                LstmState::stack(vec![of_one, of_other], 0),
            ),
            None => layer.forward(input, state),
        }
    }
}

impl Gru {
    /// Applies the layer to sequences: `[batch, steps, d_input]` to the hidden state of each step, `[batch, steps, d_hidden]`.
    pub fn forward(&self, input: Tensor<3>, state: Option<Tensor<2>>) -> Tensor<3> {
        let Self(layer) = self;
        match gru(layer, &swapped(input.clone(), true), state.as_ref(), false) {
            Some((output, _)) => swapped(output, true),
            None => layer.forward(input, state),
        }
    }
}

impl BiGru {
    /// Applies both layers to sequences, `[batch, steps, d_input]`, or `[steps, batch, d_input]` unless the batch is first.
    /// Outputs lie side by side: `[.., 2 * d_hidden]`, states one after the other: `[2, batch, d_hidden]`.
    pub fn forward(&self, input: Tensor<3>, state: Option<Tensor<3>>) -> (Tensor<3>, Tensor<3>) {
        let Self(layer) = self;
        let steps_first = swapped(input.clone(), layer.batch_first);
        let of = |which: usize| state.as_ref().map(|state| state.clone().narrow(0, which, 1).squeeze_dim(0));
        let computed = || {
            let one = gru(&layer.forward, &steps_first, of(0).as_ref(), false)?;
            Some([one, gru(&layer.reverse, &steps_first, of(1).as_ref(), true)?])
        };
        match computed() {
            Some([(one, of_one), (other, of_other)]) => {
                (swapped(Tensor::cat(vec![one, other], 2), layer.batch_first), Tensor::stack(vec![of_one, of_other], 0))
            }
            None => layer.forward(input, state),
        }
    }
}

/// The tensor with its first two dimensions swapped, if asked for.
fn swapped(tensor: Tensor<3>, is_swapped: bool) -> Tensor<3> {
    if is_swapped { tensor.swap_dims(0, 1) } else { tensor }
}

/// The tensor with the steps in reverse order, if asked for.
fn reversed(tensor: Tensor<3>, is_reversed: bool) -> Tensor<3> {
    if is_reversed { tensor.flip([0]) } else { tensor }
}

/// Hidden states and the last state of `[steps, batch, inputs]`. `None` for layers of other types or with other formulas, and
/// without steps.
fn lstm(
    layer: &burn_nn::Lstm,
    input: &Tensor<3>,
    state: Option<&LstmState<2>>,
    is_reversed: bool,
) -> Option<(Tensor<3>, LstmState<2>)> {
    let has_type = state.is_none_or(|it| it.cell.dtype() == input.dtype() && it.hidden.dtype() == input.dtype());
    let [steps, batch, _] = input.dims();
    let is_computed = has_type && steps > 0;
    let weights = lstm_weights(layer).filter(|weights| is_computed && weights.dtype() == input.dtype())?;
    let states = match state {
        Some(state) => Tensor::stack(vec![state.hidden.clone(), state.cell.clone()], 0),
        None => Tensor::zeros([2, batch, layer.d_hidden], (&input.device(), input.dtype())),
    };
    let result = product::recurrent(Cell::Lstm, reversed(input.clone(), is_reversed), weights, states);
    let at = |step| result.clone().narrow(0, step, 1).squeeze_dim(0);
    let state = LstmState::new(at(steps), at(steps - 1));
    Some((reversed(result.narrow(0, 0, steps), is_reversed), state))
}

/// As [`lstm`].
fn gru(
    layer: &burn_gru::Gru,
    input: &Tensor<3>,
    state: Option<&Tensor<2>>,
    is_reversed: bool,
) -> Option<(Tensor<3>, Tensor<2>)> {
    let has_type = state.is_none_or(|state| state.dtype() == input.dtype());
    let [steps, batch, _] = input.dims();
    if !has_type || steps == 0 || !is_recurrent_faster(input, &gru_gates(layer)?) {
        return None;
    }
    let states = match state {
        Some(state) => state.clone().unsqueeze(),
        None => Tensor::zeros([1, batch, layer.d_hidden], (&input.device(), input.dtype())),
    };
    let output = product::recurrent(Cell::Gru, reversed(input.clone(), is_reversed), gru_weights(layer)?, states);
    let last = output.clone().narrow(0, steps - 1, 1).squeeze_dim(0);
    Some((reversed(output, is_reversed), last))
}
