//! Recurrent layers and their gradients on host memory, with sums in f64.

#![allow(clippy::many_single_char_names, reason = "formulas")]
#![allow(clippy::float_cmp, reason = "small whole numbers are exact")]

use std::ffi::{c_int, c_void};

use crate::objects::{BAD_PARAM, Layer, NOT_SUPPORTED, Sequences, Tensor};
use crate::passes::{BF16, DEFAULT_MATH, F32, read, to_tf32, write};

/// Numbers that the forward pass keeps for each number of a state.
const KEPT: usize = 10;
/// Of these, the first that the data gradients write.
const WRITTEN: usize = 5;
/// First number of the kept ones: the passes that were computed.
const FORWARD: f32 = 1.0;
const DATA_GRADIENTS: f32 = 2.0;

/// A layer with sequences that match.
pub(crate) struct Recurrent {
    layer: Layer,
    steps: usize,
    batch: usize,
}

impl Layer {
    pub(crate) fn gates(&self) -> usize {
        if self.is_lstm { 4 } else { 3 }
    }

    /// Numbers of all matrices of the input, then of all others, then of biases.
    pub(crate) fn sections(&self) -> [usize; 3] {
        let rows = self.gates() * self.hidden;
        [rows * self.inputs, rows * self.hidden, if self.has_bias { 2 * rows } else { 0 }]
    }

    pub(crate) fn weight_bytes(&self) -> usize {
        self.sections().iter().sum::<usize>() * self.bytes()
    }

    pub(crate) fn bytes(&self) -> usize {
        if self.data_type == F32 { 4 } else { 2 }
    }
}

fn sigmoid(number: f64) -> f64 {
    1.0 / (1.0 + (-number).exp())
}

/// What the forward pass keeps, as f32.
#[derive(Clone, Copy)]
struct Reserve(*mut f32);

impl Reserve {
    /// # Safety
    ///
    /// The memory has the number.
    unsafe fn get(self, at: usize) -> f64 {
        // SAFETY: by this function's contract.
        f64::from(unsafe { self.0.add(at).read_unaligned() })
    }

    /// # Safety
    ///
    /// The memory has the number.
    unsafe fn set(self, at: usize, number: f64) {
        // SAFETY: by this function's contract.
        unsafe { self.0.add(at).write_unaligned(number as f32) };
    }
}

/// Memory of a forward pass. Null where the layer has none.
#[derive(Clone, Copy)]
pub(crate) struct Memory {
    pub(crate) input: *mut c_void,
    pub(crate) output: *mut c_void,
    pub(crate) hidden: *mut c_void,
    pub(crate) cell: *mut c_void,
    pub(crate) weights: *mut c_void,
    pub(crate) last_cell: *mut c_void,
    pub(crate) reserve: *mut c_void,
}

/// Memory of the data's gradients beside that of the forward pass.
#[derive(Clone, Copy)]
pub(crate) struct Gradients {
    pub(crate) output: *mut c_void,
    pub(crate) last_cell: *mut c_void,
    pub(crate) of_input: *mut c_void,
    pub(crate) of_hidden: *mut c_void,
    pub(crate) of_cell: *mut c_void,
}

impl Recurrent {
    /// Checks that shapes and types match.
    pub(crate) fn new(layer: Layer, input: &Sequences, output: &Sequences, state: &Tensor) -> Result<Self, c_int> {
        let Sequences { data_type, steps, batch, numbers } = *input;
        let expected = Sequences { data_type, steps, batch, numbers: layer.hidden };
        let is_state = state.data_type == data_type
            && state.shape[..3] == [1, batch, layer.hidden]
            && state.strides[..3] == [batch * layer.hidden, layer.hidden, 1]
            && state.shape[3..].iter().all(|size| *size == 1);
        if numbers != layer.inputs || data_type != layer.data_type || *output != expected || !is_state {
            return Err(BAD_PARAM);
        }
        if [F32, BF16].contains(&data_type) { Ok(Self { layer, steps, batch }) } else { Err(NOT_SUPPORTED) }
    }

    pub(crate) fn reserve_bytes(layer: &Layer, input: &Sequences) -> usize {
        4 * (1 + KEPT * input.steps * input.batch * layer.hidden)
    }

    /// # Safety
    ///
    /// The memory has so many numbers of the layer's type behind `first`.
    unsafe fn numbers(&self, memory: *mut c_void, first: usize, count: usize) -> Vec<f64> {
        // SAFETY: by this function's contract.
        (first..first + count).map(|at| f64::from(unsafe { read(self.layer.data_type, memory, at) })).collect()
    }

    /// A factor of a product.
    fn rounded(&self, number: f64) -> f64 {
        let is_rounded = self.layer.data_type == F32 && self.layer.math == DEFAULT_MATH;
        if is_rounded { f64::from(to_tf32(number as f32)) } else { number }
    }

    /// Sums of products of a matrix `[rows, columns]` with a vector, and biases.
    fn product(&self, matrix: &[f64], vector: &[f64], bias: Option<&[f64]>) -> Vec<f64> {
        let row = |numbers: &[f64]| -> f64 {
            numbers.iter().zip(vector).map(|(one, other)| self.rounded(*one) * self.rounded(*other)).sum()
        };
        let rows = matrix.chunks(vector.len()).map(row);
        rows.enumerate().map(|(at, sum)| sum + bias.map_or(0.0, |bias| bias[at])).collect()
    }

    /// Sums of products of a vector with a matrix `[rows, columns]`.
    fn product_of_transposed(&self, matrix: &[f64], vector: &[f64], columns: usize) -> Vec<f64> {
        let column = |column: usize| -> f64 {
            let of_rows = vector.iter().enumerate();
            of_rows.map(|(row, it)| self.rounded(matrix[row * columns + column]) * self.rounded(*it)).sum()
        };
        (0..columns).map(column).collect()
    }

    /// Matrices of the input and of the hidden state, and their biases.
    ///
    /// # Safety
    ///
    /// The memory has the weights.
    unsafe fn weights(&self, memory: *mut c_void) -> ([Vec<f64>; 2], Option<[Vec<f64>; 2]>) {
        let [of_input, of_hidden, biases] = self.layer.sections();
        // SAFETY: by this function's contract.
        let part = |first, count| unsafe { self.numbers(memory, first, count) };
        let matrices = [part(0, of_input), part(of_input, of_hidden)];
        let first = of_input + of_hidden;
        let biases = (biases > 0).then(|| [part(first, biases / 2), part(first + biases / 2, biases / 2)]);
        (matrices, biases)
    }

    /// The hidden state of a sequence before a step.
    ///
    /// # Safety
    ///
    /// The memory is valid.
    unsafe fn hidden_before(&self, memory: Memory, step: usize, sequence: usize) -> Vec<f64> {
        let hidden = self.layer.hidden;
        // SAFETY: by this function's contract.
        unsafe {
            match step.checked_sub(1) {
                Some(before) => self.numbers(memory.output, (before * self.batch + sequence) * hidden, hidden),
                None => self.numbers(memory.hidden, sequence * hidden, hidden),
            }
        }
    }

    /// First of the kept numbers for a number of a state.
    fn kept(&self, step: usize, sequence: usize, at: usize) -> usize {
        1 + ((step * self.batch + sequence) * self.layer.hidden + at) * KEPT
    }

    /// # Safety
    ///
    /// The memory is valid, or null for the reserve, and for the cell of another layer than an LSTM.
    pub(crate) unsafe fn forward(&self, memory: Memory) {
        let Layer { data_type, inputs, hidden, is_lstm, .. } = self.layer;
        let reserve = (!memory.reserve.is_null()).then_some(Reserve(memory.reserve.cast()));
        // SAFETY: by this function's contract.
        unsafe {
            let ([of_input, of_hidden], biases) = self.weights(memory.weights);
            let [input_bias, hidden_bias] = [0, 1].map(|it| biases.as_ref().map(|biases| &biases[it][..]));
            for sequence in 0..self.batch {
                let mut cell = if is_lstm { self.numbers(memory.cell, sequence * hidden, hidden) } else { vec![] };
                for step in 0..self.steps {
                    let place = step * self.batch + sequence;
                    let x = self.product(&of_input, &self.numbers(memory.input, place * inputs, inputs), input_bias);
                    let before = self.hidden_before(memory, step, sequence);
                    let h = self.product(&of_hidden, &before, hidden_bias);
                    for at in 0..hidden {
                        let sum = |gate: usize| x[gate * hidden + at] + h[gate * hidden + at];
                        let (new, kept) = if is_lstm {
                            let [i, f, g, o] = [sigmoid(sum(0)), sigmoid(sum(1)), sum(2).tanh(), sigmoid(sum(3))];
                            cell[at] = f * cell[at] + i * g;
                            (o * cell[at].tanh(), [i, f, g, o, cell[at]])
                        } else {
                            let (r, z, of_h) = (sigmoid(sum(0)), sigmoid(sum(1)), h[2 * hidden + at]);
                            let n = (x[2 * hidden + at] + r * of_h).tanh();
                            ((1.0 - z) * n + z * before[at], [r, z, n, of_h, 0.0])
                        };
                        write(data_type, memory.output, place * hidden + at, new as f32);
                        if let Some(reserve) = reserve {
                            let first = self.kept(step, sequence, at);
                            kept.into_iter().enumerate().for_each(|(index, it)| reserve.set(first + index, it));
                        }
                    }
                }
                for (at, cell) in cell.into_iter().enumerate() {
                    write(data_type, memory.last_cell, sequence * hidden + at, cell as f32);
                }
            }
            if let Some(reserve) = reserve {
                reserve.set(0, f64::from(FORWARD));
            }
        }
    }

    /// # Safety
    ///
    /// As of [`forward`](Self::forward).
    pub(crate) unsafe fn data_gradients(&self, memory: Memory, gradients: Gradients) -> Result<(), c_int> {
        let Layer { data_type, inputs, hidden, is_lstm, .. } = self.layer;
        let gates = self.layer.gates();
        let reserve = Reserve(memory.reserve.cast());
        // SAFETY: by this function's contract.
        unsafe {
            if reserve.get(0) != f64::from(FORWARD) {
                return Err(BAD_PARAM);
            }
            let ([of_input, of_hidden], _) = self.weights(memory.weights);
            for sequence in 0..self.batch {
                let state = |memory| self.numbers(memory, sequence * hidden, hidden);
                let mut of_h = vec![0.0; hidden];
                let mut of_c = if is_lstm { state(gradients.last_cell) } else { vec![] };
                for step in (0..self.steps).rev() {
                    let place = step * self.batch + sequence;
                    let of_y = self.numbers(gradients.output, place * hidden, hidden);
                    let before = self.hidden_before(memory, step, sequence);
                    // Gradients of the sums of the input and of the hidden state, and what reaches the state directly.
                    let (mut da, mut db) = (vec![0.0; gates * hidden], vec![0.0; gates * hidden]);
                    let mut direct = vec![0.0; hidden];
                    for at in 0..hidden {
                        let first = self.kept(step, sequence, at);
                        let kept = |index: usize| reserve.get(first + index);
                        let dh = of_y[at] + of_h[at];
                        let [of_a, of_b] = if is_lstm {
                            let [i, f, g, o, c] = [0, 1, 2, 3, 4].map(kept);
                            let c_before = match step.checked_sub(1) {
                                Some(before) => reserve.get(self.kept(before, sequence, at) + 4),
                                None => f64::from(read(data_type, memory.cell, sequence * hidden + at)),
                            };
                            let dc = of_c[at] + dh * o * (1.0 - c.tanh().powi(2));
                            of_c[at] = dc * f;
                            let di = dc * g * i * (1.0 - i);
                            let df = dc * c_before * f * (1.0 - f);
                            [[di, df, dc * i * (1.0 - g * g), dh * c.tanh() * o * (1.0 - o)]; 2]
                        } else {
                            let [r, z, n, of_hidden] = [0, 1, 2, 3].map(kept);
                            direct[at] = dh * z;
                            let dn = dh * (1.0 - z) * (1.0 - n * n);
                            let dr = dn * of_hidden * r * (1.0 - r);
                            let dz = dh * (before[at] - n) * z * (1.0 - z);
                            [[dr, dz, dn, 0.0], [dr, dz, dn * r, 0.0]]
                        };
                        for gate in 0..gates {
                            da[gate * hidden + at] = of_a[gate];
                            db[gate * hidden + at] = of_b[gate];
                            reserve.set(first + WRITTEN + gate, of_a[gate]);
                        }
                        reserve.set(first + WRITTEN + 4, of_b[2]);
                    }
                    for (at, of_x) in self.product_of_transposed(&of_input, &da, inputs).into_iter().enumerate() {
                        write(data_type, gradients.of_input, place * inputs + at, of_x as f32);
                    }
                    let through = self.product_of_transposed(&of_hidden, &db, hidden);
                    of_h = through.iter().zip(&direct).map(|(one, other)| one + other).collect();
                }
                for (memory, of_state) in [(gradients.of_hidden, of_h), (gradients.of_cell, of_c)] {
                    for (at, number) in of_state.into_iter().enumerate() {
                        write(data_type, memory, sequence * hidden + at, number as f32);
                    }
                }
            }
            reserve.set(0, f64::from(DATA_GRADIENTS));
        }
        Ok(())
    }

    /// Adds to `of_weights`.
    ///
    /// # Safety
    ///
    /// As of [`forward`](Self::forward).
    pub(crate) unsafe fn weight_gradients(&self, memory: Memory, of_weights: *mut c_void) -> Result<(), c_int> {
        let Layer { data_type, inputs, hidden, has_bias, .. } = self.layer;
        let (gates, [of_input, of_hidden, biases]) = (self.layer.gates(), self.layer.sections());
        let reserve = Reserve(memory.reserve.cast());
        // SAFETY: by this function's contract.
        unsafe {
            if reserve.get(0) != f64::from(DATA_GRADIENTS) {
                return Err(BAD_PARAM);
            }
            let mut sums = self.numbers(of_weights, 0, of_input + of_hidden + biases);
            for place in 0..self.steps * self.batch {
                let (step, sequence) = (place / self.batch, place % self.batch);
                let x = self.numbers(memory.input, place * inputs, inputs);
                let before = self.hidden_before(memory, step, sequence);
                for row in 0..gates * hidden {
                    let (gate, at) = (row / hidden, row % hidden);
                    let first = self.kept(step, sequence, at) + WRITTEN;
                    let da = reserve.get(first + gate);
                    let db = if gate == 2 { reserve.get(first + 4) } else { da };
                    for (column, x) in x.iter().enumerate() {
                        sums[row * inputs + column] += self.rounded(da) * self.rounded(*x);
                    }
                    for (column, h) in before.iter().enumerate() {
                        sums[of_input + row * hidden + column] += self.rounded(db) * self.rounded(*h);
                    }
                    if has_bias {
                        sums[of_input + of_hidden + row] += da;
                        sums[of_input + of_hidden + gates * hidden + row] += db;
                    }
                }
            }
            for (at, sum) in sums.into_iter().enumerate() {
                write(data_type, of_weights, at, sum as f32);
            }
        }
        Ok(())
    }
}
