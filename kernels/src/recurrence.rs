//! Sizes of recurrent layers, and the order of their weights.

use crate::cublaslt::Element;

/// Cell of a recurrent layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Cell {
    /// Long short-term memory. Gates in order: input, forget, candidate and output.
    Lstm,
    /// Gated recurrent unit whose reset gate multiplies the product with the hidden state. Gates in order: reset, update and
    /// candidate.
    Gru,
}

impl Cell {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Lstm, Self::Gru];

    /// Number of gates.
    pub const fn gates(self) -> usize {
        match self {
            Self::Lstm => 4,
            Self::Gru => 3,
        }
    }

    /// Number of states: the hidden state, and that of an LSTM's cell.
    pub const fn states(self) -> usize {
        match self {
            Self::Lstm => 2,
            Self::Gru => 1,
        }
    }

    /// Numbers of all weights. They lie in this order, without gaps:
    ///
    /// 1. for each gate, a matrix `[hidden, inputs]` of the input;
    /// 2. for each gate, a matrix `[hidden, hidden]` of the hidden state;
    /// 3. with biases, for each gate a vector `[hidden]` beside the input's product;
    /// 4. with biases, for each gate a vector `[hidden]` beside the hidden state's product.
    ///
    /// ```
    /// use gpu_tuned_kernels::recurrence::Cell;
    ///
    /// assert_eq!(Cell::Lstm.weights(2, 3, true), 4 * 3 * (2 + 3 + 2));
    /// assert_eq!(Cell::Gru.weights(2, 3, false), 3 * 3 * (2 + 3));
    /// ```
    pub const fn weights(self, inputs: usize, hidden: usize, has_bias: bool) -> usize {
        let columns = inputs.saturating_add(hidden).saturating_add(if has_bias { 2 } else { 0 });
        self.gates().saturating_mul(hidden).saturating_mul(columns)
    }
}

/// A recurrent layer over sequences of one length.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Recurrence {
    /// Kind of the layer.
    pub cell: Cell,
    /// Type of all numbers. Sums are in f32.
    pub element: Element,
    /// The gates have biases.
    pub has_bias: bool,
    /// Length of a sequence.
    pub steps: usize,
    /// Number of sequences.
    pub batch: usize,
    /// Numbers of the input in a step.
    pub inputs: usize,
    /// Numbers of a state.
    pub hidden: usize,
}

impl Recurrence {
    /// Numbers of the input: `[steps, batch, inputs]`.
    pub fn input_numbers(&self) -> usize {
        self.steps.saturating_mul(self.batch).saturating_mul(self.inputs)
    }

    /// Numbers of one state: `[batch, hidden]`.
    pub fn state_numbers(&self) -> usize {
        self.batch.saturating_mul(self.hidden)
    }

    /// Shape of the result: the hidden state of each step, then the last state of an LSTM's cell.
    pub fn output_shape(&self) -> [usize; 3] {
        [self.steps.saturating_add(self.cell.states() - 1), self.batch, self.hidden]
    }

    /// Numbers of the result.
    pub fn output_numbers(&self) -> usize {
        self.output_shape()[0].saturating_mul(self.state_numbers())
    }

    /// Numbers of the weights: see [`Cell::weights`].
    pub fn weights(&self) -> usize {
        self.cell.weights(self.inputs, self.hidden, self.has_bias)
    }

    /// Returns `true` if no size is zero, and `i32` counts the numbers of each tensor.
    pub fn is_valid(&self) -> bool {
        let is_counted = |size: usize| (1..=i32::MAX as usize).contains(&size);
        [self.input_numbers(), self.output_numbers(), self.weights()].into_iter().all(is_counted)
    }

    /// Places of the matrices and biases of each gate among the weights: `[matrix, bias]`, for the input, then for the
    /// hidden state.
    pub fn places(&self) -> Vec<[usize; 2]> {
        let (gates, hidden) = (self.cell.gates(), self.hidden);
        let matrices = |gate: usize| {
            let of_input = gate.min(gates) * hidden * self.inputs;
            of_input + gate.saturating_sub(gates) * hidden * hidden
        };
        (0..2 * gates).map(|gate| [matrices(gate), matrices(2 * gates) + gate * hidden]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_up_to_the_end_of_the_weights() {
        for cell in Cell::ALL {
            for (inputs, hidden) in [(1, 1), (2, 3), (5, 4)] {
                let element = Element::Bf16;
                let recurrence = Recurrence { cell, element, has_bias: true, steps: 2, batch: 3, inputs, hidden };
                let places = recurrence.places();
                assert_eq!(places.len(), 2 * cell.gates());
                let mut next = 0;
                for (gate, [matrix, _]) in places.iter().enumerate() {
                    assert_eq!(*matrix, next);
                    next += hidden * if gate < cell.gates() { inputs } else { hidden };
                }
                assert_eq!(next, cell.weights(inputs, hidden, false));
                for [_, bias] in places {
                    assert_eq!(bias, next);
                    next += hidden;
                }
                assert_eq!(next, recurrence.weights());
            }
        }
    }

    #[test]
    fn sizes_without_numbers_or_with_too_many_are_no_recurrence() {
        let element = Element::F32 { tf32: false };
        let valid = Recurrence { cell: Cell::Lstm, element, has_bias: false, steps: 1, batch: 1, inputs: 1, hidden: 1 };
        assert!(valid.is_valid());
        for wrong in [
            Recurrence { steps: 0, ..valid.clone() },
            Recurrence { batch: 0, ..valid.clone() },
            Recurrence { inputs: 0, ..valid.clone() },
            Recurrence { hidden: 0, ..valid.clone() },
            Recurrence { steps: 1 << 31, ..valid.clone() },
            Recurrence { batch: 1 << 16, hidden: 1 << 16, ..valid.clone() },
            Recurrence { inputs: usize::MAX, hidden: usize::MAX, ..valid },
        ] {
            assert!(!wrong.is_valid(), "{wrong:?}");
        }
    }
}
