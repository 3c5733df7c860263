//! Library LSTMs and GRUs against fp64 on the host: outputs, last states and all gradients; and their time beside Burn's and
//! beside `joint_lstm`.

#![allow(clippy::many_single_char_names, reason = "formulas of gates")]

use anyhow::{Context, ensure};
use burn::module::Param;
use burn::nn::{GateController, Linear, LstmState};
use burn::tensor::{DType, Device, Distribution, Gradients, Tensor};
use clap::Args;
use gpu_tuned::kernels::select_burn;
use gpu_tuned::recurrent::joint_lstm;
use gpu_tuned_kernels::nn::gru::{Gru, GruConfig};
use gpu_tuned_kernels::nn::{Lstm, LstmConfig};
use gpu_tuned_kernels::product::recurrent;
use gpu_tuned_kernels::recurrence::Cell;
use gpu_tuned_kernels::selection::cudnn_use;
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Serialize;

use crate::convolutions::{milliseconds, print_refused, select};
use crate::device::Choice;
use crate::judged::{Errors, Judged};
use crate::mode;
use crate::products::{Numbers, Sums, host, on_device, random_host, worse};

/// Options of `recurrent`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Cases of each layer in each precision
    #[arg(long, default_value_t = 200)]
    cases: usize,
    /// Time three layers of width 256 over 60 steps instead
    #[arg(long)]
    time: bool,
    /// Sequences of a step that is timed
    #[arg(long, default_value_t = 64)]
    batch: usize,
    /// Compute with cuDNN in spite of the check at start
    #[arg(long)]
    unchecked: bool,
    /// Seed of the cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

#[derive(Serialize)]
struct Checked {
    run: &'static str,
    cell: &'static str,
    numbers: Numbers,
    #[serde(flatten)]
    judged: Judged,
}

fn name(cell: Cell) -> &'static str {
    match cell {
        Cell::Lstm => "lstm",
        Cell::Gru => "gru",
    }
}

/// States are rounded at each step, and their errors reach all later steps.
fn limit(numbers: Numbers) -> f64 {
    5.0 * numbers.limit()
}

/// Prints a line for each layer and precision.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(mode::Precision::F32)?;
    if arguments.time {
        return time(&device, arguments.batch);
    }
    print_refused(&device, arguments.unchecked)?;
    let (mut wrong, mut by_burn) = (0, 0);
    for cell in Cell::ALL {
        for numbers in Numbers::ALL {
            select(&device, numbers, arguments.unchecked)?;
            let mut random = StdRng::seed_from_u64(arguments.seed);
            // Burn's LSTM needs the device's own type.
            let cases = if is_by_library(cell, numbers, &device)? { arguments.cases } else { 0 };
            let judged = Judged::new(cases, limit(numbers), || {
                let case = Case::generate(cell, numbers, &mut random);
                Ok((format!("{case:?}"), case.errors(&device, &mut random)?))
            })?;
            wrong += judged.wrong;
            by_burn += arguments.cases - judged.by_library;
            let checked = Checked { run: "recurrent layers", cell: name(cell), numbers, judged };
            println!("{}", serde_json::to_string(&checked)?);
        }
    }
    ensure!(wrong == 0, "{wrong} cases are wrong");
    ensure!(by_burn == 0, "the library did not compute {by_burn} cases");
    Ok(())
}

/// Returns `true` if the library computes a layer with these numbers.
fn is_by_library(cell: Cell, numbers: Numbers, device: &Device) -> anyhow::Result<bool> {
    let launched = cudnn_use().calls;
    let ones = |shape: [usize; 3]| on_device(vec![1.0; shape.iter().product()], shape, numbers, device);
    let count = cell.weights(2, 2, true);
    let weights = on_device(vec![0.5; count], [count], numbers, device);
    host(recurrent(cell, ones([2, 2, 2]), weights, ones([cell.states(), 2, 2])))?;
    Ok(cudnn_use().calls > launched)
}

/// A layer of generated sizes.
#[allow(clippy::struct_excessive_bools, reason = "options of Burn's configs")]
#[derive(Clone, Debug)]
struct Case {
    cell: Cell,
    numbers: Numbers,
    steps: usize,
    batch: usize,
    inputs: usize,
    hidden: usize,
    has_bias: bool,
    /// Of an LSTM.
    is_reversed: bool,
    is_batch_first: bool,
    has_states: bool,
    /// Inputs cut off before and behind.
    cut: [usize; 2],
}

/// A gate: weight and bias of the input, then of the hidden state, as Burn has them.
type Gate<T> = [(T, Option<T>); 2];

impl Case {
    fn generate(cell: Cell, numbers: Numbers, random: &mut StdRng) -> Self {
        let mut draw = |least: usize, most: usize| random.random_range(least..=most);
        let size = |draw: &mut dyn FnMut(usize, usize) -> usize| match draw(0, 9) {
            0..=4 => draw(1, 9),
            5..=7 => 8 * draw(1, 4),
            _ => draw(33, 70),
        };
        let (steps, batch) = (draw(1, 12), draw(1, 9));
        let (inputs, hidden) = (size(&mut draw), size(&mut draw));
        let is_lstm = cell == Cell::Lstm;
        Self {
            cell,
            numbers,
            steps,
            batch,
            inputs,
            hidden,
            has_bias: draw(0, 2) > 0,
            is_reversed: is_lstm && draw(0, 1) == 0,
            // Burn's GRU has the batch first.
            is_batch_first: !is_lstm || draw(0, 1) == 0,
            has_states: draw(0, 1) == 0,
            cut: if draw(0, 2) == 0 { [draw(0, 5), draw(0, 5)] } else { [0; 2] },
        }
    }

    /// Place of the numbers of a sequence in a step of the input, as the layer computes the steps.
    fn place(&self, step: usize, sequence: usize) -> usize {
        let step = if self.is_reversed { self.steps - 1 - step } else { step };
        if self.is_batch_first { sequence * self.steps + step } else { step * self.batch + sequence }
    }

    fn errors(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<Errors> {
        let Self { numbers, steps, batch, inputs, hidden, .. } = *self;
        let device = device.clone().autodiff();
        let order = |width| if self.is_batch_first { [batch, steps, width] } else { [steps, batch, width] };
        let [before, behind] = self.cut;
        let whole = order(before + inputs + behind);
        let input = on_device(random_host(&whole, random), whole, numbers, &device).narrow(2, before, inputs);
        let input = input.detach().require_grad();
        let mut leaf = |shape: [usize; 2], scale: f32| {
            let values = random_host(&shape, random).into_iter().map(|value| value * scale).collect();
            on_device(values, shape, numbers, &device)
        };
        let states = [(); 2].map(|()| leaf([batch, hidden], 1.0).require_grad());
        let factors = [(); 2].map(|()| leaf([batch, hidden], 1.0));
        // As large as those of a trained layer: larger ones saturate the gates, and their gradients vanish in f16.
        let scale = 2.0 / (hidden.max(inputs) as f32).sqrt();
        let gates: Vec<Gate<Tensor<2>>> = (0..self.cell.gates())
            .map(|_| {
                [inputs, hidden].map(|rows| {
                    let weight = leaf([rows, hidden], scale).require_grad();
                    (weight, self.has_bias.then(|| leaf([1, hidden], scale)))
                })
            })
            .collect();
        let factor = on_device(random_host(&order(hidden), random), order(hidden), numbers, &device);
        let layer = Layer::new(self, &gates, &device);
        let (output, last) = layer.forward(input.clone(), self.has_states.then(|| states.clone()));
        let mut loss = (output.clone() * factor.clone()).sum();
        for (state, factor) in last.iter().zip(&factors) {
            loss = loss + (state.clone() * factor.clone()).sum();
        }
        let gradients = loss.backward();
        let zeros = || Ok(vec![0.0; batch * hidden]);
        let [h, c] = states.clone().map(|state| if self.has_states { host(state) } else { zeros() });
        let mut reference = Reference::new(self, host(input.clone())?, [h?, c?], on_host(&gates)?);
        reference.forward();
        let of_last = if last.is_empty() { [zeros(), zeros()] } else { factors.map(host) };
        let [of_h, of_c] = of_last;
        reference.backward(&host(factor)?, [of_h?, of_c?]);
        let mut errors = Errors::new();
        let mut compare = |tensor: &'static str, found: &[f64], expected: &[f64]| {
            errors.insert(tensor, worse(errors.get(tensor).copied().unwrap_or(0.0), error(found, expected)));
        };
        compare("output", &host(output.inner())?, &reference.output);
        for (state, expected) in
            last.into_iter().zip([reference.last_hidden(), reference.cells.last().cloned().unwrap_or_default()])
        {
            compare("last_states", &host(state.inner())?, &expected);
        }
        if self.has_states {
            for (state, expected) in states.iter().zip(&reference.of_states).take(self.cell.states()) {
                let found = state.grad(&gradients).context("no gradient of a state")?;
                compare("of_states", &host(found)?, expected);
            }
        }
        let of_input = host(input.grad(&gradients).context("no gradient of the input")?)?;
        errors.insert("of_input", reference.of_input.error(&of_input));
        let mut compare_sums = |tensor: &'static str, found: &[f64], expected: &Sums| {
            errors.insert(tensor, worse(errors.get(tensor).copied().unwrap_or(0.0), expected.error(found)));
        };
        let parameters = layer.gradients(&gradients)?;
        for (found, expected) in parameters.iter().flatten().zip(reference.of_gates.iter().flatten()) {
            compare_sums("of_weights", &found.0, &expected.0);
            if let (Some(found), Some(expected)) = (&found.1, &expected.1) {
                compare_sums("of_biases", found, expected);
            }
        }
        Ok(errors)
    }
}

/// Largest difference, relative to the largest number.
fn error(found: &[f64], expected: &[f64]) -> f64 {
    if found.len() != expected.len() {
        return f64::INFINITY;
    }
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |largest, number| largest.max(number.abs()));
    found.iter().zip(expected).map(|(found, expected)| (found - expected).abs() / largest).fold(0.0, worse)
}

fn on_host(gates: &[Gate<Tensor<2>>]) -> anyhow::Result<Vec<Gate<Vec<f64>>>> {
    let of = |(weight, bias): &(Tensor<2>, Option<Tensor<2>>)| {
        anyhow::Ok((host(weight.clone())?, bias.clone().map(host).transpose()?))
    };
    gates.iter().map(|[input, hidden]| Ok([of(input)?, of(hidden)?])).collect()
}

/// A module of `gpu_tuned::nn`. Gates have the order of [`Cell`].
enum Layer {
    Lstm(Box<Lstm>),
    Gru(Box<Gru>),
}

impl Layer {
    fn new(case: &Case, gates: &[Gate<Tensor<2>>], device: &Device) -> Self {
        let Case { inputs, hidden, has_bias, is_reversed, is_batch_first, .. } = *case;
        let linear = |(weight, bias): &(Tensor<2>, Option<Tensor<2>>)| Linear {
            weight: Param::from_tensor(weight.clone().detach()),
            bias: bias.as_ref().map(|bias| Param::from_tensor(bias.clone().detach().reshape([hidden]))),
        };
        let mut gates = gates
            .iter()
            .map(|[input, hidden]| GateController { input_transform: linear(input), hidden_transform: linear(hidden) });
        let mut gate = || gates.next().expect("BUG: a gate for each of the cell's");
        match case.cell {
            Cell::Lstm => {
                let config = LstmConfig::new(inputs, hidden, has_bias);
                let mut layer = config.with_batch_first(is_batch_first).with_reverse(is_reversed).init(device);
                (layer.input_gate, layer.forget_gate) = (gate(), Some(gate()));
                (layer.cell_gate, layer.output_gate) = (gate(), gate());
                Self::Lstm(Box::new(layer))
            }
            Cell::Gru => {
                let mut layer = GruConfig::new(inputs, hidden, has_bias).init(device);
                (layer.reset_gate, layer.update_gate, layer.new_gate) = (gate(), gate(), gate());
                Self::Gru(Box::new(layer))
            }
        }
    }

    /// Hidden states of all steps, and the last hidden and cell state of an LSTM.
    fn forward(&self, input: Tensor<3>, states: Option<[Tensor<2>; 2]>) -> (Tensor<3>, Vec<Tensor<2>>) {
        match self {
            Self::Lstm(layer) => {
                let (output, last) = layer.forward(input, states.map(|[hidden, cell]| LstmState::new(cell, hidden)));
                (output, vec![last.hidden, last.cell])
            }
            Self::Gru(layer) => (layer.forward(input, states.map(|[hidden, _]| hidden)), Vec::new()),
        }
    }

    fn gates(&self) -> Vec<&GateController> {
        match self {
            Self::Lstm(it) => {
                [&it.input_gate].into_iter().chain(&it.forget_gate).chain([&it.cell_gate, &it.output_gate]).collect()
            }
            Self::Gru(it) => vec![&it.reset_gate, &it.update_gate, &it.new_gate],
        }
    }

    fn gradients(&self, gradients: &Gradients) -> anyhow::Result<Vec<Gate<Vec<f64>>>> {
        let of = |linear: &Linear| {
            let weight = linear.weight.val().grad(gradients).context("no gradient of a weight")?;
            let bias = linear.bias.as_ref();
            let bias = bias.map(|bias| host(bias.val().grad(gradients).context("no gradient of a bias")?));
            anyhow::Ok((host(weight)?, bias.transpose()?))
        };
        self.gates().into_iter().map(|gate| Ok([of(&gate.input_transform)?, of(&gate.hidden_transform)?])).collect()
    }
}

/// The layer in f64.
struct Reference<'a> {
    case: &'a Case,
    input: Vec<f64>,
    /// Hidden and cell state before the first step.
    states: [Vec<f64>; 2],
    gates: Vec<Gate<Vec<f64>>>,
    output: Vec<f64>,
    /// Hidden and cell states after each step.
    hiddens: Vec<Vec<f64>>,
    cells: Vec<Vec<f64>>,
    of_input: Sums,
    of_states: [Vec<f64>; 2],
    of_gates: Vec<Gate<Sums>>,
}

fn sigmoid(number: f64) -> f64 {
    1.0 / (1.0 + (-number).exp())
}

/// Sums of a gate for one number of a state: of the input, and of the hidden state.
type Parts = [f64; 2];

impl<'a> Reference<'a> {
    fn new(case: &'a Case, input: Vec<f64>, states: [Vec<f64>; 2], gates: Vec<Gate<Vec<f64>>>) -> Self {
        let zeros = |(weight, bias): &(Vec<f64>, Option<Vec<f64>>)| {
            (Sums::new(weight.len()), bias.as_ref().map(|bias| Sums::new(bias.len())))
        };
        let of_gates = gates.iter().map(|[input, hidden]| [zeros(input), zeros(hidden)]).collect();
        Self {
            case,
            output: vec![0.0; case.steps * case.batch * case.hidden],
            of_input: Sums::new(input.len()),
            of_states: [vec![], vec![]],
            of_gates,
            input,
            states,
            gates,
            hiddens: Vec::new(),
            cells: Vec::new(),
        }
    }

    fn last_hidden(&self) -> Vec<f64> {
        self.hiddens.last().cloned().unwrap_or_default()
    }

    /// A state before a step, for a sequence.
    fn before(&self, which: usize, step: usize, sequence: usize) -> &[f64] {
        let all = [&self.hiddens, &self.cells][which];
        let states = step.checked_sub(1).map_or(&self.states[which], |before| &all[before]);
        &states[sequence * self.case.hidden..][..self.case.hidden]
    }

    /// The vectors of a step: the input, and the hidden state before.
    fn vectors(&self, step: usize, sequence: usize) -> [&[f64]; 2] {
        let inputs = self.case.inputs;
        [&self.input[self.case.place(step, sequence) * inputs..][..inputs], self.before(0, step, sequence)]
    }

    fn parts(&self, step: usize, sequence: usize, at: usize) -> Vec<Parts> {
        let vectors = self.vectors(step, sequence);
        let part = |(weight, bias): &(Vec<f64>, Option<Vec<f64>>), vector: &[f64]| {
            let products = vector.iter().enumerate().map(|(row, number)| number * weight[row * self.case.hidden + at]);
            products.sum::<f64>() + bias.as_ref().map_or(0.0, |bias| bias[at])
        };
        self.gates.iter().map(|[input, hidden]| [part(input, vectors[0]), part(hidden, vectors[1])]).collect()
    }

    fn forward(&mut self) {
        let Case { steps, batch, hidden, cell, .. } = *self.case;
        for step in 0..steps {
            let (mut hiddens, mut cells) = (Vec::new(), Vec::new());
            for sequence in 0..batch {
                for at in 0..hidden {
                    let parts = self.parts(step, sequence, at);
                    let sum = |gate: usize| parts[gate][0] + parts[gate][1];
                    hiddens.push(match cell {
                        Cell::Lstm => {
                            let kept = sigmoid(sum(1)) * self.before(1, step, sequence)[at];
                            let new = kept + sigmoid(sum(0)) * sum(2).tanh();
                            cells.push(new);
                            sigmoid(sum(3)) * new.tanh()
                        }
                        Cell::Gru => {
                            let candidate = (parts[2][0] + sigmoid(sum(0)) * parts[2][1]).tanh();
                            let update = sigmoid(sum(1));
                            (1.0 - update) * candidate + update * self.before(0, step, sequence)[at]
                        }
                    });
                }
                let place = self.case.place(step, sequence) * hidden;
                self.output[place..place + hidden].copy_from_slice(&hiddens[sequence * hidden..]);
            }
            self.hiddens.push(hiddens);
            self.cells.push(cells);
        }
    }

    /// Gradients for those of the output, and of the last hidden and cell state.
    fn backward(&mut self, of_output: &[f64], [mut of_hidden, mut of_cell]: [Vec<f64>; 2]) {
        let Case { steps, batch, inputs, hidden, cell, .. } = *self.case;
        for step in (0..steps).rev() {
            let mut of_before = vec![0.0; batch * hidden];
            for sequence in 0..batch {
                let place = self.case.place(step, sequence);
                for at in 0..hidden {
                    let parts = self.parts(step, sequence, at);
                    let sum = |gate: usize| parts[gate][0] + parts[gate][1];
                    let state = sequence * hidden + at;
                    let dh = of_hidden[state] + of_output[place * hidden + at];
                    // Gradients of both sums of each gate.
                    let of_parts: Vec<Parts> = match cell {
                        Cell::Lstm => {
                            let [i, f, o] = [0, 1, 3].map(|gate| sigmoid(sum(gate)));
                            let (g, c) = (sum(2).tanh(), self.cells[step][state].tanh());
                            let dc = of_cell[state] + dh * o * (1.0 - c * c);
                            let before = self.before(1, step, sequence)[at];
                            of_cell[state] = dc * f;
                            let of = [
                                dc * g * i * (1.0 - i),
                                dc * before * f * (1.0 - f),
                                dc * i * (1.0 - g * g),
                                dh * c * o * (1.0 - o),
                            ];
                            of.map(|of| [of; 2]).to_vec()
                        }
                        Cell::Gru => {
                            let [r, z] = [0, 1].map(|gate| sigmoid(sum(gate)));
                            let n = (parts[2][0] + r * parts[2][1]).tanh();
                            let before = self.before(0, step, sequence)[at];
                            of_before[state] += dh * z;
                            let dn = dh * (1.0 - z) * (1.0 - n * n);
                            let (dr, dz) = (dn * parts[2][1] * r * (1.0 - r), dh * (before - n) * z * (1.0 - z));
                            vec![[dr; 2], [dz; 2], [dn, dn * r]]
                        }
                    };
                    let vectors = self.vectors(step, sequence).map(<[f64]>::to_vec);
                    for (gate, of_parts) in of_parts.into_iter().enumerate() {
                        for (part, of) in of_parts.into_iter().enumerate() {
                            let (of_weight, of_bias) = &mut self.of_gates[gate][part];
                            if let Some(of_bias) = of_bias {
                                of_bias.add(at, of);
                            }
                            for (row, number) in vectors[part].iter().enumerate() {
                                of_weight.add(row * hidden + at, of * number);
                                let through = of * self.gates[gate][part].0[row * hidden + at];
                                if part == 0 {
                                    self.of_input.add(place * inputs + row, through);
                                } else {
                                    of_before[sequence * hidden + row] += through;
                                }
                            }
                        }
                    }
                }
            }
            of_hidden = of_before;
        }
        self.of_states = [of_hidden, of_cell];
    }
}

#[derive(Serialize)]
struct Timed {
    run: &'static str,
    cell: &'static str,
    numbers: Numbers,
    layers: usize,
    width: usize,
    steps: usize,
    batch: usize,
    /// Milliseconds of a forward and a backward pass by Burn's modules. Burn's LSTM needs the device's own type.
    burn: Option<f64>,
    /// The same by `joint_lstm`.
    joint: Option<f64>,
    library: f64,
}

const LAYERS: usize = 3;
const WIDTH: usize = 256;
const STEPS: usize = 60;

/// A forward and a backward pass of three layers, with the gradients of all parameters.
fn time(device: &Device, batch: usize) -> anyhow::Result<()> {
    for cell in Cell::ALL {
        for numbers in [Numbers::Tf32, Numbers::F16, Numbers::Bf16] {
            select(device, numbers, false)?;
            if !is_by_library(cell, numbers, device)? {
                continue;
            }
            let device = device.clone().autodiff();
            let case = Case {
                cell,
                numbers,
                steps: STEPS,
                batch,
                inputs: WIDTH,
                hidden: WIDTH,
                has_bias: true,
                is_reversed: false,
                is_batch_first: true,
                has_states: false,
                cut: [0; 2],
            };
            let random = |shape: [usize; 2]| {
                let tensor = Tensor::<2>::random(shape, Distribution::Normal(0.0, 0.06), (&device, DType::F32));
                tensor.cast(numbers.float())
            };
            let part = || (random([WIDTH, WIDTH]), Some(random([1, WIDTH])));
            let layers: Vec<Layer> = (0..LAYERS)
                .map(|_| {
                    let gates: Vec<_> = (0..cell.gates()).map(|_| [part(), part()]).collect();
                    Layer::new(&case, &gates, &device)
                })
                .collect();
            let input = random([batch * STEPS, WIDTH]).reshape([batch, STEPS, WIDTH]).detach();
            let pass = |forward: fn(&Layer, Tensor<3>) -> Tensor<3>| {
                let output = layers.iter().fold(input.clone(), |input, layer| forward(layer, input));
                drop(output.sum().backward());
            };
            let by_module = || pass(|layer, input| layer.forward(input, None).0);
            let launched = cudnn_use().calls;
            let library = milliseconds(&device, by_module)?;
            ensure!(cudnn_use().calls > launched, "the library computed none of the layers");
            select_burn();
            let is_f32 = numbers == Numbers::Tf32;
            let burn = is_f32.then(|| milliseconds(&device, by_module)).transpose()?;
            let by_joint = || {
                pass(|layer, input| match layer {
                    Layer::Lstm(layer) => joint_lstm(layer, input, None).0,
                    Layer::Gru(layer) => layer.forward(input, None),
                });
            };
            let has_joint = is_f32 && cell == Cell::Lstm;
            let joint = has_joint.then(|| milliseconds(&device, by_joint)).transpose()?;
            let (run, cell) = ("recurrent times", name(cell));
            let timed =
                Timed { run, cell, numbers, layers: LAYERS, width: WIDTH, steps: STEPS, batch, burn, joint, library };
            println!("{}", serde_json::to_string(&timed)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas in fp64 are those of Burn's modules on the CPU.
    #[test]
    fn the_reference_agrees_with_burn() {
        let mut random = StdRng::seed_from_u64(1);
        for cell in Cell::ALL {
            for _ in 0..24 {
                let case = Case::generate(cell, Numbers::F32, &mut random);
                let errors = case.errors(&Device::flex(), &mut random).expect("errors");
                assert!(errors.len() >= 3, "{errors:?}");
                assert!(errors.values().all(|error| *error <= limit(Numbers::F32)), "{errors:?} {case:?}");
            }
        }
    }
}
