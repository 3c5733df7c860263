//! Library convolutions and batch norms against fp64 on the host: forward and all gradients, of any shape and layout; and their time beside
//! Burn's.

#![allow(clippy::many_single_char_names, reason = "formulas")]
#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "an error of NaN is wrong")]

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Context, bail, ensure};
use burn::tensor::ops::{ConvOptions, ConvTransposeOptions};
use burn::tensor::{DType, Device, Distribution, Tensor};
use clap::Args;
use gpu_tuned::kernels::{
    CudnnUse, cudnn_faults, cudnn_use, select_burn, select_library, select_library_unchecked, why_no_cudnn,
};
use gpu_tuned_kernels::convolution::Window;
use gpu_tuned_kernels::product::{
    batch_norm_train, conv_transpose1d, conv_transpose2d, conv_transpose3d, conv1d, conv2d, conv3d, group_norm,
};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Serialize;

use crate::catching::catching;
use crate::device::Choice;
use crate::mode;
use crate::products::{Numbers, Sums, host, is_worse, on_device, random_host, worse};

/// Options of `convolutions`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Cases of each operation in each precision
    #[arg(long, default_value_t = 200)]
    cases: usize,
    /// Number formats, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Numbers::ALL)]
    numbers: Vec<Numbers>,
    /// Time convolutions of a residual network instead
    #[arg(long)]
    time: bool,
    /// Compute with cuDNN in spite of the results of the check at start, to find what is wrong
    #[arg(long)]
    unchecked: bool,
    /// Print each case to the error output before it is computed, to find the one that ends the process
    #[arg(long)]
    print: bool,
    /// Seed of the cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Selects the library, with cuDNN.
pub(crate) fn select(device: &Device, numbers: Numbers, unchecked: bool) -> anyhow::Result<()> {
    let tf32 = numbers == Numbers::Tf32;
    if unchecked {
        select_library_unchecked(device, tf32)?;
    } else {
        select_library(device, tf32)?;
    }
    match why_no_cudnn() {
        Some(error) => bail!("{error}"),
        None => Ok(()),
    }
}

/// Kinds of operations that Burn computes, with the reasons.
#[derive(Serialize)]
struct Refused {
    run: &'static str,
    numbers: Numbers,
    reasons: Vec<String>,
}

/// Prints the kinds of operations that the check refuses, of f32 with and without TF32.
pub(crate) fn print_refused(device: &Device, unchecked: bool) -> anyhow::Result<()> {
    for numbers in [Numbers::F32, Numbers::Tf32] {
        select(device, numbers, unchecked)?;
        let refused = Refused { run: "refused", numbers, reasons: cudnn_faults() };
        println!("{}", serde_json::to_string(&refused)?);
    }
    Ok(())
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Operation {
    Convolution,
    Transposed,
    BatchNorm,
    GroupNorm,
}

impl Operation {
    const ALL: [Self; 4] = [Self::Convolution, Self::Transposed, Self::BatchNorm, Self::GroupNorm];
}

#[derive(Serialize)]
struct Checked {
    run: &'static str,
    operation: Operation,
    /// Sizes of an image.
    sizes: usize,
    numbers: Numbers,
    cases: usize,
    /// Cases with all passes by cuDNN, with some, and with none.
    by_library: usize,
    by_both: usize,
    by_burn: usize,
    /// Cases with an error instead of a result.
    failed: usize,
    /// Cases with another result, but for those by Burn alone.
    wrong: usize,
    /// Cases by Burn alone with another result.
    wrong_by_burn: usize,
    /// Largest error, relative to the largest sum of absolute terms of its tensor.
    worst: f64,
    worst_case: String,
    seconds: f64,
}

/// Kernels of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum By {
    Library,
    Both,
    Burn,
}

impl By {
    fn between(before: &CudnnUse, after: &CudnnUse) -> Self {
        match (after.calls > before.calls, after.left_to_burn > before.left_to_burn) {
            (true, false) => Self::Library,
            (true, true) => Self::Both,
            (false, _) => Self::Burn,
        }
    }
}

/// Largest errors by tensor, relative to the largest sum of absolute terms.
type Errors = BTreeMap<&'static str, f64>;

/// A case that is wrong, or that cuDNN did not compute.
#[derive(Serialize)]
struct Noted<'a> {
    run: &'static str,
    operation: Operation,
    numbers: Numbers,
    by: By,
    /// Largest errors, or why there are none.
    errors: Result<Errors, String>,
    /// Of a wrong case: the same again, and by Burn's kernels.
    again: Option<[Result<Errors, String>; 2]>,
    /// Reasons of cuDNN for not planning a pass.
    reasons: &'a [String],
    case: String,
}

/// cuDNN cuts the factors of TF32 to 10 bits, where cuBLASLt rounds them. A group norm in f16 is rounded three times: the numbers,
/// their factor, and their term.
fn limit(numbers: Numbers, operation: Operation) -> f64 {
    match (numbers, operation) {
        (Numbers::Tf32, _) => 2.0 / 1024.0,
        (Numbers::F16, Operation::GroupNorm) => 3.0 / 2048.0,
        _ => numbers.limit(),
    }
}

/// Prints a line for each operation and precision, and for each case that is wrong or left to Burn.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(mode::Precision::F32)?;
    print_refused(&device, arguments.unchecked)?;
    if arguments.time {
        return time(arguments, &device);
    }
    let (mut wrong, mut by_library) = (0, 0);
    for &numbers in &arguments.numbers {
        select(&device, numbers, arguments.unchecked)?;
        for operation in Operation::ALL {
            for sizes in 1..=3 {
                let checked = check(arguments, &device, operation, sizes, numbers)?;
                println!("{}", serde_json::to_string(&checked)?);
                wrong += checked.wrong + checked.failed;
                by_library += checked.by_library;
            }
        }
    }
    ensure!(by_library > 0, "cuDNN computed no case");
    ensure!(wrong == 0, "{wrong} cases are wrong or failed");
    Ok(())
}

/// Computes cases of one operation in one precision.
fn check(
    arguments: &Arguments,
    device: &Device,
    operation: Operation,
    sizes: usize,
    numbers: Numbers,
) -> anyhow::Result<Checked> {
    let begin = Instant::now();
    let mut random = StdRng::seed_from_u64(arguments.seed);
    let mut checked = Checked {
        run: "convolutions",
        operation,
        sizes,
        numbers,
        cases: arguments.cases,
        by_library: 0,
        by_both: 0,
        by_burn: 0,
        failed: 0,
        wrong: 0,
        wrong_by_burn: 0,
        worst: 0.0,
        worst_case: String::new(),
        seconds: 0.0,
    };
    for index in 0..arguments.cases {
        let case = Case::generate(operation, sizes, numbers, &mut random);
        if arguments.print {
            eprintln!("{case:?}");
        }
        // A case that fails draws fewer numbers: the next one has its own.
        let mut of_case = StdRng::seed_from_u64(arguments.seed ^ (index as u64 + 1) << 32);
        let before = cudnn_use();
        let errors = catching(|| case.errors(device, &mut of_case)).map_err(|failure| failure.message);
        let after = cudnn_use();
        let error = errors.as_ref().map(|errors| errors.values().copied().fold(0.0, worse));
        let by = By::between(&before, &after);
        match by {
            By::Library => checked.by_library += 1,
            By::Both => checked.by_both += 1,
            By::Burn => checked.by_burn += 1,
        }
        let is_right = matches!(error, Ok(error) if error <= limit(numbers, operation));
        let again = matches!(error, Ok(error) if !(error <= limit(numbers, operation))).then(|| {
            let errors = || {
                let mut of_case = StdRng::seed_from_u64(arguments.seed ^ (index as u64 + 1) << 32);
                catching(|| case.errors(device, &mut of_case)).map_err(|failure| failure.message)
            };
            let again = errors();
            select_burn();
            [again, errors()]
        });
        if again.is_some() {
            select(device, numbers, arguments.unchecked)?;
        }
        match error {
            Err(_) => checked.failed += 1,
            Ok(_) if is_right => {}
            Ok(_) if by == By::Burn => checked.wrong_by_burn += 1,
            Ok(_) => checked.wrong += 1,
        }
        if let Ok(error) = error
            && is_worse(error, checked.worst)
        {
            (checked.worst, checked.worst_case) = (error, format!("{case:?}"));
        }
        if !is_right || !after.reasons.is_empty() {
            let case = format!("{case:?}");
            let reasons = &after.reasons;
            let noted = Noted { run: "a convolution", operation, numbers, by, errors, again, reasons, case };
            println!("{}", serde_json::to_string(&noted)?);
            let is_poisoned = noted.errors.as_ref().is_err_and(|message| message.contains("poisoned"));
            ensure!(!is_poisoned, "after a failed kernel nothing is computed: {}", noted.case);
        }
    }
    checked.seconds = begin.elapsed().as_secs_f64();
    Ok(checked)
}

/// Layout of a tensor in memory.
#[derive(Clone, Copy, Debug)]
enum View {
    /// Rows of one channel are contiguous.
    ChannelsFirst,
    /// The channels of one position are contiguous.
    ChannelsLast,
    /// A part of a larger tensor: channels and columns cut off before and behind.
    Cut([usize; 4]),
    /// The last two dimensions swapped.
    Transposed,
    /// A sample, repeated.
    Repeated,
}

/// A convolution of generated sizes.
#[derive(Clone, Debug)]
struct Case {
    operation: Operation,
    numbers: Numbers,
    /// Shape of the convolution's input, or of the output of a transposed one.
    large: Vec<usize>,
    weight: Vec<usize>,
    window: Window,
    with_bias: bool,
    views: [View; 3],
}

impl Case {
    fn generate(operation: Operation, sizes: usize, numbers: Numbers, random: &mut StdRng) -> Self {
        let most = [40, 12, 6][sizes - 1];
        let mut draw = |least: usize, most: usize| random.random_range(least..=most);
        let groups = [1, 1, 2, 3][draw(0, 3)];
        let is_depthwise = groups > 1 && draw(0, 1) == 0;
        let channels = |draw: &mut dyn FnMut(usize, usize) -> usize| match draw(0, 9) {
            0..=4 => draw(1, 5),
            5..=7 => 8 * draw(1, 2),
            _ => draw(17, 33),
        };
        let [inputs, outputs] = [(); 2].map(|()| if is_depthwise { 1 } else { channels(&mut draw) });
        let (mut large, mut weight) = (vec![draw(1, 3), groups * inputs], vec![groups * outputs, inputs]);
        let mut window = Window { stride: vec![], padding: vec![], dilation: vec![], groups };
        for _ in 0..sizes {
            let (kernel, dilation, padding) = ([1, 2, 3, 3, 5][draw(0, 4)], draw(1, 2), draw(0, 3));
            let reach = dilation * (kernel - 1) + 1;
            large.push(reach.saturating_sub(2 * padding).max(1) + draw(0, most));
            weight.push(kernel);
            window.stride.push(draw(1, 3));
            window.padding.push(padding);
            window.dilation.push(dilation);
        }
        let with_bias = draw(0, 1) == 0;
        let views = [(); 3].map(|()| match draw(0, 6) {
            0 | 1 => View::ChannelsFirst,
            2 | 3 => View::ChannelsLast,
            4 => View::Cut([(); 4].map(|()| draw(0, 5))),
            5 => View::Transposed,
            _ => View::Repeated,
        });
        Self { operation, numbers, large, weight, window, with_bias, views }
    }

    /// Largest errors of the output and all gradients.
    fn errors(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<Errors> {
        match self.operation {
            Operation::Convolution => match self.window.stride.len() {
                1 => self.convolution_errors::<3>(device, random, |x, w, b| conv1d(x, w, b, self.options())),
                2 => self.convolution_errors::<4>(device, random, |x, w, b| conv2d(x, w, b, self.options())),
                _ => self.convolution_errors::<5>(device, random, |x, w, b| conv3d(x, w, b, self.options())),
            },
            Operation::Transposed => match self.window.stride.len() {
                1 => self.convolution_errors::<3>(device, random, |x, w, b| {
                    conv_transpose1d(x, w, b, self.transposed_options())
                }),
                2 => self.convolution_errors::<4>(device, random, |x, w, b| {
                    conv_transpose2d(x, w, b, self.transposed_options())
                }),
                _ => self.convolution_errors::<5>(device, random, |x, w, b| {
                    conv_transpose3d(x, w, b, self.transposed_options())
                }),
            },
            Operation::BatchNorm | Operation::GroupNorm => match self.window.stride.len() {
                1 => self.norm_errors::<3>(device, random),
                2 => self.norm_errors::<4>(device, random),
                _ => self.norm_errors::<5>(device, random),
            },
        }
    }

    fn options<const N: usize>(&self) -> ConvOptions<N> {
        let Window { stride, padding, dilation, groups } = &self.window;
        ConvOptions::new(sizes(stride), sizes(padding), sizes(dilation), *groups)
    }

    fn transposed_options<const N: usize>(&self) -> ConvTransposeOptions<N> {
        let Window { stride, padding, dilation, groups } = &self.window;
        let added = self.rest().collect::<Vec<_>>();
        ConvTransposeOptions::new(sizes(stride), sizes(padding), sizes(&added), sizes(dilation), *groups)
    }

    /// Numbers of each size that no position of the kernel reaches.
    fn rest(&self) -> impl Iterator<Item = usize> {
        let Window { stride, padding, dilation, .. } = &self.window;
        (0..stride.len()).map(move |size| {
            let reach = dilation[size] * (self.weight[size + 2] - 1) + 1;
            (self.large[size + 2] + 2 * padding[size] - reach) % stride[size]
        })
    }

    /// Shape of the convolution's output, or of the input of a transposed one.
    fn small(&self) -> anyhow::Result<Vec<usize>> {
        let sizes = self.window.output_sizes(&self.large[2..], &self.weight[2..]).context("no position")?;
        Ok([vec![self.large[0], self.weight[0]], sizes].concat())
    }

    fn convolution_errors<const D: usize>(
        &self,
        device: &Device,
        random: &mut StdRng,
        convolve: impl Fn(Tensor<D>, Tensor<D>, Option<Tensor<1>>) -> Tensor<D>,
    ) -> anyhow::Result<Errors> {
        let numbers = self.numbers;
        let device = device.clone().autodiff();
        let (large, small) = (self.large.clone(), self.small()?);
        let is_transposed = self.operation == Operation::Transposed;
        let (input_shape, output_shape) = if is_transposed { (small, large) } else { (large, small) };
        let mut leaf = |shape: &[usize], view| {
            let shape: [usize; D] = sizes(shape);
            placed(shape, view, |shape| on_device(random_host(&shape, random), shape, numbers, &device))
        };
        let input = leaf(&input_shape, self.views[0]).detach().require_grad();
        let weight = leaf(&self.weight, self.views[1]).detach().require_grad();
        let factor = leaf(&output_shape, self.views[2]);
        let channels = output_shape[1];
        let bias = self.with_bias.then(|| random_host(&[channels], random));
        let bias = bias.map(|bias| on_device(bias, [channels], numbers, &device).require_grad());
        let [x, w, f] = [host(input.clone())?, host(weight.clone())?, host(factor.clone())?];
        let b = bias.clone().map(host).transpose()?;
        let output = convolve(input.clone(), weight.clone(), bias.clone());
        ensure!(output.dims()[..] == output_shape[..], "an output of shape {:?}: {self:?}", output.dims());
        let gradients = (output.clone() * factor).sum().backward();
        let (mut y, mut of_x, mut of_w, mut of_b) =
            (Sums::new(f.len()), Sums::new(x.len()), Sums::new(w.len()), Sums::new(channels));
        self.for_each_term(if is_transposed { &input_shape } else { &output_shape }, |small, at_w, large| {
            let (at_x, at_y) = if is_transposed { (small, large) } else { (large, small) };
            y.add(at_y, x[at_x] * w[at_w]);
            of_x.add(at_x, f[at_y] * w[at_w]);
            of_w.add(at_w, f[at_y] * x[at_x]);
        });
        let positions: usize = output_shape[2..].iter().product();
        for (at, f) in f.iter().enumerate() {
            let channel = at / positions % channels;
            if let Some(b) = &b {
                y.add(at, b[channel]);
            }
            of_b.add(channel, *f);
        }
        let mut errors = Errors::from([
            ("output", y.error(&host(output.inner())?)),
            ("of_input", of_x.error(&host(input.grad(&gradients).context("no gradient of the input")?)?)),
            ("of_weight", of_w.error(&host(weight.grad(&gradients).context("no gradient of the weight")?)?)),
        ]);
        if let Some(bias) = bias {
            let found = bias.grad(&gradients).context("no gradient of the bias")?;
            errors.insert("of_bias", of_b.error(&host(found)?));
        }
        Ok(errors)
    }

    /// Largest errors of a batch norm or group norm of the input, of a batch norm's statistics and of all gradients.
    fn norm_errors<const D: usize>(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<Errors> {
        let device = device.clone().autodiff();
        let mut shape: [usize; D] = sizes(&self.large);
        // The gradient of two numbers of a channel is zero, and so it is of one, repeated.
        shape[0] += 3;
        let is_batch = self.operation == Operation::BatchNorm;
        if !is_batch {
            shape[D - 1] += 3;
        }
        let mut leaf = |view| {
            let view = if matches!(view, View::Repeated) { View::ChannelsFirst } else { view };
            placed(shape, view, |shape| on_device(random_host(&shape, random), shape, self.numbers, &device))
        };
        let (input, factor) = (leaf(self.views[0]).detach().require_grad(), leaf(self.views[1]));
        let channels = shape[1];
        let groups = self.window.groups;
        let mut vector =
            || on_device(random_host(&[channels], random), [channels], self.numbers, &device).require_grad();
        let (gamma, beta) = (vector(), vector());
        let [x, f] = [host(input.clone())?, host(factor.clone())?];
        let [g, b] = [host(gamma.clone())?, host(beta.clone())?];
        let (output, statistics) = if is_batch {
            let norm = batch_norm_train(input.clone(), gamma.clone(), beta.clone(), 1e-3);
            (norm.output, Some([norm.mean, norm.variance]))
        } else {
            (group_norm(input.clone(), Some((gamma.clone(), beta.clone())), groups, 1e-3), None)
        };
        let gradients = (output.clone() * factor).sum().backward();
        let positions: usize = shape[2..].iter().product();
        let channel_of = |at: usize| at / positions % channels;
        // The numbers that are normalised together.
        let mut sets = vec![Vec::new(); if is_batch { channels } else { shape[0] * groups }];
        for at in 0..x.len() {
            let group = at / positions / channels * groups + channel_of(at) * groups / channels;
            sets[if is_batch { channel_of(at) } else { group }].push(at);
        }
        let [mut y, mut of_x] = [(); 2].map(|()| Sums::new(x.len()));
        let [mut means, mut variances] = [(); 2].map(|()| Sums::new(sets.len()));
        let [mut of_g, mut of_b] = [(); 2].map(|()| Sums::new(channels));
        for (set, places) in sets.into_iter().enumerate() {
            let n = places.len() as f64;
            let mean = places.iter().map(|at| x[*at]).sum::<f64>() / n;
            let variance = places.iter().map(|at| (x[*at] - mean).powi(2)).sum::<f64>() / n;
            let scale = 1.0 / (variance + 1e-3).sqrt();
            let normalised = |at: usize| (x[at] - mean) * scale;
            let of_normalised = |at: usize| f[at] * g[channel_of(at)];
            let sum = places.iter().map(|at| of_normalised(*at)).sum::<f64>() / n;
            let correlation = places.iter().map(|at| of_normalised(*at) * normalised(*at)).sum::<f64>() / n;
            for at in places {
                let channel = channel_of(at);
                means.add(set, x[at] / n);
                variances.add(set, (x[at] - mean).powi(2) / n);
                y.add(at, normalised(at) * g[channel]);
                y.add(at, b[channel]);
                for term in [of_normalised(at), -sum, -normalised(at) * correlation] {
                    of_x.add(at, term * scale);
                }
                of_g.add(channel, f[at] * normalised(at));
                of_b.add(channel, f[at]);
            }
        }
        let vector = |tensor: Option<Tensor<1>>| host(tensor.context("no gradient of a vector")?);
        let mut errors = Errors::from([
            ("output", y.error(&host(output.inner())?)),
            ("of_input", of_x.error(&host(input.grad(&gradients).context("no gradient of the input")?)?)),
            ("of_gamma", of_g.error(&vector(gamma.grad(&gradients))?)),
            ("of_beta", of_b.error(&vector(beta.grad(&gradients))?)),
        ]);
        if let Some([mean, variance]) = statistics {
            errors.insert("mean", means.error(&host(mean.inner())?));
            errors.insert("variance", variances.error(&host(variance.inner())?));
        }
        Ok(errors)
    }

    /// Calls with the places of a number of the convolution's output, of the weight and of the input, for each product.
    fn for_each_term(&self, small: &[usize], mut term: impl FnMut(usize, usize, usize)) {
        let Self { large, weight, window, .. } = self;
        let per_group = weight[0] / window.groups;
        for (at_small, of_small) in indices(small).into_iter().enumerate() {
            for (at_kernel, of_kernel) in indices(&weight[1..]).into_iter().enumerate() {
                let mut at_large = of_small[0] * large[1] + of_small[1] / per_group * weight[1] + of_kernel[0];
                let mut is_inside = true;
                for size in 0..window.stride.len() {
                    let place = of_small[size + 2] * window.stride[size] + of_kernel[size + 1] * window.dilation[size];
                    is_inside &= (window.padding[size]..window.padding[size] + large[size + 2]).contains(&place);
                    at_large =
                        at_large * large[size + 2] + place.wrapping_sub(window.padding[size]) * usize::from(is_inside);
                }
                if is_inside {
                    let kernels: usize = weight[1..].iter().product();
                    term(at_small, of_small[1] * kernels + at_kernel, at_large);
                }
            }
        }
    }
}

/// All indices of a shape in order.
fn indices(shape: &[usize]) -> Vec<Vec<usize>> {
    shape.iter().fold(vec![Vec::new()], |indices, size| {
        indices.iter().flat_map(|index| (0..*size).map(move |last| [&index[..], &[last]].concat())).collect()
    })
}

fn sizes<const N: usize>(sizes: &[usize]) -> [usize; N] {
    std::array::from_fn(|size| sizes[size])
}

/// A tensor of this shape that lies in memory as asked for. Burn 0.22's fused kernels misread a dimension of 1 with the stride of the
/// last one, so it has none.
fn placed<const D: usize>(shape: [usize; D], view: View, mut random: impl FnMut([usize; D]) -> Tensor<D>) -> Tensor<D> {
    let view = match view {
        View::ChannelsLast if shape[1] == 1 => View::ChannelsFirst,
        View::Transposed if shape[D - 2] == 1 => View::ChannelsFirst,
        view => view,
    };
    match view {
        View::ChannelsFirst => random(shape),
        View::ChannelsLast => {
            let last: [usize; D] = std::array::from_fn(|dimension| match dimension {
                0 => shape[0],
                dimension if dimension == D - 1 => shape[1],
                dimension => shape[dimension + 1],
            });
            let axes: [isize; D] = std::array::from_fn(|dimension| match dimension {
                0 => 0,
                1 => D.cast_signed() - 1,
                dimension => dimension.cast_signed() - 1,
            });
            random(last).permute(axes)
        }
        View::Cut([above, below, before, behind]) => {
            let mut larger = shape;
            larger[1] += above + below;
            larger[D - 1] += before + behind;
            let ranges: [_; D] = std::array::from_fn(|dimension| match dimension {
                1 => above..above + shape[1],
                dimension if dimension == D - 1 => before..before + shape[D - 1],
                dimension => 0..shape[dimension],
            });
            random(larger).slice(ranges)
        }
        View::Transposed => {
            let mut swapped = shape;
            swapped.swap(D - 2, D - 1);
            random(swapped).swap_dims(D - 2, D - 1)
        }
        View::Repeated => {
            let mut one = shape;
            one[0] = 1;
            random(one).expand(shape)
        }
    }
}

#[derive(Serialize)]
struct Timed {
    run: &'static str,
    numbers: Numbers,
    layout: &'static str,
    batch: usize,
    channels: usize,
    size: usize,
    kernel: usize,
    /// Milliseconds by Burn's kernels: the output, with the gradient of the input, and with that of the weight.
    burn: [f64; 3],
    /// The same by the library.
    library: [f64; 3],
    /// Kernels of these passes.
    by: [By; 3],
}

#[derive(Serialize)]
struct TimedNorm {
    run: &'static str,
    numbers: Numbers,
    layout: &'static str,
    batch: usize,
    channels: usize,
    size: usize,
    /// Milliseconds of a forward and a backward pass.
    burn: f64,
    library: f64,
    /// Kernels of the passes by the library.
    by: By,
}

const LAYOUTS: [(&str, View); 2] = [("channels_first", View::ChannelsFirst), ("channels_last", View::ChannelsLast)];

/// Milliseconds of a call, after three others.
pub(crate) fn milliseconds(device: &Device, run: impl Fn()) -> anyhow::Result<f64> {
    (0..3).for_each(|_| run());
    device.sync()?;
    let begin = Instant::now();
    (0..20).for_each(|_| run());
    device.sync()?;
    Ok(begin.elapsed().as_secs_f64() * 1000.0 / 20.0)
}

/// Passes of batch norms, by both kernels.
fn time_norms(arguments: &Arguments, device: &Device) -> anyhow::Result<()> {
    for (batch, channels, size) in [(32, 96, 64), (64, 64, 32)] {
        for numbers in [Numbers::F32, Numbers::Bf16] {
            for (layout, view) in LAYOUTS {
                let random = |shape| {
                    let tensor = Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), (device, DType::F32));
                    Tensor::from_inner(tensor.cast(numbers.float()))
                };
                let [input, factor] = [(); 2].map(|()| placed([batch, channels, size, size], view, random));
                let input = input.detach().require_grad();
                let ones =
                    Tensor::<1>::ones([channels], (&device.clone().autodiff(), DType::F32)).cast(numbers.float());
                let [gamma, beta] = [(); 2].map(|()| ones.clone().detach().require_grad());
                let pass = || {
                    let norm = batch_norm_train(input.clone(), gamma.clone(), beta.clone(), 1e-5);
                    drop(input.grad(&(norm.output * factor.clone()).sum().backward()));
                };
                select(device, Numbers::Tf32, arguments.unchecked)?;
                let before = cudnn_use();
                let library = milliseconds(device, pass)?;
                let by = By::between(&before, &cudnn_use());
                select_burn();
                let burn = milliseconds(device, pass)?;
                let run = "batch norm times";
                let timed = TimedNorm { run, numbers, layout, batch, channels, size, burn, library, by };
                println!("{}", serde_json::to_string(&timed)?);
            }
        }
    }
    Ok(())
}

/// Passes of convolutions of 3 by 3, by both kernels.
fn time(arguments: &Arguments, device: &Device) -> anyhow::Result<()> {
    time_norms(arguments, device)?;
    for (batch, channels, size) in [(32, 64, 64), (32, 96, 64), (32, 128, 64), (64, 64, 32)] {
        for numbers in [Numbers::Tf32, Numbers::Bf16] {
            for (layout, view) in LAYOUTS {
                let random = |shape| {
                    let tensor = Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), (device, DType::F32));
                    Tensor::from_inner(tensor.cast(numbers.float()))
                };
                let image = [batch, channels, size, size];
                let [input, factor] = [(); 2].map(|()| placed(image, view, random));
                let weight = random([channels, channels, 3, 3]);
                let options = || ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
                let trained = |tensor: &Tensor<4>| tensor.clone().detach().require_grad();
                let (leaf, trained_weight) = (trained(&input), trained(&weight));
                let gradient = |input: &Tensor<4>, weight: &Tensor<4>, leaf: &Tensor<4>| {
                    let output = conv2d(input.clone(), weight.clone(), None, options());
                    drop(leaf.grad(&(output * factor.clone()).sum().backward()));
                };
                let passes: [&dyn Fn(); 3] = [
                    &|| drop(conv2d(input.clone(), weight.clone(), None, options())),
                    &|| gradient(&leaf, &weight, &leaf),
                    &|| gradient(&input, &trained_weight, &trained_weight),
                ];
                let ([mut burn, mut library], mut by) = ([[0.0; 3]; 2], [By::Burn; 3]);
                select(device, Numbers::Tf32, arguments.unchecked)?;
                for (pass, run) in passes.iter().enumerate() {
                    let before = cudnn_use();
                    library[pass] = milliseconds(device, run)?;
                    by[pass] = By::between(&before, &cudnn_use());
                }
                select_burn();
                for (pass, run) in passes.iter().enumerate() {
                    burn[pass] = milliseconds(device, run)?;
                }
                let run = "convolution times";
                let timed = Timed { run, numbers, layout, batch, channels, size, kernel: 3, burn, library, by };
                println!("{}", serde_json::to_string(&timed)?);
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas in fp64 are those of Burn's kernels on the CPU.
    #[test]
    fn the_reference_agrees_with_burn() {
        let mut random = StdRng::seed_from_u64(1);
        for operation in Operation::ALL {
            for sizes in 1..=3 {
                for _ in 0..8 {
                    let case = Case::generate(operation, sizes, Numbers::F32, &mut random);
                    // Burn 0.22's gradients of weights in groups are wrong where the stride leaves a rest.
                    if case.window.groups > 1 && case.rest().any(|rest| rest > 0) {
                        continue;
                    }
                    let errors = case.errors(&Device::flex(), &mut random).expect("errors");
                    assert!(
                        errors.values().all(|error| *error <= limit(Numbers::F32, case.operation)),
                        "{errors:?} {case:?}"
                    );
                }
            }
        }
    }
}
