//! Convolutions, batch norms, recurrent layers and sums over ranks on a driver that runs no kernels: the fake cuDNN and the fake
//! NCCL compute on the memory that the driver allocates.
//!
//! Tensors are uploaded, convolved and read, so that every address, layout and shape is that of CubeCL.

use std::process::Command;
use std::sync::Arc;

use burn::backend::{Dispatch, DispatchDevice};
use burn::tensor::module::{batch_norm_train, conv1d, conv2d};
use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Shape, Tensor, TensorData};
use fake_cuda::Machine;
use fake_cudnn::Fake;

use super::{LibraryGradients, LibraryOps, cudnn_calls, plan_recurrence};
use crate::collectives::{self, SharedStream, SumsBeside};
use crate::convolution::Window;
use crate::cublaslt::{Element, Memory};
use crate::nccl::{Communicator, Number};
use crate::product::recurrent;
use crate::recurrence::{Cell, Recurrence};
use crate::selection;

/// Set in the process with the driver.
const STARTED: &str = "CONVOLUTIONS_ON_A_FAKE_DRIVER";

/// Numbers of the simulated driver's memory that are zero are read as this: see `fake_cuda`.
const ZERO: f32 = 2.0;

/// Numbers from 1 to 3: few sums of products are zero.
fn numbers(shape: &[usize], seed: usize) -> Vec<f32> {
    (0..shape.iter().product()).map(|index| ((index * 7 + seed * 5 + index / 3) % 3) as f32 + 1.0).collect()
}

fn on<const D: usize>(device: &Device, numbers: &[f32], shape: &[usize]) -> Tensor<D> {
    Tensor::from_data(TensorData::new(numbers.to_vec(), shape.to_vec()), device)
}

/// Bytes at whose multiples CubeCL cuts a tensor without a copy.
const CUT: usize = 512;

/// The tensor, as the last part of a larger one if its memory can begin behind a sample.
fn placed<const D: usize>(device: &Device, numbers: &[f32], shape: &[usize]) -> Tensor<D> {
    let sample = &numbers[..numbers.len() / shape[0]];
    if !size_of_val(sample).is_multiple_of(CUT) {
        return on(device, numbers, shape);
    }
    let mut larger = shape.to_vec();
    larger[0] += 1;
    on::<D>(device, &[sample, numbers].concat(), &larger).narrow(0, 1, shape[0])
}

/// Uploads numbers of a shape.
type Place<const D: usize> = fn(&Device, &[f32], &[usize]) -> Tensor<D>;
/// Downloads them in the order of the shape.
type Read<const D: usize> = fn(Tensor<D>) -> Vec<f32>;

/// Both orders in memory: uploads and reads.
fn orders<const D: usize>() -> [(Place<D>, Read<D>); 2] {
    [(placed, read), (channels_last, read_channels_last)]
}

/// Dimensions in the order `[batch, sizes…, channels]`.
fn to_last<const D: usize>() -> [isize; D] {
    std::array::from_fn(|dimension| match dimension {
        0 => 0,
        dimension if dimension == D - 1 => 1,
        dimension => dimension.cast_signed() + 1,
    })
}

/// Dimensions of `[batch, sizes…, channels]` in the order `[batch, channels, sizes…]`.
fn to_first<const D: usize>() -> [isize; D] {
    std::array::from_fn(|dimension| match dimension {
        0 => 0,
        1 => (D - 1).cast_signed(),
        dimension => dimension.cast_signed() - 1,
    })
}

/// The tensor with the channels of each position contiguous.
fn channels_last<const D: usize>(device: &Device, numbers: &[f32], shape: &[usize]) -> Tensor<D> {
    let moved = on::<D>(&Device::flex(), numbers, shape).permute(to_last());
    let dims = moved.dims();
    placed::<D>(device, &read(moved), &dims).permute(to_first())
}

fn read<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}

/// Numbers of a tensor with the channels last: a kernel would move them.
fn read_channels_last<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    let moved = tensor.permute(to_last());
    let dims = moved.dims();
    read(on::<D>(&Device::flex(), &read(moved), &dims).permute(to_first()))
}

fn as_read(numbers: Vec<f32>) -> Vec<f32> {
    numbers.into_iter().map(|number| if number == 0.0 { ZERO } else { number }).collect()
}

/// All passes of a convolution on the device, beside Burn's on the CPU.
fn compare<const D: usize, const N: usize>(
    device: &Device,
    [input, weight]: [[usize; D]; 2],
    options: &ConvOptions<N>,
    convolve: impl Fn(Tensor<D>, Tensor<D>, ConvOptions<N>) -> Tensor<D>,
) {
    let cpu = Device::flex().autodiff();
    let (x, w) = (numbers(&input, 1), numbers(&weight, 2));
    let (leaf_x, leaf_w) = (on::<D>(&cpu, &x, &input).require_grad(), on::<D>(&cpu, &w, &weight).require_grad());
    let y = convolve(leaf_x.clone(), leaf_w.clone(), options.clone());
    let output = y.dims();
    let g = numbers(&output, 3);
    let gradients = (y.clone() * on(&cpu, &g, &output)).sum().backward();
    let expected =
        [y.inner(), leaf_x.grad(&gradients).expect("it is trained"), leaf_w.grad(&gradients).expect("it is trained")]
            .map(read);
    let window = Window {
        stride: options.stride.to_vec(),
        padding: options.padding_begin().to_vec(),
        dilation: options.dilation.to_vec(),
        groups: options.groups,
    };
    for (order, (place, read_in)) in orders::<D>().into_iter().enumerate() {
        let before = cudnn_calls();
        let x = || place(device, &x, &input).into_dispatch();
        // In the same order, and without padding of rows: a kernel would copy it.
        let w = || place(device, &w, &weight).into_dispatch();
        let g = || place(device, &g, &output).into_dispatch();
        let window = || window.clone();
        let found = [
            Dispatch::library_convolution(x(), w(), window(), false),
            Dispatch::library_convolution_input_gradient(g(), w(), Shape::from(input), window(), false),
            Dispatch::library_convolution_weight_gradient(x(), g(), Shape::from(weight), window(), false),
        ]
        .map(|tensor| read_in(Tensor::<D>::from_dispatch(tensor)));
        let names = ["output", "gradient of the input", "gradient of the weight"];
        for ((found, expected), name) in found.iter().zip(&expected).zip(names) {
            assert_eq!(found, &as_read(expected.clone()), "{name}, {input:?}, {weight:?}, {options:?}, order {order}");
        }
        assert_eq!(cudnn_calls(), [before[0] + 3, before[1]]);
        let sums = read(Tensor::<1>::from_dispatch(Dispatch::library_channel_sums(g())));
        let of_channel = |channel| g_of_channel(&numbers(&output, 3), &output, channel);
        let is_by_cudnn = cudnn_calls()[0] > before[0] + 3;
        // Other orders and rows with gaps are summed by kernels, which do not run.
        assert_eq!(is_by_cudnn, order == 0 && !has_gaps(&output));
        if is_by_cudnn {
            assert_eq!(sums, (0..output[1]).map(of_channel).collect::<Vec<f32>>());
        }
    }
}

/// CubeCL pads rows of several numbers up to the next power of two, and to 16 bytes.
fn has_gaps(shape: &[usize]) -> bool {
    let width = shape.last().copied().unwrap_or(1);
    width > 1 && (width < 4 || !width.is_power_of_two())
}

fn g_of_channel(gradient: &[f32], shape: &[usize], channel: usize) -> f32 {
    let positions: usize = shape[2..].iter().product();
    let of_channel = gradient.iter().enumerate().filter(|(index, _)| index / positions % shape[1] == channel);
    of_channel.map(|(_, number)| number).sum()
}

/// A batch norm and its gradients on the device, beside Burn's on the CPU.
fn compare_norm<const D: usize>(device: &Device, shape: [usize; D]) {
    let cpu = Device::flex().autodiff();
    let of_channels = [shape[1]];
    let x: Vec<f32> = numbers(&shape, 1).iter().enumerate().map(|(at, number)| number + at as f32 / 8.0).collect();
    let (g, gamma, beta) = (numbers(&shape, 2), numbers(&of_channels, 3), numbers(&of_channels, 4));
    let leaf_x = on::<D>(&cpu, &x, &shape).require_grad();
    let [leaf_gamma, leaf_beta] = [&gamma, &beta].map(|it| on::<1>(&cpu, it, &of_channels).require_grad());
    let result = batch_norm_train(leaf_x.clone(), leaf_gamma.clone(), leaf_beta.clone(), 1e-3);
    let gradients = (result.output.clone() * on(&cpu, &g, &shape)).sum().backward();
    let of_vector = |leaf: Tensor<1>| read(leaf.grad(&gradients).expect("it is trained"));
    let expected = [
        read(result.output.inner()),
        read(result.mean.inner()),
        read(leaf_x.grad(&gradients).expect("it is trained")),
        of_vector(leaf_gamma),
        of_vector(leaf_beta),
    ];
    for (place, read_in) in orders::<D>() {
        let x = || place(device, &x, &shape).into_dispatch();
        let vector = |numbers| on::<1>(device, numbers, &of_channels).into_dispatch();
        let (output, mean, _, deviation) = Dispatch::library_batch_norm(x(), vector(&gamma), vector(&beta), 1e-3);
        let g = place(device, &g, &shape).into_dispatch();
        let (of_x, of_gamma, of_beta) =
            Dispatch::library_batch_norm_gradients(x(), vector(&gamma), g, mean.clone(), deviation, 1e-3);
        let tensor = |it| read_in(Tensor::<D>::from_dispatch(it));
        let vector = |it| read(Tensor::<1>::from_dispatch(it));
        let found = [tensor(output), vector(mean), tensor(of_x), vector(of_gamma), vector(of_beta)];
        for (found, expected) in found.iter().zip(&expected) {
            let is_close = found
                .iter()
                .zip(as_read(expected.clone()))
                .all(|(found, expected)| (found - expected).abs() < 1e-3 * expected.abs().max(1.0));
            assert!(found.len() == expected.len() && is_close, "{shape:?}: {found:?} {expected:?}");
        }
    }
}

/// Numbers of both signs without zeros, whose sums do not saturate gates.
fn small(shape: &[usize], seed: usize) -> Vec<f32> {
    numbers(shape, seed).iter().enumerate().map(|(at, number)| 0.5 * number - 1.265 + (at % 7) as f32 / 16.0).collect()
}

/// A recurrent layer and its gradients on the device, beside Burn's operations on the CPU.
#[allow(clippy::many_single_char_names, reason = "the names of formulas")]
fn compare_recurrence(device: &Device, cell: Cell, has_bias: bool, [steps, batch, inputs, hidden]: [usize; 4]) {
    let element = Element::F32 { tf32: false };
    let recurrence = Recurrence { cell, element, has_bias, steps, batch, inputs, hidden };
    let DispatchDevice::Cube(cube) = device.as_dispatch() else { panic!("{device:?}") };
    let plan = plan_recurrence(cube.to_id(), &recurrence).expect("a plan");
    let (input, states) = ([steps, batch, inputs], [cell.states(), batch, hidden]);
    let (output, weights) = (recurrence.output_shape(), [recurrence.weights()]);
    let (x, w, s, g) = (small(&input, 1), small(&weights, 2), small(&states, 3), small(&output, 4));
    let cpu = Device::flex().autodiff();
    let (leaf_x, leaf_w) = (on::<3>(&cpu, &x, &input).require_grad(), on::<1>(&cpu, &w, &weights).require_grad());
    let leaf_s = on::<3>(&cpu, &s, &states).require_grad();
    let y = recurrent(cell, leaf_x.clone(), leaf_w.clone(), leaf_s.clone());
    let gradients = (y.clone() * on(&cpu, &g, &output)).sum().backward();
    let expected = [
        read(y.clone().inner()),
        read(y.inner()),
        read(leaf_x.grad(&gradients).expect("it is trained")),
        read(leaf_w.grad(&gradients).expect("it is trained")),
        read(leaf_s.grad(&gradients).expect("it is trained")),
    ];
    // Alive to the end, so that no other tensor has their memory: the kernel that writes zeros does not run.
    let (x, w, s) = (on::<3>(device, &x, &input), on::<1>(device, &w, &weights), on::<3>(device, &s, &states));
    let g = on::<3>(device, &g, &output);
    let x = || x.clone().into_dispatch();
    let w = || w.clone().into_dispatch();
    let s = || s.clone().into_dispatch();
    let (y, reserve) = Dispatch::library_recurrence_in_training(x(), w(), s(), plan.clone());
    let g_of_output = g.clone().into_dispatch();
    let (of_x, of_w, of_s) =
        Dispatch::library_recurrence_gradients(x(), w(), s(), y.clone(), g_of_output, reserve, plan.clone());
    let inferred = Dispatch::library_recurrence(x(), w(), s(), plan);
    let tensor = |it| read(Tensor::<3>::from_dispatch(it));
    let found = [tensor(inferred), tensor(y), tensor(of_x), read(Tensor::<1>::from_dispatch(of_w)), tensor(of_s)];
    for (found, expected) in found.iter().zip(&expected) {
        let is_close = found
            .iter()
            .zip(as_read(expected.clone()))
            .all(|(found, expected)| (found - expected).abs() < 1e-4 * expected.abs().max(1.0));
        assert!(found.len() == expected.len() && is_close, "{recurrence:?}: {found:?} {expected:?}");
    }
}

fn compare_all() {
    assert!(selection::load_cudnn().is_ok(), "no cuDNN");
    let device = Device::cuda(0);
    // First, in new memory.
    compare_recurrence(&device, Cell::Lstm, true, [3, 2, 4, 8]);
    compare_recurrence(&device, Cell::Gru, true, [3, 2, 8, 4]);
    compare_recurrence(&device, Cell::Lstm, false, [1, 1, 8, 4]);
    compare(&device, [[2, 8, 16], [8, 4, 4]], &ConvOptions::new([2], [1], [2], 2), |x, w, options| {
        conv1d(x, w, None, options)
    });
    compare(&device, [[2, 4, 5, 9], [4, 4, 3, 4]], &ConvOptions::new([1, 2], [1, 0], [2, 1], 1), |x, w, options| {
        conv2d(x, w, None, options)
    });
    compare(&device, [[1, 8, 8, 8], [4, 4, 3, 4]], &ConvOptions::new([1, 1], [1, 1], [1, 1], 2), |x, w, options| {
        conv2d(x, w, None, options)
    });
    // Without padding of rows, of positions and of vectors.
    compare_norm(&device, [3, 4]);
    compare_norm(&device, [2, 4, 4]);
    compare_norm(&device, [2, 4, 3, 4]);
    compare_norm(&device, [2, 4, 3, 2, 4]);
}

/// Runs the test of this name again, in a process with the driver. Variables are those of the libraries.
fn again(name: &str, behaviour: &str) {
    let (machine, cublaslt, cudnn) = (Machine::new("h200"), fake_cublaslt::Fake::new(), Fake::new());
    let nccl = fake_nccl::Fake::new();
    let folders = [cublaslt.folder(), cudnn.folder(), nccl.folder()];
    let folders = std::env::join_paths(folders).expect("paths without colons");
    let program = std::env::current_exe().expect("a test knows its own path");
    let mut command: Command = machine.command(program);
    command.args([&format!("operations::tests::{name}"), "--exact", "--nocapture"]);
    command.env(STARTED, "1").env("GPU_TUNED_LIBRARIES", folders).env(fake_cudnn::VARIABLE, behaviour);
    let output = command.output().expect("it starts");
    let text = [&output.stdout[..], &output.stderr].map(String::from_utf8_lossy).concat();
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
fn operations_on_cubecls_memory_are_burns() {
    if std::env::var_os(STARTED).is_some() {
        return compare_all();
    }
    again("operations_on_cubecls_memory_are_burns", "");
}

/// The second rank is a thread with numbers of its own, without a device.
#[test]
fn sums_over_ranks_are_of_the_whole_tensors() {
    /// Lengths of vectors. CubeCL rounds the memory of most of them up.
    const LENGTHS: [usize; 4] = [1, 3, 100, 5000];

    if std::env::var_os(STARTED).is_none() {
        return again("sums_over_ranks_are_of_the_whole_tensors", "");
    }
    let device = Device::cuda(0);
    let library = collectives::load().expect("a library");
    let id = library.unique_id().expect("an identifier");
    let wait_for = |communicator: &Communicator| {
        while !communicator.is_ready().expect("no failure") {
            std::thread::yield_now();
        }
    };
    let second = std::thread::spawn(move || {
        let communicator = library.join(id, 1, 2).expect("a communicator");
        wait_for(&communicator);
        LENGTHS.iter().flat_map(|length| [length, length]).chain(&LENGTHS).chain(&LENGTHS).for_each(|length| {
            let mut own = numbers(&[*length], 2);
            let memory = Memory { address: own.as_mut_ptr().addr() as u64, bytes: size_of_val(&own[..]) as u64 };
            // SAFETY: the fake sums the memory of this process.
            unsafe { communicator.sum(memory, memory, Number::F32, *length, std::ptr::null_mut()) }.expect("a sum");
        });
    });
    let communicator = collectives::join(&device, library, id, 0, 2).expect("a communicator");
    wait_for(&communicator);
    let communicator = Arc::new(communicator);
    let sum = |vector| collectives::sums(vec![vector], &communicator).remove(0);
    for length in LENGTHS {
        let own = numbers(&[length], 1);
        let expected: Vec<f32> = own.iter().zip(numbers(&[length], 2)).map(|(own, other)| own + other).collect();
        let vector = on(&device, &own, &[length]);
        assert!(collectives::are_queued(&[vector.clone(), vector.clone().mul_scalar(2.0)]));
        assert_eq!(read(sum(vector)), expected);
        let kept = on::<1>(&device, &own, &[length]);
        assert_eq!(read(sum(kept.clone())), expected);
        assert_eq!(read(kept), own, "another tensor has the memory");
    }
    // Several in one call, of which the last is read first.
    let all = LENGTHS.map(|length| on(&device, &numbers(&[length], 1), &[length]));
    for (length, sum) in LENGTHS.into_iter().zip(collectives::sums(all.to_vec(), &communicator)).rev() {
        let expected = numbers(&[length], 1).into_iter().zip(numbers(&[length], 2)).map(|(own, other)| own + other);
        assert_eq!(read(sum), expected.collect::<Vec<f32>>());
    }
    sums_begin_beside_kernels(&device, &communicator, &LENGTHS);
    second.join().expect("no panic");
    communicator.abort().expect("an abort");
    let failed = sum(on(&device, &[1.0], &[1]));
    assert!(!collectives::are_queued(&[on(&device, &[1.0], &[1]), failed.clone().mul_scalar(2.0)]));
    // One part of a vector is enough.
    let other = |length: usize| on::<1>(&device, &vec![1.0; length], &[length]);
    let loss = (other(1) + failed.clone().mul_scalar(0.0)).mul_scalar(3.0);
    let joined = |parts: &[Tensor<1>]| collectives::are_queued(&[Tensor::cat(parts.to_vec(), 0)]);
    assert!(joined(&[other(1), other(1)]));
    for parts in
        [[other(1), failed.clone(), other(1)], [failed.clone(), other(2), other(100)], [other(2), loss, other(100)]]
    {
        assert!(!joined(&parts));
    }
    let message = failed.try_into_data().expect_err("the communicator is gone").to_string();
    assert!(message.contains("NCCL was aborted"), "{message}");
}

/// Sums beside the kernels, of which one fails at first, and those behind it with it.
fn sums_begin_beside_kernels(device: &Device, communicator: &Arc<Communicator>, lengths: &[usize; 4]) {
    let library = collectives::load().expect("a library");
    let alone =
        library.unique_id().and_then(|id| collectives::join(device, library, id, 0, 1)).expect("a communicator");
    alone.abort().expect("an abort");
    let failed = collectives::sums(vec![on(device, &[1.0], &[1])], &Arc::new(alone)).remove(0);
    let own = |length: usize| on::<1>(device, &numbers(&[length], 1), &[length]);
    let mut sums = SumsBeside::new(Arc::clone(communicator), SharedStream::default());
    for vector in [own(lengths[0]), own(lengths[1]), failed * 2.0, own(lengths[2])] {
        sums.begin(vector);
    }
    let first = sums.flush().expect("two were not begun");
    assert_eq!(sums.count(), 2);
    let message = first.try_into_data().expect_err("it was not computed").to_string();
    assert!(message.contains("NCCL was aborted"), "{message}");
    for length in &lengths[2..] {
        sums.begin(own(*length));
    }
    assert!(sums.flush().is_none() && sums.count() == 4);
    for (length, sum) in lengths.iter().zip(sums.end()) {
        let expected = numbers(&[*length], 1).into_iter().zip(numbers(&[*length], 2)).map(|(own, other)| own + other);
        assert_eq!(read(sum), expected.collect::<Vec<f32>>());
    }
}

/// The message of the library reaches the line through CubeCL's server. Without kernels, no other result is right.
#[test]
fn a_convolution_that_fails_is_refused_with_the_librarys_message() {
    if std::env::var_os(STARTED).is_none() {
        let name = "a_convolution_that_fails_is_refused_with_the_librarys_message";
        return again(name, "fails=cudnnConvolutionForward");
    }
    let device = Device::cuda(0);
    selection::select_library_unchecked(&device, true).expect("a library");
    assert!(selection::has_cudnn() && selection::cudnn_faults().is_empty());
    selection::check_cudnn(&device);
    let faults = selection::cudnn_faults();
    let lines = faults.iter().filter(|line| line.starts_with("a convolution in f32 by /")).collect::<Vec<_>>();
    let failure = "cudnnConvolutionForward failed: CUDNN_STATUS_INTERNAL_ERROR: of the fake: algorithm 1 of Forward of";
    assert!(lines.len() == 1 && lines[0].contains("fails at the output") && lines[0].contains(failure), "{faults:#?}");
    let norms = faults.iter().find(|line| line.contains("a batch norm in f32")).expect("without kernels it is wrong");
    assert!(norms.contains("has another result") && !norms.contains("cudnnConvolutionForward"), "{norms}");
}
