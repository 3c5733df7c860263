//! Convolutions and batch norms of random sizes and layouts beside Burn's on the CPU.

#![allow(clippy::float_cmp, reason = "small whole numbers are exact")]

use std::collections::HashMap;

use burn::tensor::module::{batch_norm_train, conv1d, conv2d};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor, TensorData};
use fake_cudnn::{Behaviour, Counts, Fake};
use gpu_tuned_kernels::convolution::{Convolution, Format, Layout, Window};
use gpu_tuned_kernels::cublaslt::Element;
use gpu_tuned_kernels::cudnn::{Cudnn, CudnnError, Handle, Normalised, NormalisedGradients, Operands, Pass, Plan};
use gpu_tuned_kernels::find::LoadError;
use proptest::prelude::*;

use crate::memory::Buffer;

/// A library of its own with a handle, both freed at the end.
pub(crate) struct Opened {
    pub(crate) fake: Fake,
    pub(crate) handle: &'static Handle,
    library: &'static Cudnn,
}

impl Opened {
    pub(crate) fn new() -> Self {
        let fake = Fake::new();
        let library: &'static Cudnn = Box::leak(Box::new(Cudnn::load(&fake.path()).expect("a library")));
        let handle = Box::leak(Box::new(Handle::new(library).expect("a handle")));
        Self { fake, handle, library }
    }

    /// Frees the handle. No plan is alive.
    pub(crate) fn close(self) -> Counts {
        let Self { fake, handle, library } = self;
        // SAFETY: leaked by `new`, and nothing borrows it any more.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(handle).cast_mut()) });
        let counts = fake.counts();
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(std::ptr::from_ref(library).cast_mut()) });
        counts
    }
}

/// Shapes of a convolution with one or two sizes.
#[derive(Clone, Debug)]
struct Case {
    element: Element,
    format: Format,
    input: Vec<usize>,
    weight: Vec<usize>,
    window: Window,
    /// Numbers between rows, and between samples.
    gaps: [usize; 2],
    seed: usize,
}

fn elements() -> impl Strategy<Value = Element> {
    prop_oneof![Just(Element::F32 { tf32: false }), Just(Element::F32 { tf32: true }), Just(Element::Bf16)]
}

fn cases() -> impl Strategy<Value = Case> {
    let size = (1_usize..4, 1_usize..4, 0_usize..3, 1_usize..3, 0_usize..4);
    let sizes = proptest::collection::vec(size, 1..3);
    let formats = prop_oneof![Just(Format::ChannelsFirst), Just(Format::ChannelsLast)];
    let counts = (1_usize..3, 1_usize..4, 1_usize..3, 1_usize..3);
    (elements(), formats, sizes, counts, [0_usize..3, 0_usize..3], 0_usize..1000).prop_map(
        |(element, format, sizes, (batch, groups, inputs, outputs), gaps, seed)| {
            let of = |get: fn(&(usize, usize, usize, usize, usize)) -> usize| sizes.iter().map(get).collect::<Vec<_>>();
            // The kernel has at least one position.
            let input = of(|&(kernel, _, padding, dilation, more)| {
                (dilation * (kernel - 1) + 1).saturating_sub(2 * padding).max(1) + more
            });
            Case {
                element,
                format,
                input: [vec![batch, groups * inputs], input].concat(),
                weight: [vec![groups * outputs, inputs], of(|size| size.0)].concat(),
                window: Window { stride: of(|it| it.1), padding: of(|it| it.2), dilation: of(|it| it.3), groups },
                gaps,
                seed,
            }
        },
    )
}

/// The shape with a row before one size: the library has no convolutions of one size.
fn with_row(shape: &[usize]) -> Vec<usize> {
    let mut shape = shape.to_vec();
    if shape.len() == 3 {
        shape.insert(2, 1);
    }
    shape
}

impl Case {
    fn output(&self) -> Vec<usize> {
        let sizes = self.window.output_sizes(&self.input[2..], &self.weight[2..]).expect("a position");
        [vec![self.input[0], self.weight[0]], sizes].concat()
    }

    /// A layout with gaps.
    fn layout(&self, shape: &[usize]) -> Layout {
        let shape = with_row(shape);
        let order = self.format.order(shape.len());
        let mut strides = vec![0; shape.len()];
        let mut next = 1;
        for (position, dimension) in order.iter().rev().enumerate() {
            strides[*dimension] = next;
            next *= shape[*dimension];
            next += if position == 0 { self.gaps[0] } else { 0 } + if position == 2 { self.gaps[1] } else { 0 };
        }
        Layout::new(&shape, &strides, self.format).expect("gaps need no copy")
    }

    fn convolution(&self) -> Convolution {
        let window = self.window.clone();
        Convolution {
            element: self.element,
            input: self.layout(&self.input),
            weight: with_row(&self.weight),
            format: self.format,
            output: self.layout(&self.output()),
            window: if self.input.len() == 3 { window.with_row() } else { window },
        }
    }

    /// Burn's output on the CPU, and the gradients of input and weight for a gradient of the output.
    fn expected(&self, [input, weight, gradient]: [&[f32]; 3]) -> [Vec<f32>; 3] {
        match self.input.len() {
            3 => self.by_burn::<3, 1>([input, weight, gradient], |x, w, options| conv1d(x, w, None, options)),
            _ => self.by_burn::<4, 2>([input, weight, gradient], |x, w, options| conv2d(x, w, None, options)),
        }
    }

    fn by_burn<const D: usize, const N: usize>(
        &self,
        [input, weight, gradient]: [&[f32]; 3],
        convolve: impl Fn(Tensor<D>, Tensor<D>, ConvOptions<N>) -> Tensor<D>,
    ) -> [Vec<f32>; 3] {
        let device = Device::flex().autodiff();
        let tensor = |numbers: &[f32], shape: &[usize]| {
            Tensor::<D>::from_data(TensorData::new(numbers.to_vec(), shape.to_vec()), &device)
        };
        let window = &self.window;
        let of = |sizes: &[usize]| <[usize; N]>::try_from(sizes).expect("as many sizes");
        let options = ConvOptions::new(of(&window.stride), of(&window.padding), of(&window.dilation), 1);
        let (x, w) = (tensor(input, &self.input).require_grad(), tensor(weight, &self.weight).require_grad());
        // One group at a time: Burn 0.22's gradients of weights in groups are wrong where the stride leaves a rest.
        let [inputs, outputs] = [self.weight[1], self.weight[0] / window.groups];
        let groups = (0..window.groups).map(|group| {
            let (x, w) = (x.clone().narrow(1, group * inputs, inputs), w.clone().narrow(0, group * outputs, outputs));
            convolve(x, w, options.clone())
        });
        let y = Tensor::cat(groups.collect(), 1);
        let gradients = (y.clone() * tensor(gradient, &self.output())).sum().backward();
        let host = |tensor: Tensor<D>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
        let of = |tensor: Tensor<D>| host(tensor.grad(&gradients).expect("it is trained"));
        [host(y.inner()), of(x), of(w)]
    }
}

/// -1, 0 or 1: sums of them are exact in all types.
fn number(seed: usize, index: usize) -> f32 {
    let mixed = (index + 1).wrapping_mul(2_654_435_761).wrapping_add(seed.wrapping_mul(40_503));
    ((mixed >> 7) % 3) as f32 - 1.0
}

/// Index in memory of each number, in the order of the tensor's indices.
fn places(layout: &Layout) -> Vec<usize> {
    let mut places = vec![0];
    for (&size, &stride) in layout.shape.iter().zip(&layout.strides) {
        places = places.iter().flat_map(|place| (0..size).map(move |index| place + index * stride)).collect();
    }
    places
}

/// A tensor in host memory.
struct Placed {
    buffer: Buffer,
    layout: Layout,
}

impl Placed {
    fn new(element: Element, layout: Layout) -> Self {
        Self { buffer: Buffer::new(element, 0, layout.span()), layout }
    }

    fn fill(&mut self, seed: usize) -> Vec<f32> {
        let places = places(&self.layout);
        let numbers: Vec<f32> = (0..places.len()).map(|index| number(seed, index)).collect();
        places.iter().zip(&numbers).for_each(|(place, number)| self.buffer.set(*place, *number));
        numbers
    }

    fn numbers(&self) -> Vec<f32> {
        places(&self.layout).iter().map(|place| self.buffer.get(*place)).collect()
    }

    fn touched(&self) -> HashMap<usize, f32> {
        self.buffer.touched(self.layout.span())
    }
}

/// Input, weight and output of a convolution, and a workspace.
struct Tensors {
    of: [Placed; 3],
    workspace: Buffer,
}

impl Tensors {
    fn new(convolution: &Convolution, plan: &Plan) -> Self {
        let weight = Layout::packed(&convolution.weight, convolution.format);
        let layouts = [convolution.input.clone(), weight, convolution.output.clone()];
        let of = layouts.map(|layout| Placed::new(convolution.element, layout));
        Self { of, workspace: Buffer::of_bytes(plan.workspace_bytes()) }
    }

    fn operands(&mut self, plan: &Plan) -> Operands {
        let [input, weight, output] = self.of.each_mut().map(|placed| placed.buffer.memory(placed.layout.span()));
        Operands { input, weight, output, workspace: Some(self.workspace.memory(plan.workspace_bytes() / 2)) }
    }
}

/// Position of the result among input, weight and output.
fn result_of(pass: Pass) -> usize {
    match pass {
        Pass::Forward => 2,
        Pass::Input => 0,
        Pass::Weight => 1,
    }
}

proptest! {
    #[test]
    fn all_passes_are_burns(case in cases()) {
        let opened = Opened::new();
        let convolution = case.convolution();
        let results = Pass::ALL.map(|pass| {
            let plan = opened.handle.plan(convolution.clone(), pass, false).expect("a plan");
            let mut tensors = Tensors::new(&convolution, &plan);
            let mut numbers = [(); 3].map(|()| Vec::new());
            for which in (0..3).filter(|which| *which != result_of(pass)) {
                numbers[which] = tensors.of[which].fill(case.seed + which);
            }
            let operands = tensors.operands(&plan);
            // SAFETY: the memory is the host's, which the fake computes on, and lives.
            unsafe { plan.launch(operands, std::ptr::null_mut()) }.expect("a convolution");
            let result = &tensors.of[result_of(pass)];
            (numbers, result.numbers(), result.touched().len())
        });
        let [(of_forward, output, _), (of_input, _, _), _] = &results;
        let expected = case.expected([&of_forward[0], &of_forward[1], &of_input[2]]);
        prop_assert_eq!(output, &expected[0], "output");
        prop_assert_eq!(&results[1].1, &expected[1], "gradient of the input");
        prop_assert_eq!(&results[2].1, &expected[2], "gradient of the weight");
        for (_, numbers, touched) in &results {
            prop_assert_eq!(numbers.len(), *touched, "gaps");
        }
        let counts = opened.close();
        prop_assert_eq!((counts.alive, counts.mistakes), (0, 0), "{:?}", counts);
        // A handle, and for each pass three tensors and the operations: of the question, and of each algorithm. In f32, one of two
        // algorithms rounds.
        prop_assert_eq!(counts.created, if case.element == Element::Bf16 { 19 } else { 16 });
    }

    #[test]
    fn an_algorithm_that_the_library_refuses_to_compute_is_followed_by_the_next(case in cases(), pass in 0_usize..3) {
        let opened = Opened::new();
        let (convolution, pass) = (case.convolution(), Pass::ALL[pass]);
        let numbers = [false, true].map(|mispredicts| {
            opened.fake.behave(&Behaviour { mispredicts, ..Behaviour::default() });
            let plan = opened.handle.plan(convolution.clone(), pass, false).expect("a plan");
            let mut tensors = Tensors::new(&convolution, &plan);
            for which in (0..3).filter(|which| *which != result_of(pass)) {
                tensors.of[which].fill(case.seed + which);
            }
            let operands = tensors.operands(&plan);
            // SAFETY: as above.
            unsafe { plan.launch(operands, std::ptr::null_mut()) }.expect("a convolution");
            tensors.of[result_of(pass)].numbers()
        });
        prop_assert_eq!(&numbers[0], &numbers[1]);
        prop_assert_eq!(opened.close().mistakes, 0);
    }

    #[test]
    fn a_buffer_that_is_too_small_leaves_all_memory_as_it_was(case in cases(), which in 0_usize..4, pass in 0_usize..3) {
        let opened = Opened::new();
        let (convolution, pass) = (case.convolution(), Pass::ALL[pass]);
        let plan = opened.handle.plan(convolution.clone(), pass, false).expect("a plan");
        let mut tensors = Tensors::new(&convolution, &plan);
        let mut operands = tensors.operands(&plan);
        let workspace = operands.workspace.as_mut().expect("one");
        let memory = [&mut operands.input, &mut operands.weight, &mut operands.output, workspace];
        let memory = memory.into_iter().nth(which).expect("four");
        let needed = memory.bytes;
        memory.bytes -= 1;
        // SAFETY: as above.
        let failure = unsafe { plan.launch(operands, std::ptr::null_mut()) };
        prop_assert_eq!(failure, Err(CudnnError::TooLarge { needed, found: needed - 1 }));
        prop_assert!(tensors.of[result_of(pass)].touched().is_empty());
        drop(plan);
        prop_assert_eq!(opened.close().mistakes, 0);
    }

    #[test]
    fn sums_of_channels_are_those_of_the_definition(case in cases()) {
        let case = Case { element: Element::F32 { tf32: false }, ..case };
        let opened = Opened::new();
        let layout = case.layout(&case.input);
        let sums = opened.handle.plan_sums(layout.clone()).expect("a plan");
        let channels = layout.shape[1];
        let mut tensor = Placed::new(case.element, layout.clone());
        let numbers = tensor.fill(case.seed);
        let mut results = Buffer::new(case.element, 0, channels);
        // SAFETY: as above.
        let launched = unsafe {
            sums.launch(tensor.buffer.memory(layout.span()), results.memory(channels), std::ptr::null_mut())
        };
        prop_assert_eq!(launched, Ok(()));
        let positions: usize = layout.shape[2..].iter().product();
        for channel in 0..channels {
            let of_channel = numbers.iter().enumerate().filter(|(index, _)| index / positions % channels == channel);
            prop_assert_eq!(results.get(channel), of_channel.map(|(_, number)| number).sum::<f32>());
        }
        // SAFETY: as above.
        let failure = unsafe {
            sums.launch(tensor.buffer.memory(layout.span()), results.memory(channels - 1), std::ptr::null_mut())
        };
        let needed = (channels * case.element.bytes()) as u64;
        let found = needed - case.element.bytes() as u64;
        prop_assert_eq!(failure, Err(CudnnError::TooLarge { needed, found }));
        drop(sums);
        prop_assert_eq!(opened.close().alive, 0);
    }
}

proptest! {
    #[test]
    fn batch_norms_are_burns(case in cases(), which in 0_usize..12) {
        let element = Element::F32 { tf32: false };
        let mut shape = with_row(&case.input);
        // Statistics of two numbers or more.
        shape[0] += 1;
        let case = Case { input: shape.clone(), ..case };
        let opened = Opened::new();
        let (layout, channels) = (case.layout(&shape), shape[1]);
        let norm = opened.handle.plan_batch_norm(element, layout.clone()).expect("a plan");
        let placed = |seed| {
            let mut placed = Placed::new(element, layout.clone());
            let places = places(&layout);
            let numbers = (0..places.len()).map(|index| number(seed, index) + index as f32 / 7.0).collect::<Vec<_>>();
            places.iter().zip(&numbers).for_each(|(place, number)| placed.buffer.set(*place, *number));
            (placed, numbers)
        };
        let of_channels = |first: f32, step: f32| {
            let mut buffer = Buffer::new(element, 0, channels);
            (0..channels).for_each(|channel| buffer.set(channel, first + channel as f32 * step));
            buffer
        };
        let ((mut input, x), (mut gradient, g)) = (placed(case.seed), placed(case.seed + 1));
        let [mut output, mut of_input] = [(); 2].map(|()| Placed::new(element, layout.clone()));
        let (mut gamma, mut beta) = (of_channels(0.5, 0.25), of_channels(-1.0, 0.5));
        let [mut mean, mut variance] = [(); 2].map(|()| of_channels(0.0, 0.0));
        let [mut saved, mut deviation, mut of_gamma, mut of_beta] = [(); 4].map(|()| Buffer::new(element, 0, channels));
        let mut memory = Normalised {
            input: input.buffer.memory(layout.span()),
            gamma: gamma.memory(channels),
            beta: beta.memory(channels),
            output: output.buffer.memory(layout.span()),
            mean: mean.memory(channels),
            variance: variance.memory(channels),
            saved_mean: saved.memory(channels),
            deviation: deviation.memory(channels),
        };
        let mut of_gradients = NormalisedGradients {
            input: memory.input,
            gamma: memory.gamma,
            gradient: gradient.buffer.memory(layout.span()),
            saved_mean: memory.saved_mean,
            deviation: memory.deviation,
            of_input: of_input.buffer.memory(layout.span()),
            of_gamma: of_gamma.memory(channels),
            of_beta: of_beta.memory(channels),
        };
        // SAFETY: the memory is the host's, which the fake computes on, and lives.
        unsafe { norm.launch(memory, 1e-3, std::ptr::null_mut()) }.expect("a norm");
        // SAFETY: as above.
        unsafe { norm.launch_gradients(of_gradients, 1e-3, std::ptr::null_mut()) }.expect("gradients");
        let device = Device::flex().autodiff();
        let leaf = |numbers: Vec<f32>, shape: &[usize]| TensorData::new(numbers, shape.to_vec());
        let of_host = |buffer: &Buffer| (0..channels).map(|channel| buffer.get(channel)).collect::<Vec<_>>();
        let vector = |buffer: &Buffer| {
            Tensor::<1>::from_data(leaf(of_host(buffer), &[channels]), &device).require_grad()
        };
        // Burn's norm has any rank: all sizes in one.
        let flat = [shape[0], channels, shape[2..].iter().product()];
        let tensor = |numbers: Vec<f32>| Tensor::<3>::from_data(leaf(numbers, &flat), &device);
        let (leaf_x, leaf_gamma, leaf_beta) = (tensor(x).require_grad(), vector(&gamma), vector(&beta));
        let result = batch_norm_train(leaf_x.clone(), leaf_gamma.clone(), leaf_beta.clone(), 1e-3);
        let gradients = (result.output.clone() * tensor(g)).sum().backward();
        let count = (flat[0] * flat[2]) as f32;
        let host = |tensor: Tensor<1>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
        let host_3 = |tensor: Tensor<3>| tensor.into_data().iter::<f32>().collect::<Vec<_>>();
        for (name, found, expected) in [
            ("output", output.numbers(), host_3(result.output.inner())),
            ("mean", of_host(&mean), host(result.mean.clone().inner())),
            ("variance", of_host(&variance), host(result.variance.clone().inner() * (count / (count - 1.0)))),
            ("saved mean", of_host(&saved), host(result.mean.inner())),
            ("deviation", of_host(&deviation), host((result.variance.inner() + 1e-3).sqrt().recip())),
            ("gradient of the input", of_input.numbers(), host_3(leaf_x.grad(&gradients).expect("it is trained"))),
            ("gradient of gamma", of_host(&of_gamma), host(leaf_gamma.grad(&gradients).expect("it is trained"))),
            ("gradient of beta", of_host(&of_beta), host(leaf_beta.grad(&gradients).expect("it is trained"))),
        ] {
            let largest = expected.iter().fold(1.0_f32, |largest, number| largest.max(number.abs()));
            let is_close = found.iter().zip(&expected).all(|(found, expected)| (found - expected).abs() < 1e-3 * largest);
            prop_assert!(found.len() == expected.len() && is_close, "{}: {:?} {:?}", name, found, expected);
        }
        // One of the buffers is too small.
        let Normalised { input, gamma, beta, output, mean, variance, saved_mean, deviation } = &mut memory;
        let NormalisedGradients { gradient, of_input, of_gamma, of_beta, .. } = &mut of_gradients;
        let all = [input, output, gamma, beta, mean, variance, saved_mean, deviation];
        let is_forward = which < all.len();
        let of_backward = [gradient, of_input, of_gamma, of_beta];
        let memory_of = all.into_iter().chain(of_backward).nth(which).expect("twelve");
        let needed = memory_of.bytes;
        memory_of.bytes -= 1;
        // SAFETY: as above.
        let failure = unsafe {
            if is_forward {
                norm.launch(memory, 1e-3, std::ptr::null_mut())
            } else {
                norm.launch_gradients(of_gradients, 1e-3, std::ptr::null_mut())
            }
        };
        prop_assert_eq!(failure, Err(CudnnError::TooLarge { needed, found: needed - 1 }));
        drop(norm);
        let counts = opened.close();
        prop_assert_eq!((counts.alive, counts.mistakes, counts.created), (0, 0, 3));
    }
}

fn case() -> Case {
    Case {
        element: Element::F32 { tf32: false },
        format: Format::ChannelsLast,
        input: vec![1, 1, 1, 1],
        weight: vec![1, 1, 1, 1],
        window: Window { stride: vec![1; 2], padding: vec![0; 2], dilation: vec![1; 2], groups: 1 },
        gaps: [0; 2],
        seed: 0,
    }
}

impl Opened {
    /// The product of 1 + 1/4096 and 3 by a convolution of two numbers.
    fn computed(&self, convolution: &Convolution, pass: Pass) -> f32 {
        let plan = self.handle.plan(convolution.clone(), pass, true).expect("a plan");
        let mut tensors = Tensors::new(convolution, &plan);
        let result = result_of(pass);
        for (which, number) in (0..3).filter(|which| *which != result).zip([1.0 + 1.0 / 4096.0, 3.0]) {
            tensors.of[which].buffer.set(0, number);
        }
        let operands = tensors.operands(&plan);
        // SAFETY: the memory is the host's, which the fake computes on, and lives.
        unsafe { plan.launch(operands, std::ptr::null_mut()) }.expect("a convolution");
        tensors.of[result].buffer.get(0)
    }
}

#[test]
fn tf32_rounds_factors_to_10_bits_of_fraction() {
    let opened = Opened::new();
    let computed = |tf32| {
        let convolution = Case { element: Element::F32 { tf32 }, ..case() }.convolution();
        opened.computed(&convolution, Pass::Forward)
    };
    assert_eq!(computed(true), 3.0);
    assert_eq!(computed(false), 3.0 + 3.0 / 4096.0);
    assert_eq!(opened.close().alive, 0);
}

pub(crate) fn internal_error(call: &'static str) -> CudnnError {
    CudnnError::Call { call, status: 4000, reason: "CUDNN_STATUS_INTERNAL_ERROR: of the fake".to_owned() }
}

#[test]
fn each_call_that_fails_is_named_and_leaks_nothing() {
    let of_pass = [
        [("cudnnGetConvolutionForwardAlgorithm_v7", Pass::Forward), ("cudnnConvolutionForward", Pass::Forward)],
        [("cudnnGetConvolutionBackwardDataAlgorithm_v7", Pass::Input), ("cudnnConvolutionBackwardData", Pass::Input)],
        [
            ("cudnnGetConvolutionBackwardFilterAlgorithm_v7", Pass::Weight),
            ("cudnnConvolutionBackwardFilter", Pass::Weight),
        ],
    ];
    let of_all = [
        "cudnnCreateTensorDescriptor",
        "cudnnSetTensorNdDescriptor",
        "cudnnCreateFilterDescriptor",
        "cudnnSetFilterNdDescriptor",
        "cudnnCreateConvolutionDescriptor",
        "cudnnSetConvolutionNdDescriptor",
        "cudnnSetConvolutionGroupCount",
        "cudnnSetConvolutionMathType",
        "cudnnSetStream",
    ];
    for (call, pass) in of_all.map(|call| (call, Pass::Forward)).into_iter().chain(of_pass.into_iter().flatten()) {
        let opened = Opened::new();
        opened.fake.behave(&Behaviour { fails: Some(call.to_owned()), ..Behaviour::default() });
        let convolution = case().convolution();
        let failure = opened.handle.plan(convolution.clone(), pass, false).and_then(|plan| {
            let mut tensors = Tensors::new(&convolution, &plan);
            let operands = tensors.operands(&plan);
            // SAFETY: as above.
            let launched = unsafe { plan.launch(operands, std::ptr::null_mut()) };
            assert!(tensors.of[result_of(pass)].touched().is_empty());
            launched
        });
        assert_eq!(failure, Err(internal_error(call)));
        opened.fake.behave(&Behaviour::default());
        let counts = opened.close();
        assert_eq!((counts.alive, counts.mistakes), (0, 0), "{call}");
    }
}

#[test]
fn a_device_that_the_library_refuses_has_no_handle() {
    let opened = Opened::new();
    opened.fake.behave(&Behaviour { fails: Some("cudnnCreate".to_owned()), ..Behaviour::default() });
    assert_eq!(Handle::new(opened.library).err(), Some(internal_error("cudnnCreate")));
}

#[test]
fn a_library_without_an_algorithm_has_no_plan() {
    let opened = Opened::new();
    opened.fake.behave(&Behaviour { has_algorithms: false, ..Behaviour::default() });
    let refused = |convolution, pass| opened.handle.plan(convolution, pass, false).expect_err("no plan").to_string();
    let found = "cuDNN has no algorithm: cudnnGetConvolutionBackwardFilterAlgorithm_v7 found 2 ";
    let status = "CUDNN_STATUS_NOT_SUPPORTED";
    assert_eq!(refused(case().convolution(), Pass::Weight), format!("{found}(1 {status}, 1 {status})"));
    opened.fake.behave(&Behaviour::default());
    // The fake computes no f16.
    let halves = Case { element: Element::F16, ..case() }.convolution();
    let failed = format!("cudnnGetConvolutionForwardAlgorithm_v7 failed: {status}: of the fake");
    assert_eq!(refused(halves, Pass::Forward), failed);
    // All algorithms are named.
    opened.fake.behave(&Behaviour { mispredicts: true, ..Behaviour::default() });
    let plan = opened.handle.plan(case().convolution(), Pass::Forward, false).expect("a plan");
    assert!(plan.description().starts_with("algorithm 2 or 1 of Forward of "), "{}", plan.description());
    drop(plan);
    // Algorithms that add in an order that changes.
    opened.fake.behave(&Behaviour { is_deterministic: false, ..Behaviour::default() });
    drop(opened.handle.plan(case().convolution(), Pass::Weight, false).expect("a plan"));
    let failure = opened.handle.plan(case().convolution(), Pass::Weight, true).expect_err("no plan").to_string();
    assert_eq!(failure, format!("{found}(1 rounds f32 to 16 bits, 1 is not deterministic)"));
    // Workspaces that no algorithm reports.
    let measure = "cudnnGetConvolutionBackwardDataWorkspaceSize";
    opened.fake.behave(&Behaviour { fails: Some(measure.to_owned()), ..Behaviour::default() });
    let found = "cuDNN has no algorithm: cudnnGetConvolutionBackwardDataAlgorithm_v7 found 2 ";
    let failed = "(1 rounds f32 to 16 bits, 1 CUDNN_STATUS_INTERNAL_ERROR: of the fake)";
    assert_eq!(refused(case().convolution(), Pass::Input), format!("{found}{failed}"));
    // More numbers than `i32` counts.
    let large = Layout { shape: vec![3, 1, 1, 1], strides: vec![1 << 30, 1, 1, 1] };
    let failure = opened.handle.plan_sums(large).expect_err("no plan").to_string();
    assert_eq!(failure, format!("cudnnSetTensorNdDescriptor failed: {status}: of the fake"));
    let wrong = Convolution { weight: vec![1, 2, 1, 1], ..case().convolution() };
    assert!(refused(wrong, Pass::Forward).contains("no convolution"));
    let counts = opened.close();
    assert_eq!((counts.alive, counts.mistakes), (0, 0));
}

#[test]
fn files_that_are_no_cudnn_9_are_refused() {
    for function in ["cudnnGetVersion", "cudnnConvolutionForward", "cudnnGetLastErrorString"] {
        let fake = Fake::without(function);
        let failure = Cudnn::load(&fake.path()).expect_err("a function is missing").to_string();
        assert!(failure.contains(function), "{failure}");
    }
    let fake = Fake::new();
    let _loaded = Cudnn::load(&fake.path()).expect("a library");
    fake.behave(&Behaviour { version: 8907, ..Behaviour::default() });
    let failure = Cudnn::load(&fake.path()).expect_err("an old version");
    assert_eq!(failure, LoadError::Version { library: "cuDNN", path: fake.path(), found: 8907, oldest: 90_000 });
}
