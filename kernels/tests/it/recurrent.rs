//! Recurrent layers of random sizes beside Burn's on the CPU.

use burn::module::Param;
use burn::nn::gru::{Gru, GruConfig};
use burn::nn::{GateController, Linear, Lstm, LstmConfig, LstmState};
use burn::tensor::{Device, Gradients, Tensor, TensorData};
use fake_cudnn::{Behaviour, Fake};
use gpu_tuned_kernels::cublaslt::Element;
use gpu_tuned_kernels::cudnn::{Cudnn, CudnnError, Recurrent, RecurrentGradients, RecurrentPlan};
use gpu_tuned_kernels::product::{gru_weights, lstm_weights, recurrent};
use gpu_tuned_kernels::recurrence::{Cell, Recurrence};
use proptest::prelude::*;

use crate::convolutions::{Opened, internal_error};
use crate::memory::{Buffer, UNTOUCHED};

/// A layer, its sizes and its numbers.
#[derive(Clone, Debug)]
struct Case {
    recurrence: Recurrence,
    seed: usize,
}

fn cases() -> impl Strategy<Value = Case> {
    let elements =
        prop_oneof![Just(Element::F32 { tf32: false }), Just(Element::F32 { tf32: true }), Just(Element::Bf16)];
    let cells = prop_oneof![Just(Cell::Lstm), Just(Cell::Gru)];
    let sizes = (1_usize..5, 1_usize..4, 1_usize..5, 1_usize..5);
    (elements, cells, any::<bool>(), sizes, 0_usize..1000).prop_map(
        |(element, cell, has_bias, (steps, batch, inputs, hidden), seed)| Case {
            recurrence: Recurrence { cell, element, has_bias, steps, batch, inputs, hidden },
            seed,
        },
    )
}

/// A multiple of an eighth between -1 and 1: bf16 has all of them.
fn numbers(seed: usize, count: usize) -> Vec<f32> {
    let mixed = |index: usize| (index + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503_977));
    (0..count).map(|index| ((mixed(index) >> 9) % 17) as f32 / 8.0 - 1.0).collect()
}

pub(crate) fn tensor<const D: usize>(seed: usize, shape: [usize; D], device: &Device) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers(seed, shape.iter().product()), shape), device)
}

pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// One of Burn's layers.
enum Layer {
    Lstm(Box<Lstm>),
    Gru(Box<Gru>),
}

impl Layer {
    fn gates(&self) -> Vec<&GateController> {
        match self {
            Self::Lstm(it) => {
                let forget = it.forget_gate.as_ref().expect("no coupled gates");
                vec![&it.input_gate, forget, &it.cell_gate, &it.output_gate]
            }
            Self::Gru(it) => vec![&it.reset_gate, &it.update_gate, &it.new_gate],
        }
    }

    fn weights(&self) -> Option<Tensor<1>> {
        match self {
            Self::Lstm(layer) => lstm_weights(layer),
            Self::Gru(layer) => gru_weights(layer),
        }
    }

    /// Gradients of all parameters.
    fn gradients(&self, gradients: &Gradients) -> Vec<f32> {
        let of_layer = |layer: &Linear| {
            let weight = host(layer.weight.val().grad(gradients).expect("it is trained"));
            let bias = layer.bias.as_ref().map(|bias| host(bias.val().grad(gradients).expect("it is trained")));
            [weight, bias.unwrap_or_default()].concat()
        };
        let gates = self.gates();
        gates
            .iter()
            .flat_map(|gate| [of_layer(&gate.input_transform), of_layer(&gate.hidden_transform)].concat())
            .collect()
    }
}

/// Numbers of the passes: output, gradients of input, states and parameters.
type Results = [Vec<f32>; 4];

impl Case {
    fn layer(&self, device: &Device) -> Layer {
        let Recurrence { cell, has_bias, inputs, hidden, .. } = self.recurrence;
        let mut seed = 10 * self.seed;
        let mut linear = |inputs: usize| {
            seed += 2;
            Linear {
                weight: Param::from_tensor(tensor(seed, [inputs, hidden], device)),
                bias: has_bias.then(|| Param::from_tensor(tensor(seed + 1, [hidden], device))),
            }
        };
        let mut gate = || GateController { input_transform: linear(inputs), hidden_transform: linear(hidden) };
        match cell {
            Cell::Lstm => {
                let mut layer = LstmConfig::new(inputs, hidden, has_bias).init(device);
                (layer.input_gate, layer.forget_gate) = (gate(), Some(gate()));
                (layer.cell_gate, layer.output_gate) = (gate(), gate());
                Layer::Lstm(Box::new(layer))
            }
            Cell::Gru => {
                let mut layer = GruConfig::new(inputs, hidden, has_bias).init(device);
                (layer.reset_gate, layer.update_gate, layer.new_gate) = (gate(), gate(), gate());
                Layer::Gru(Box::new(layer))
            }
        }
    }

    /// Seeds of input, states and the output's gradient, with their shapes.
    fn tensors(&self) -> [(usize, [usize; 3]); 3] {
        let Recurrence { cell, steps, batch, inputs, hidden, .. } = self.recurrence;
        let shapes = [[steps, batch, inputs], [cell.states(), batch, hidden], self.recurrence.output_shape()];
        [0, 1, 2].map(|which| (self.seed + which, shapes[which]))
    }

    /// The passes by a function of the input, `[steps, batch, inputs]`, and the states.
    fn by(&self, layer: &Layer, device: &Device, run: impl Fn(Tensor<3>, Tensor<3>) -> Tensor<3>) -> Results {
        let [input, states, factor] = self.tensors().map(|(seed, shape)| tensor(seed, shape, device));
        let (input, states) = (input.require_grad(), states.require_grad());
        let output = run(input.clone(), states.clone());
        let gradients = (output.clone() * factor).sum().backward();
        let of = |leaf: Tensor<3>| host(leaf.grad(&gradients).expect("it is trained"));
        [host(output.inner()), of(input), of(states), layer.gradients(&gradients)]
    }

    fn by_burn(&self) -> Results {
        let device = Device::flex().autodiff();
        let layer = self.layer(&device);
        self.by(&layer, &device, |input, states| {
            let input = input.swap_dims(0, 1);
            let state = |which| states.clone().narrow(0, which, 1).squeeze_dim(0);
            match &layer {
                Layer::Lstm(layer) => {
                    let (output, last) = layer.forward(input, Some(LstmState::new(state(1), state(0))));
                    Tensor::cat(vec![output.swap_dims(0, 1), last.cell.unsqueeze_dim(0)], 0)
                }
                Layer::Gru(layer) => layer.forward(input, Some(state(0))).swap_dims(0, 1),
            }
        })
    }

    /// Largest difference allowed, relative to the largest number.
    fn limit(&self) -> f32 {
        match self.recurrence.element {
            Element::F32 { tf32: false } => 1e-5,
            Element::F32 { tf32: true } | Element::F16 => 1e-2,
            Element::Bf16 => 6e-2,
        }
    }
}

pub(crate) fn are_close(found: &[f32], expected: &[f32], limit: f32) -> bool {
    let largest = expected.iter().fold(1.0_f32, |largest, number| largest.max(number.abs()));
    let is_close = |(found, expected): (&f32, &f32)| (found - expected).abs() <= limit * largest;
    found.len() == expected.len() && found.iter().zip(expected).all(is_close)
}

/// Buffers of all tensors.
struct Buffers {
    read: [Buffer; 3],
    output: Buffer,
    gradient: Buffer,
    of: [Buffer; 3],
    reserve: Buffer,
    workspace: Buffer,
    /// Numbers of input, weights, states and output.
    counts: [usize; 4],
    bytes: [usize; 2],
}

impl Buffers {
    fn new(case: &Case, plan: &RecurrentPlan, weights: Vec<f32>) -> Self {
        let element = case.recurrence.element;
        let filled = |numbers: Vec<f32>| {
            let mut buffer = Buffer::new(element, 0, numbers.len());
            numbers.iter().enumerate().for_each(|(at, number)| buffer.set(at, *number));
            buffer
        };
        let [input, states, factor] =
            case.tensors().map(|(seed, shape)| numbers(seed, shape.iter().product::<usize>()));
        let counts = [input.len(), weights.len(), states.len(), factor.len()];
        let bytes = [plan.reserve_bytes(), plan.workspace_bytes(true).max(plan.workspace_bytes(false))];
        let [reserve, workspace] = bytes.map(Buffer::of_bytes);
        Self {
            read: [filled(input), filled(weights), filled(states)],
            output: Buffer::new(element, 0, counts[3]),
            gradient: filled(factor),
            of: [0, 1, 2].map(|which| filled(vec![if which == 1 { 0.0 } else { UNTOUCHED }; counts[which]])),
            reserve,
            workspace,
            counts,
            bytes,
        }
    }

    fn forward(&mut self, is_training: bool) -> Recurrent {
        let [input, weights, states, output] = self.counts;
        Recurrent {
            input: self.read[0].memory(input),
            weights: self.read[1].memory(weights),
            states: self.read[2].memory(states),
            output: self.output.memory(output),
            reserve: is_training.then(|| self.reserve.memory(self.bytes[0] / 2)),
            workspace: Some(self.workspace.memory(self.bytes[1] / 2)),
        }
    }

    fn backward(&mut self) -> RecurrentGradients {
        let Recurrent { input, weights, states, output, reserve, workspace } = self.forward(true);
        RecurrentGradients {
            input,
            weights,
            states,
            output,
            gradient: self.gradient.memory(self.counts[3]),
            of_input: self.of[0].memory(self.counts[0]),
            of_weights: self.of[1].memory(self.counts[1]),
            of_states: self.of[2].memory(self.counts[2]),
            reserve: reserve.expect("in training"),
            workspace,
        }
    }

    fn of(&self, which: usize) -> Vec<f32> {
        (0..self.counts[which]).map(|at| self.of[which].get(at)).collect()
    }

    fn outputs(&self) -> Vec<f32> {
        (0..self.counts[3]).map(|at| self.output.get(at)).collect()
    }
}

const STREAM: *mut std::ffi::c_void = std::ptr::null_mut();

proptest! {
    #[test]
    fn all_passes_are_burns(case in cases()) {
        let opened = Opened::new();
        let plan = opened.handle.plan_recurrence(case.recurrence.clone()).expect("a plan");
        let device = Device::flex().autodiff();
        let layer = case.layer(&device);
        let weights = layer.weights().expect("a plain layer");
        let mut buffers = Buffers::new(&case, &plan, host(weights.clone().inner()));
        // SAFETY: the memory is the host's, which the fake computes on, and lives.
        unsafe { plan.launch(buffers.forward(false), STREAM) }.expect("inference");
        let inferred = buffers.outputs();
        // SAFETY: as above.
        unsafe { plan.launch(buffers.forward(true), STREAM) }.expect("a forward pass");
        // SAFETY: as above.
        unsafe { plan.launch_gradients(buffers.backward(), STREAM) }.expect("a backward pass");
        prop_assert_eq!(&inferred, &buffers.outputs(), "inference");
        // Gradients reach the parameters through the joined weights.
        let of_weights = Tensor::<1>::from_data(TensorData::new(buffers.of(1), weights.dims()), &device);
        let of_parameters = layer.gradients(&(weights * of_weights).sum().backward());
        let found = [buffers.outputs(), buffers.of(0), buffers.of(2), of_parameters];
        let names = ["output", "gradient of the input", "gradient of the states", "gradients of the parameters"];
        for ((found, expected), name) in found.iter().zip(case.by_burn()).zip(names) {
            prop_assert!(are_close(found, &expected, case.limit()), "{}: {:?} {:?}", name, found, expected);
        }
        drop(plan);
        let counts = opened.close();
        // A handle; dropout, layer, two sequences and a state; two tensors for the places of weights.
        prop_assert_eq!((counts.alive, counts.mistakes, counts.created), (0, 0, 8));
    }

    #[test]
    fn the_operation_on_the_cpu_is_burns(case in cases()) {
        let device = Device::flex().autodiff();
        let layer = case.layer(&device);
        let found = case.by(&layer, &device, |input, states| {
            recurrent(case.recurrence.cell, input, layer.weights().expect("a plain layer"), states)
        });
        for (found, expected) in found.iter().zip(case.by_burn()) {
            prop_assert!(are_close(found, &expected, 1e-5), "{:?} {:?}", found, expected);
        }
    }

    #[test]
    fn a_buffer_that_is_too_small_leaves_all_memory_as_it_was(case in cases(), which in 0_usize..10) {
        let opened = Opened::new();
        let plan = opened.handle.plan_recurrence(case.recurrence.clone()).expect("a plan");
        let mut buffers = Buffers::new(&case, &plan, numbers(0, case.recurrence.weights()));
        let mut memory = buffers.backward();
        let it = &mut memory;
        let all = [
            &mut it.input, &mut it.weights, &mut it.states, &mut it.output, &mut it.reserve,
            it.workspace.as_mut().expect("one"), &mut it.gradient, &mut it.of_input, &mut it.of_weights, &mut it.of_states,
        ];
        let needed = all[which].bytes;
        all[which].bytes -= 1;
        let too_small = Err(CudnnError::TooLarge { needed, found: needed - 1 });
        // SAFETY: as above.
        prop_assert_eq!(unsafe { plan.launch_gradients(memory, STREAM) }, too_small.clone());
        if which < 6 {
            let RecurrentGradients { input, weights, states, output, reserve, workspace, .. } = memory;
            let memory = Recurrent { input, weights, states, output, reserve: Some(reserve), workspace };
            // SAFETY: as above.
            prop_assert_eq!(unsafe { plan.launch(memory, STREAM) }, too_small);
        }
        prop_assert!(buffers.output.touched(buffers.counts[3]).is_empty());
        prop_assert!(buffers.of[0].touched(buffers.counts[0]).is_empty());
        drop(plan);
        prop_assert_eq!(opened.close().mistakes, 0);
    }
}

fn case() -> Case {
    let element = Element::F32 { tf32: false };
    let recurrence = Recurrence { cell: Cell::Lstm, element, has_bias: true, steps: 2, batch: 2, inputs: 3, hidden: 2 };
    Case { recurrence, seed: 1 }
}

#[test]
fn each_call_that_fails_is_named_and_leaks_nothing() {
    for call in [
        "cudnnCreateDropoutDescriptor",
        "cudnnSetDropoutDescriptor",
        "cudnnCreateRNNDescriptor",
        "cudnnSetRNNDescriptor_v8",
        "cudnnCreateRNNDataDescriptor",
        "cudnnSetRNNDataDescriptor",
        "cudnnCreateTensorDescriptor",
        "cudnnSetTensorNdDescriptor",
        "cudnnGetRNNTempSpaceSizes",
        "cudnnGetRNNWeightSpaceSize",
        "cudnnGetRNNWeightParams",
        "cudnnSetStream",
        "cudnnRNNForward",
        "cudnnRNNBackwardData_v8",
        "cudnnRNNBackwardWeights_v8",
    ] {
        let opened = Opened::new();
        opened.fake.behave(&Behaviour { fails: Some(call.to_owned()), ..Behaviour::default() });
        let failure = opened.handle.plan_recurrence(case().recurrence).and_then(|plan| {
            let mut buffers = Buffers::new(&case(), &plan, numbers(0, case().recurrence.weights()));
            // SAFETY: as above.
            unsafe {
                plan.launch(buffers.forward(true), STREAM)?;
                plan.launch_gradients(buffers.backward(), STREAM)
            }
        });
        assert_eq!(failure, Err(internal_error(call)));
        let counts = opened.close();
        assert_eq!((counts.alive, counts.mistakes), (0, 0), "{call}");
    }
}

#[test]
fn layers_that_the_library_does_not_compute_have_no_plan() {
    let opened = Opened::new();
    let refused = |recurrence| {
        let planned = opened.handle.plan_recurrence(recurrence);
        // The statuses of what is not supported.
        let is_refused =
            matches!(planned, Err(CudnnError::NoAlgorithm(_) | CudnnError::Call { status: 3000..4000, .. }));
        assert!(is_refused, "{:?}", planned.err());
    };
    opened.fake.behave(&Behaviour { has_algorithms: false, ..Behaviour::default() });
    refused(case().recurrence);
    opened.fake.behave(&Behaviour { has_other_weights: true, ..Behaviour::default() });
    refused(case().recurrence);
    opened.fake.behave(&Behaviour::default());
    // The fake computes no f16.
    refused(Recurrence { element: Element::F16, ..case().recurrence });
    refused(Recurrence { steps: 0, ..case().recurrence });
    refused(Recurrence { hidden: 1 << 32, ..case().recurrence });
    let counts = opened.close();
    assert_eq!((counts.alive, counts.mistakes), (0, 0));
}

#[test]
fn a_library_without_recurrent_layers_is_no_cudnn_9() {
    let fake = Fake::without("cudnnRNNForward");
    let failure = Cudnn::load(&fake.path()).expect_err("a function is missing").to_string();
    assert!(failure.contains("cudnnRNNForward"), "{failure}");
}

#[test]
fn layers_with_other_formulas_have_no_joined_weights() {
    use burn::nn::activation::ActivationConfig::{HardSwish, Relu};
    let device = Device::flex();
    let lstm = || LstmConfig::new(3, 2, true);
    assert!(lstm_weights(&lstm().init(&device)).is_some());
    assert!(lstm_weights(&lstm().with_reverse(true).with_batch_first(false).init(&device)).is_some());
    for other in [
        lstm().with_clip(Some(0.5)),
        lstm().with_input_forget(true),
        lstm().with_gate_activation(HardSwish),
        lstm().with_cell_activation(Relu),
        lstm().with_hidden_activation(Relu),
    ] {
        assert!(lstm_weights(&other.init(&device)).is_none(), "{other}");
    }
    let gru = || GruConfig::new(3, 2, true);
    assert!(gru_weights(&gru().init(&device)).is_some());
    for other in [
        gru().with_clip(Some(0.5)),
        gru().with_reset_after(false),
        gru().with_gate_activation(HardSwish),
        gru().with_hidden_activation(Relu),
    ] {
        assert!(gru_weights(&other.init(&device)).is_none(), "{other}");
    }
    let mut some_biases = gru().init(&device);
    some_biases.new_gate.hidden_transform.bias = None;
    assert!(gru_weights(&some_biases).is_none());
}
