//! Library products against fp64 on the host: forward and all gradients, of any shape and layout; and their time beside
//! Burn's.

#![allow(clippy::many_single_char_names, reason = "formulas of layer norms")]
#![allow(clippy::neg_cmp_op_on_partial_ord, reason = "an error of NaN is wrong")]
#![allow(clippy::cast_possible_wrap, reason = "sizes of cases are small")]

use std::time::Instant;

use anyhow::{Context, ensure};
use burn::tensor::{DType, Device, Distribution, FloatDType, Int, Tensor, TensorData};
use clap::{Args, ValueEnum};
use gpu_tuned::Kernels;
use gpu_tuned::kernels::{select_burn, select_library, was_library_operation_called};
use gpu_tuned_kernels::product::{embedding, layer_norm, linear, linear_with_gelu, matmul, target_log_probs};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Serialize;

use crate::{device::Choice, mode};

/// Options of `products`.
#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Operations, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Operation::ALL)]
    operations: Vec<Operation>,
    /// Number formats, separated by commas
    #[arg(long, value_enum, value_delimiter = ',', default_values_t = Numbers::ALL)]
    numbers: Vec<Numbers>,
    /// Cases of each operation in each precision
    #[arg(long, default_value_t = 1000)]
    cases: usize,
    /// Time products of the sizes in transformers instead
    #[arg(long)]
    time: bool,
    /// Time the feed-forward layers of transformers of these widths, over 8,192 tokens, instead
    #[arg(long, value_delimiter = ',')]
    widths: Vec<usize>,
    /// Kernels that are timed, separated by commas
    #[arg(long, value_delimiter = ',', default_values_t = [Kernels::Burn, Kernels::Library])]
    kernels: Vec<Kernels>,
    /// Seed of the cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// Numbers of a product, and the largest error allowed, relative to the largest value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Numbers {
    F32,
    Tf32,
    F16,
    Bf16,
}

impl Numbers {
    pub(crate) const ALL: [Self; 4] = [Self::F32, Self::Tf32, Self::F16, Self::Bf16];

    pub(crate) fn float(self) -> FloatDType {
        match self {
            Self::F32 | Self::Tf32 => FloatDType::F32,
            Self::F16 => FloatDType::F16,
            Self::Bf16 => FloatDType::BF16,
        }
    }

    /// Of products with sums in f32 whose inputs are exact.
    pub(crate) fn limit(self) -> f64 {
        match self {
            Self::F32 => 1e-5,
            Self::Tf32 | Self::F16 => 1e-3,
            Self::Bf16 => 1e-2,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "snake_case")]
#[value(rename_all = "snake_case")]
enum Operation {
    Product,
    Linear,
    LinearWithBias,
    LinearWithGelu,
    Embedding,
    LogProbs,
    LayerNorm,
}

impl Operation {
    const ALL: [Self; 7] = [
        Self::Product,
        Self::Linear,
        Self::LinearWithBias,
        Self::LinearWithGelu,
        Self::Embedding,
        Self::LogProbs,
        Self::LayerNorm,
    ];
}

#[derive(Serialize)]
struct Checked {
    run: &'static str,
    operation: Operation,
    numbers: Numbers,
    cases: usize,
    wrong: usize,
    /// Largest error, relative to the largest value of its tensor.
    worst: f64,
    worst_case: String,
    seconds: f64,
}

/// Prints a line for each operation and precision.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(mode::Precision::F32)?;
    if arguments.time {
        return time(&device, &SIZES, &arguments.kernels);
    }
    if !arguments.widths.is_empty() {
        let sizes: Vec<_> = arguments.widths.iter().map(|width| (8192, *width, 4 * width)).collect();
        return time(&device, &sizes, &arguments.kernels);
    }
    let mut wrong = 0;
    select_library(&device, false)?;
    ensure!(!was_library_operation_called(), "operations of the check at start count as the program's");
    for &operation in &arguments.operations {
        for &numbers in &arguments.numbers {
            select_library(&device, numbers == Numbers::Tf32)?;
            let begin = Instant::now();
            let mut random = StdRng::seed_from_u64(arguments.seed);
            let mut checked = Checked {
                run: "products",
                operation,
                numbers,
                cases: arguments.cases,
                wrong: 0,
                worst: 0.0,
                worst_case: String::new(),
                seconds: 0.0,
            };
            for _ in 0..arguments.cases {
                let case = Case::generate(operation, numbers, &mut random);
                let error = case.largest_error(&device, &mut random)?;
                if !(error <= numbers.limit()) {
                    checked.wrong += 1;
                }
                if is_worse(error, checked.worst) {
                    (checked.worst, checked.worst_case) = (error, format!("{case:?}"));
                }
            }
            checked.seconds = begin.elapsed().as_secs_f64();
            wrong += checked.wrong;
            println!("{}", serde_json::to_string(&checked)?);
        }
    }
    ensure!(was_library_operation_called(), "calls of operations are not remembered");
    ensure!(wrong == 0, "{wrong} cases are wrong");
    Ok(())
}

/// One operation of generated sizes.
#[derive(Clone, Debug)]
struct Case {
    operation: Operation,
    numbers: Numbers,
    /// Leading dimensions.
    batch: Vec<usize>,
    rows: usize,
    inner: usize,
    columns: usize,
    views: [View; 3],
}

/// How a tensor lies in memory.
#[derive(Clone, Copy, Debug)]
enum View {
    /// New.
    Own,
    /// The transpose of a new tensor.
    Transposed,
    /// A part of a larger tensor: rows and columns cut off before and behind.
    Cut([usize; 4]),
    /// One row or matrix, repeated.
    Repeated,
}

impl Case {
    fn generate(operation: Operation, numbers: Numbers, random: &mut StdRng) -> Self {
        let mut size = || match random.random_range(0..20) {
            0 => 0,
            1 => 1,
            2..=4 => 8 * random.random_range(1..9),
            5 => random.random_range(100..300),
            _ => random.random_range(1..40),
        };
        let (rows, mut inner, columns) = (size(), size(), size());
        // Long sums of odd length are two products.
        if random.random_range(0..50) == 0 {
            inner += 1024;
        }
        let batch = (0..random.random_range(0..3)).map(|_| random.random_range(1..4)).collect();
        let view = |random: &mut StdRng| match random.random_range(0..4) {
            0 => View::Own,
            1 => View::Transposed,
            2 => View::Cut([(); 4].map(|()| random.random_range(0..9))),
            _ => View::Repeated,
        };
        let views = [(); 3].map(|()| view(random));
        Self { operation, numbers, batch, rows, inner, columns, views }
    }

    /// Of the output and all gradients.
    fn largest_error(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<f64> {
        match self.operation {
            Operation::Embedding => return self.embedding_error(device, random),
            Operation::LogProbs => return self.log_probs_error(device, random),
            Operation::LayerNorm => return self.layer_norm_error(device, random),
            _ => {}
        }
        match self.batch.len() {
            0 => self.error::<2>(device, random),
            1 => self.error::<3>(device, random),
            _ => self.error::<4>(device, random),
        }
    }

    fn error<const D: usize>(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<f64> {
        let Self { rows, inner, columns, numbers, .. } = *self;
        let shape = |rows: usize, columns: usize| {
            let mut shape = [rows; D];
            shape[..D - 2].copy_from_slice(&self.batch);
            shape[D - 1] = columns;
            shape
        };
        let device = device.clone().autodiff();
        let left = view(shape(rows, inner), self.views[0], numbers, &device, random);
        let factor = random_host(&shape(rows, columns), random);
        let factor_tensor = on_device(factor, shape(rows, columns), numbers, &device);
        let factor = host(factor_tensor.clone())?;
        let batches: usize = self.batch.iter().product();
        let a = host(left.clone())?;
        let mut errors = Vec::new();
        if self.operation == Operation::Product {
            let right = view(shape(inner, columns), self.views[1], numbers, &device, random);
            let b = host(right.clone())?;
            let output = matmul(left.clone(), right.clone());
            let gradients = (output.clone() * factor_tensor).sum().backward();
            let (mut c, mut of_a, mut of_b) =
                (Sums::new(batches * rows * columns), Sums::new(a.len()), Sums::new(b.len()));
            for batch in 0..batches {
                for i in 0..rows {
                    for j in 0..columns {
                        let at = (batch * rows + i) * columns + j;
                        for k in 0..inner {
                            let (at_a, at_b) = ((batch * rows + i) * inner + k, (batch * inner + k) * columns + j);
                            c.add(at, a[at_a] * b[at_b]);
                            of_a.add(at_a, factor[at] * b[at_b]);
                            of_b.add(at_b, factor[at] * a[at_a]);
                        }
                    }
                }
            }
            errors.push(c.error(&host(output.inner())?));
            errors.push(of_a.error(&host(left.grad(&gradients).context("no gradient of the left matrix")?)?));
            errors.push(of_b.error(&host(right.grad(&gradients).context("no gradient of the right matrix")?)?));
        } else {
            let weight = view([inner, columns], self.views[1], numbers, &device, random);
            let bias = (self.operation != Operation::Linear)
                .then(|| on_device(random_host(&[columns], random), [columns], numbers, &device).require_grad());
            let w = host(weight.clone())?;
            let (output, slopes) = match &bias {
                Some(bias) if self.operation == Operation::LinearWithGelu => {
                    let output = linear_with_gelu(left.clone(), weight.clone(), bias.clone());
                    // Of the input of GELU, as the library rounds it: once. The slope is the half of `1 + tanh(z)` and a term.
                    let input = host(linear_in_one(left.clone(), weight.clone(), bias.clone()))?;
                    (output, input.into_iter().map(|input| [0.5, gelu(input)[1] - 0.5]).collect())
                }
                _ => (linear(left.clone(), weight.clone(), bias.clone()), vec![[1.0, 0.0]; factor.len()]),
            };
            let gradients = (output.clone() * factor_tensor).sum().backward();
            let all = batches * rows;
            let (mut c, mut of_a, mut of_w) = (Sums::new(all * columns), Sums::new(a.len()), Sums::new(w.len()));
            let mut of_bias = Sums::new(columns);
            let b = bias.clone().map(host).transpose()?;
            for i in 0..all {
                for j in 0..columns {
                    let at = i * columns + j;
                    let of_sum = slopes[at].map(|slope| factor[at] * slope);
                    if let Some(b) = &b {
                        c.add(at, b[j]);
                        for of_sum in of_sum {
                            of_bias.add(j, of_sum);
                        }
                    }
                    for k in 0..inner {
                        c.add(at, a[i * inner + k] * w[k * columns + j]);
                        for of_sum in of_sum {
                            of_a.add(i * inner + k, of_sum * w[k * columns + j]);
                            of_w.add(k * columns + j, of_sum * a[i * inner + k]);
                        }
                    }
                }
            }
            if self.operation == Operation::LinearWithGelu {
                c.values.iter_mut().for_each(|sum| *sum = gelu(*sum)[0]);
            }
            errors.push(c.error(&host(output.inner())?));
            errors.push(of_a.error(&host(left.grad(&gradients).context("no gradient of the input")?)?));
            errors.push(of_w.error(&host(weight.grad(&gradients).context("no gradient of the weight")?)?));
            if let Some(bias) = bias {
                errors.push(of_bias.error(&host(bias.grad(&gradients).context("no gradient of the bias")?)?));
            }
        }
        Ok(errors.into_iter().fold(0.0, worse))
    }

    fn embedding_error(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<f64> {
        let Self { rows, inner, columns, numbers, .. } = *self;
        let (words, width) = (rows.max(1), columns.max(1));
        let (samples, length) = (self.batch.iter().product::<usize>(), inner.max(1));
        let device = device.clone().autodiff();
        let table = view([words, width], self.views[0], numbers, &device, random);
        let tokens: Vec<i32> = (0..samples * length).map(|_| random.random_range(0..words as i32)).collect();
        let ids = Tensor::<2, Int>::from_data(TensorData::new(tokens.clone(), [samples, length]), &device);
        let shape = [samples, length, width];
        let factor = on_device(random_host(&shape, random), shape, numbers, &device);
        let f = host(factor.clone())?;
        let t = host(table.clone())?;
        let output = embedding(table.clone(), ids);
        let gradients = (output.clone() * factor).sum().backward();
        let (mut vectors, mut of_table) = (Sums::new(f.len()), Sums::new(t.len()));
        for (i, token) in tokens.iter().enumerate() {
            for j in 0..width {
                vectors.add(i * width + j, t[*token as usize * width + j]);
                of_table.add(*token as usize * width + j, f[i * width + j]);
            }
        }
        let of_table = of_table.error(&host(table.grad(&gradients).context("no gradient of the table")?)?);
        Ok(worse(vectors.error(&host(output.inner())?), of_table))
    }
}

impl Case {
    fn log_probs_error(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<f64> {
        let Self { rows, columns, numbers, .. } = *self;
        let classes = (columns + 2) * self.batch.iter().product::<usize>().pow(2);
        let device = device.clone().autodiff();
        let logits = view([rows, classes], self.views[0], numbers, &device, random);
        let targets: Vec<i32> = (0..rows).map(|_| random.random_range(0..classes as i32)).collect();
        let ids = Tensor::<1, Int>::from_data(TensorData::new(targets.clone(), [rows]), &device);
        let factor = on_device(random_host(&[rows], random), [rows], Numbers::F32, &device);
        let (x, f) = (host(logits.clone())?, host(factor.clone())?);
        let output = target_log_probs(logits.clone(), ids);
        let gradients = (output.clone() * factor).sum().backward();
        let (mut found, mut of_logits) = (Sums::new(rows), Sums::new(x.len()));
        for row in 0..rows {
            let logits = &x[row * classes..][..classes];
            let normaliser = logits.iter().map(|logit| logit.exp()).sum::<f64>().ln();
            for (class, logit) in logits.iter().enumerate() {
                let is_target = class as i32 == targets[row];
                of_logits
                    .add(row * classes + class, f[row] * (f64::from(u8::from(is_target)) - (logit - normaliser).exp()));
                if is_target {
                    found.add(row, logit - normaliser);
                }
            }
        }
        let of_logits = of_logits.error(&host(logits.grad(&gradients).context("no gradient of the logits")?)?);
        Ok(worse(found.error(&host(output.inner())?), of_logits))
    }

    fn layer_norm_error(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<f64> {
        let Self { inner: rows, columns, numbers, .. } = *self;
        // The gradient of a row of two numbers or fewer is zero.
        let (samples, width) = (self.batch.iter().product::<usize>(), columns + 3);
        let device = device.clone().autodiff();
        let input = view([samples, rows, width], self.views[0], numbers, &device, random);
        let [gamma, beta] =
            [(); 2].map(|()| on_device(random_host(&[width], random), [width], numbers, &device).require_grad());
        let shape = [samples, rows, width];
        let factor = on_device(random_host(&shape, random), shape, numbers, &device);
        let [x, f] = [host(input.clone())?, host(factor.clone())?];
        let [g, b] = [host(gamma.clone())?, host(beta.clone())?];
        let output = layer_norm(input.clone(), gamma.clone(), beta.clone(), 1e-5);
        let gradients = (output.clone() * factor).sum().backward();
        let (mut y, mut of_x, mut of_g, mut of_b) =
            (Sums::new(x.len()), Sums::new(x.len()), Sums::new(width), Sums::new(width));
        for row in 0..samples * rows {
            let (x, f) = (&x[row * width..][..width], &f[row * width..][..width]);
            let n = width as f64;
            let mean = x.iter().sum::<f64>() / n;
            let scale = 1.0 / (x.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / n + 1e-5).sqrt();
            let normalised: Vec<f64> = x.iter().map(|x| (x - mean) * scale).collect();
            let of_normalised: Vec<f64> = f.iter().zip(&g).map(|(f, g)| f * g).collect();
            let sum = of_normalised.iter().sum::<f64>() / n;
            let correlation = of_normalised.iter().zip(&normalised).map(|(of, value)| of * value).sum::<f64>() / n;
            for column in 0..width {
                y.add(row * width + column, normalised[column] * g[column]);
                y.add(row * width + column, b[column]);
                of_x.add(row * width + column, of_normalised[column] * scale);
                of_x.add(row * width + column, -sum * scale);
                of_x.add(row * width + column, -normalised[column] * correlation * scale);
                of_g.add(column, f[column] * normalised[column]);
                of_b.add(column, f[column]);
            }
        }
        let gradient = |tensor: Option<Tensor<1>>| host(tensor.context("no gradient of a vector")?);
        let errors = [
            y.error(&host(output.inner())?),
            of_x.error(&host(input.grad(&gradients).context("no gradient of the input")?)?),
            of_g.error(&gradient(gamma.grad(&gradients))?),
            of_b.error(&gradient(beta.grad(&gradients))?),
        ];
        Ok(errors.into_iter().fold(0.0, worse))
    }
}

/// GELU by its tanh approximation, and its slope.
fn gelu(input: f64) -> [f64; 2] {
    // 0.5 · (1 + tanh(z)) is the logistic function of 2 z.
    let scale = (8.0 / std::f64::consts::PI).sqrt();
    let logistic = 1.0 / (1.0 + (-scale * (input + 0.044_715 * input.powi(3))).exp());
    let inner_slope = scale * (1.0 + 3.0 * 0.044_715 * input.powi(2));
    [input * logistic, logistic + input * logistic * (1.0 - logistic) * inner_slope]
}

/// A linear layer as one product, whatever its inner numbers are: long sums of odd length are two, each rounded.
fn linear_in_one<const D: usize>(left: Tensor<D>, weight: Tensor<2>, bias: Tensor<1>) -> Tensor<D> {
    let [inner, columns] = weight.dims();
    let missing = inner.next_multiple_of(64) - inner;
    if inner < 1024 || missing == 0 {
        return linear(left, weight, Some(bias));
    }
    let mut shape = left.dims();
    shape[D - 1] = missing;
    let options = (&left.device(), left.dtype());
    let (of_left, of_weight) = (Tensor::zeros(shape, options), Tensor::zeros([missing, columns], options));
    linear(Tensor::cat(vec![left, of_left], D - 1), Tensor::cat(vec![weight, of_weight], 0), Some(bias))
}

/// Sums in f64, with the sizes of their terms.
pub(crate) struct Sums {
    pub(crate) values: Vec<f64>,
    sizes: Vec<f64>,
}

impl Sums {
    pub(crate) fn new(length: usize) -> Self {
        Self { values: vec![0.0; length], sizes: vec![0.0; length] }
    }

    pub(crate) fn add(&mut self, at: usize, term: f64) {
        self.add_sum(at, term, term.abs());
    }

    /// Adds a sum, with that of its absolute terms.
    pub(crate) fn add_sum(&mut self, at: usize, sum: f64, size: f64) {
        self.values[at] += sum;
        self.sizes[at] += size;
    }

    /// Largest error, relative to the largest sum of absolute terms.
    pub(crate) fn error(&self, found: &[f64]) -> f64 {
        self.error_of(found, self.sizes.iter().copied().fold(0.0, f64::max))
    }

    /// Largest error, relative to the largest sum, or to this part of the largest sum of absolute terms if that is more.
    pub(crate) fn error_beside(&self, found: &[f64], part: f64) -> f64 {
        let sizes = self.sizes.iter().map(|size| size * part);
        self.error_of(found, self.values.iter().map(|value| value.abs()).chain(sizes).fold(0.0, f64::max))
    }

    fn error_of(&self, found: &[f64], largest: f64) -> f64 {
        if found.len() != self.values.len() {
            return f64::INFINITY;
        }
        let largest = largest.max(f64::MIN_POSITIVE);
        self.values.iter().zip(found).map(|(value, found)| (value - found).abs() / largest).fold(0.0, worse)
    }
}

/// Returns true for an error beyond the worst one so far; none is beyond NaN.
pub(crate) fn is_worse(error: f64, worst: f64) -> bool {
    !(worst.is_nan() || error <= worst)
}

/// The larger; NaN is the largest.
pub(crate) fn worse(one: f64, other: f64) -> f64 {
    if one.is_nan() || other.is_nan() { f64::NAN } else { one.max(other) }
}

pub(crate) fn random_host(shape: &[usize], random: &mut StdRng) -> Vec<f32> {
    (0..shape.iter().product()).map(|_| random.random_range(-1.0..1.0)).collect()
}

pub(crate) fn on_device<const D: usize>(
    values: Vec<f32>,
    shape: [usize; D],
    numbers: Numbers,
    device: &Device,
) -> Tensor<D> {
    let dtype = DType::from(numbers.float());
    Tensor::from_data(TensorData::new(values, shape).convert_dtype(dtype), (device, dtype))
}

pub(crate) fn host<const D: usize>(tensor: Tensor<D>) -> anyhow::Result<Vec<f64>> {
    Ok(tensor.try_into_data()?.iter::<f64>().collect())
}

/// A leaf of the autodiff graph that lies in memory as asked for.
fn view<const D: usize>(
    shape: [usize; D],
    view: View,
    numbers: Numbers,
    device: &Device,
    random: &mut StdRng,
) -> Tensor<D> {
    let mut random_tensor = |shape: [usize; D]| on_device(random_host(&shape, random), shape, numbers, device);
    let [rows, columns] = [shape[D - 2], shape[D - 1]];
    let with = |rows: usize, columns: usize| {
        let mut larger = shape;
        (larger[D - 2], larger[D - 1]) = (rows, columns);
        larger
    };
    let tensor = match view {
        View::Own => random_tensor(shape),
        View::Transposed => random_tensor(with(columns, rows)).swap_dims(D - 2, D - 1),
        View::Cut([above, below, before, behind]) => {
            let larger = random_tensor(with(above + rows + below, before + columns + behind));
            let ranges: [_; D] = std::array::from_fn(|dim| match dim {
                dim if dim == D - 2 => above..above + rows,
                dim if dim == D - 1 => before..before + columns,
                dim => 0..shape[dim],
            });
            larger.slice(ranges)
        }
        View::Repeated if shape.contains(&0) => random_tensor(shape),
        View::Repeated if D > 2 => {
            let mut one = shape;
            one[0] = 1;
            random_tensor(one).expand(shape)
        }
        View::Repeated => random_tensor(with(1, columns)).expand(shape),
    };
    tensor.detach().require_grad()
}

#[derive(Serialize)]
struct Timed {
    run: &'static str,
    operation: Operation,
    numbers: Numbers,
    rows: usize,
    inner: usize,
    columns: usize,
    /// Milliseconds of a forward and a backward pass.
    burn: Option<f64>,
    library: Option<f64>,
}

/// Rows, inner size and columns of the products that are timed.
const SIZES: [(usize, usize, usize); 6] = [
    (8192, 512, 2048),
    (8192, 2048, 512),
    (8192, 512, 512),
    (4096, 384, 50_257),
    (4096, 384, 50_304),
    (16_384, 512, 8192),
];

/// Forward and backward passes of a linear layer with bias, by each of some kernels.
fn time(device: &Device, sizes: &[(usize, usize, usize)], kernels: &[Kernels]) -> anyhow::Result<()> {
    for &(rows, inner, columns) in sizes {
        for numbers in [Numbers::Tf32, Numbers::Bf16] {
            let tensor = |shape: [usize; 2]| {
                Tensor::<2>::random(shape, Distribution::Normal(0.0, 1.0), (device, DType::F32)).cast(numbers.float())
            };
            let device = device.clone().autodiff();
            let [input, weight, factor] = [[rows, inner], [inner, columns], [rows, columns]].map(tensor);
            let bias = Tensor::<1>::zeros([columns], (&device, DType::F32)).cast(numbers.float());
            let [input, weight, factor] = [input, weight, factor].map(Tensor::from_inner);
            let (input, weight, bias) = (input.require_grad(), weight.require_grad(), bias.require_grad());
            let pass = || {
                let output = linear(input.clone(), weight.clone(), Some(bias.clone()));
                let gradients = (output * factor.clone()).sum().backward();
                (input.grad(&gradients), weight.grad(&gradients), bias.grad(&gradients))
            };
            let milliseconds = |by: Kernels| -> anyhow::Result<Option<f64>> {
                if !kernels.contains(&by) {
                    return Ok(None);
                }
                if by.is_library() {
                    select_library(&device, true)?;
                } else {
                    select_burn();
                }
                for _ in 0..3 {
                    drop(pass());
                }
                device.sync()?;
                let begin = Instant::now();
                for _ in 0..20 {
                    drop(pass());
                }
                device.sync()?;
                Ok(Some(begin.elapsed().as_secs_f64() * 1000.0 / 20.0))
            };
            let [library, burn] = [milliseconds(Kernels::Library)?, milliseconds(Kernels::Burn)?];
            let timed = Timed {
                run: "product times",
                operation: Operation::LinearWithBias,
                numbers,
                rows,
                inner,
                columns,
                burn,
                library,
            };
            println!("{}", serde_json::to_string(&timed)?);
        }
    }
    Ok(())
}
