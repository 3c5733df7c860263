//! Library attention against fp64 on the host: outputs and all gradients; and its time beside single operations.

use anyhow::{Context, ensure};
use burn::tensor::activation::softmax;
use burn::tensor::{DType, Device, Distribution, Tensor};
use clap::Args;
use gpu_tuned::kernels::select_burn;
use gpu_tuned_kernels::attention::Attention;
use gpu_tuned_kernels::cublaslt::Element;
use gpu_tuned_kernels::product::{attention, matmul};
use gpu_tuned_kernels::selection::{cudnn, cudnn_use};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Serialize;

use crate::convolutions::{milliseconds, print_refused, select};
use crate::device::Choice;
use crate::judged::{Errors, Judged};
use crate::mode;
use crate::products::{Numbers, Sums, host, on_device, random_host};

/// Options of `attention`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Cases in each precision
    #[arg(long, default_value_t = 100)]
    cases: usize,
    /// Time attention of the sizes in transformers instead
    #[arg(long)]
    time: bool,
    /// Compute with cuDNN in spite of the check at start
    #[arg(long)]
    unchecked: bool,
    /// Seed of the cases
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

const TENSORS: [&str; 4] = ["output", "of_query", "of_key", "of_value"];
/// The precisions that the library computes.
const NUMBERS: [Numbers; 2] = [Numbers::F16, Numbers::Bf16];
/// Most cases that are drawn for one that the library computes.
const MOST_DRAWS: usize = 10_000;

#[derive(Serialize)]
struct Checked {
    run: &'static str,
    numbers: Numbers,
    #[serde(flatten)]
    judged: Judged,
}

/// Part of a sum's absolute terms whose errors count as its own. Gradients of scores are differences with the rounded output: of
/// two keys of which one has all the weight, nothing but rounding is left. With the limit of 1e-2 that is 1e-3 of the terms: what
/// two roundings to float16 are at most (2^-10), and an eighth of two to bfloat16.
const CANCELLED: f64 = 0.1;

/// Weights are rounded to 16 bits before their products with values.
fn limit(numbers: Numbers) -> f64 {
    if numbers == Numbers::F32 { numbers.limit() } else { 1e-2 }
}

/// Prints a line for each precision.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(mode::Precision::F32)?;
    if arguments.time {
        return time(&device);
    }
    print_refused(&device, arguments.unchecked)?;
    let (mut wrong, mut by_burn) = (0, 0);
    for numbers in NUMBERS {
        select(&device, numbers, arguments.unchecked)?;
        let mut random = StdRng::seed_from_u64(arguments.seed);
        let judged = Judged::new(arguments.cases, limit(numbers), || {
            let case = Case::generate(numbers, &mut random)?;
            Ok((format!("{case:?}"), case.errors(&device, &mut random)?))
        })?;
        wrong += judged.wrong;
        by_burn += arguments.cases - judged.by_library;
        println!("{}", serde_json::to_string(&Checked { run: "attention", numbers, judged })?);
    }
    ensure!(wrong == 0, "{wrong} cases are wrong");
    ensure!(by_burn == 0, "the library did not compute {by_burn} cases: {:?}", cudnn_use().reasons);
    Ok(())
}

/// How a tensor `[batch, rows, heads, numbers]` lies in memory.
#[derive(Clone, Copy, Debug)]
enum Layout {
    Own,
    /// Heads before rows.
    HeadsFirst,
    /// Part of longer rows, with so many numbers before and behind.
    Cut(usize, usize),
}

/// Numbers that are added to the scores.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Bias {
    None,
    /// One for all sequences.
    One,
    /// One for each sequence.
    Each,
}

/// Attention of generated sizes.
#[derive(Clone, Debug)]
struct Case {
    numbers: Numbers,
    batch: usize,
    heads: usize,
    queries: usize,
    keys: usize,
    inner: usize,
    values: usize,
    is_causal: bool,
    bias: Bias,
    layouts: [Layout; 3],
}

impl Case {
    /// A case that the loaded cuDNN computes: many versions need keys in whole tiles.
    fn generate(numbers: Numbers, random: &mut StdRng) -> anyhow::Result<Self> {
        let version = cudnn().context("there is no cuDNN")?.version();
        let mut cases = std::iter::repeat_with(|| Self::draw(numbers, random)).take(MOST_DRAWS);
        cases.find(|case| case.attention().is_supported(version)).context("cuDNN computes no attention")
    }

    /// The attention, for tensors without gaps.
    fn attention(&self) -> Attention {
        let Self { numbers, batch, heads, queries, keys, inner, values, is_causal, bias, .. } = *self;
        let element = if numbers == Numbers::F16 { Element::F16 } else { Element::Bf16 };
        let packed = |rows, numbers| Attention::packed(heads, rows, numbers);
        let strides = [packed(queries, inner), packed(keys, inner), packed(keys, values), packed(queries, values)];
        let biases = match bias {
            Bias::None => 0,
            Bias::One => 1,
            Bias::Each => batch,
        };
        Attention { element, batch, heads, queries, keys, inner, values, is_causal, biases, strides }
    }

    fn draw(numbers: Numbers, random: &mut StdRng) -> Self {
        let mut draw = |least: usize, most: usize| random.random_range(least..=most);
        let (batch, heads) = (draw(1, 4), draw(1, 5));
        let length = |draw: &mut dyn FnMut(usize, usize) -> usize| match draw(0, 3) {
            0 => draw(2, 16),
            1 => draw(17, 150),
            2 => 8 * draw(1, 24),
            _ => 64 * draw(1, 4),
        };
        let queries = length(&mut draw);
        let keys = match draw(0, 2) {
            0 => queries,
            1 => length(&mut draw),
            _ => 128 * draw(1, 3),
        };
        let width = |draw: &mut dyn FnMut(usize, usize) -> usize| [64, 32, 128, 8 * draw(1, 16)][draw(0, 3)];
        let inner = width(&mut draw);
        let values = if draw(0, 3) > 0 { inner } else { width(&mut draw) };
        let layout = |draw: &mut dyn FnMut(usize, usize) -> usize| match draw(0, 4) {
            0 | 1 => Layout::Own,
            2 => Layout::HeadsFirst,
            3 => Layout::Cut(8 * draw(0, 3), 8 * draw(1, 3)),
            _ => Layout::Cut(draw(0, 9), draw(0, 9)),
        };
        Self {
            numbers,
            batch,
            heads,
            queries,
            keys,
            inner,
            values,
            is_causal: draw(0, 1) == 0,
            bias: [Bias::None, Bias::One, Bias::Each][draw(0, 2)],
            layouts: [layout(&mut draw), layout(&mut draw), layout(&mut draw)],
        }
    }

    /// A leaf of the autodiff graph `[batch, rows, heads, numbers]`.
    fn leaf(
        &self,
        layout: Layout,
        [rows, width]: [usize; 2],
        scale: f32,
        device: &Device,
        random: &mut StdRng,
    ) -> Tensor<4> {
        let Self { numbers, batch, heads, .. } = *self;
        let mut tensor = |shape: [usize; 4]| {
            let values = random_host(&shape, random).into_iter().map(|value| value * scale).collect();
            on_device(values, shape, numbers, device)
        };
        let tensor = match layout {
            Layout::Own => tensor([batch, rows, heads, width]),
            Layout::HeadsFirst => tensor([batch, heads, rows, width]).swap_dims(1, 2),
            Layout::Cut(before, behind) => {
                tensor([batch, rows, heads, before + width + behind]).narrow(3, before, width)
            }
        };
        tensor.detach().require_grad()
    }

    /// Small numbers, and some that exclude a key. The first key is never excluded.
    fn biases(&self, random: &mut StdRng) -> Option<Vec<f32>> {
        let parts = match self.bias {
            Bias::None => return None,
            Bias::One => 1,
            Bias::Each => self.batch,
        };
        let numbers = (0..parts * self.queries * self.keys).map(|at| {
            let is_excluded = !at.is_multiple_of(self.keys) && random.random_range(0..3) == 0;
            if is_excluded { -1e4 } else { random.random_range(-1.0..1.0) }
        });
        Some(numbers.collect())
    }

    fn errors(&self, device: &Device, random: &mut StdRng) -> anyhow::Result<Errors> {
        let Self { numbers, queries, keys, inner, values, is_causal, .. } = *self;
        let device = device.clone().autodiff();
        let [of_query, of_key, of_value] = self.layouts;
        // Scores of several units.
        let query = self.leaf(of_query, [queries, inner], 3.0, &device, random);
        let key = self.leaf(of_key, [keys, inner], 2.0, &device, random);
        let value = self.leaf(of_value, [keys, values], 1.0, &device, random);
        let factor = self.leaf(Layout::Own, [queries, values], 1.0, &device, random).detach();
        let bias = self.biases(random).map(|bias| {
            let parts = bias.len() / (queries * keys);
            on_device(bias, [parts, queries, keys], numbers, &device)
        });
        let output = attention(query.clone(), key.clone(), value.clone(), bias.clone(), is_causal);
        let gradients = (output.clone() * factor.clone()).sum().backward();
        let mut found = vec![host(output.inner())?];
        for leaf in [&query, &key, &value] {
            found.push(host(leaf.grad(&gradients).context("no gradient")?)?);
        }
        let leaves = [host(query.inner())?, host(key.inner())?, host(value.inner())?];
        let bias = bias.map(|bias| host(bias.inner())).transpose()?;
        let expected = self.reference(&leaves, bias.as_deref(), &host(factor.inner())?);
        let errors = found.iter().zip(&expected).map(|(found, expected)| expected.error_beside(found, CANCELLED));
        Ok(TENSORS.into_iter().zip(errors).collect())
    }

    /// Output, and gradients of query, key and value.
    fn reference(&self, [query, key, value]: &[Vec<f64>; 3], bias: Option<&[f64]>, gradient: &[f64]) -> [Sums; 4] {
        let Self { batch, heads, queries, keys, inner, values, is_causal, .. } = *self;
        let scale = 1.0 / (inner as f64).sqrt();
        let mut output = Sums::new(gradient.len());
        let [mut of_query, mut of_key, mut of_value] = [query, key, value].map(|leaf| Sums::new(leaf.len()));
        for (sequence, head) in (0..batch).flat_map(|sequence| (0..heads).map(move |head| (sequence, head))) {
            let at = |row: usize, rows: usize, width: usize| ((sequence * rows + row) * heads + head) * width;
            let of_sequence = if self.bias == Bias::Each { sequence * queries * keys } else { 0 };
            for row in 0..queries {
                let seen = if is_causal { keys.min(row + 1) } else { keys };
                let (q, o) = (at(row, queries, inner), at(row, queries, values));
                let scores: Vec<f64> = (0..seen)
                    .map(|column| {
                        let of_bias = bias.map_or(0.0, |bias| bias[of_sequence + row * keys + column]);
                        scale * dot(&query[q..q + inner], &key[at(column, keys, inner)..][..inner]).0 + of_bias
                    })
                    .collect();
                let largest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let sum: f64 = scores.iter().map(|score| (score - largest).exp()).sum();
                let weights: Vec<f64> = scores.iter().map(|score| (score - largest).exp() / sum).collect();
                for (column, weight) in weights.iter().enumerate() {
                    let v = at(column, keys, values);
                    for number in 0..values {
                        output.add(o + number, weight * value[v + number]);
                        of_value.add(v + number, weight * gradient[o + number]);
                    }
                }
                let (mean, mean_terms) = dot(&output.values[o..o + values], &gradient[o..o + values]);
                for (column, weight) in weights.iter().enumerate() {
                    let (k, v) = (at(column, keys, inner), at(column, keys, values));
                    let (of_weight, terms) = dot(&gradient[o..o + values], &value[v..v + values]);
                    // Both are sums that may cancel.
                    let of_score = scale * weight * (of_weight - mean);
                    let terms = scale * weight * (terms + mean_terms);
                    for number in 0..inner {
                        of_query.add_sum(q + number, of_score * key[k + number], terms * key[k + number].abs());
                        of_key.add_sum(k + number, of_score * query[q + number], terms * query[q + number].abs());
                    }
                }
            }
        }
        [output, of_query, of_key, of_value]
    }
}

/// A product of vectors, and the sum of its absolute terms.
fn dot(left: &[f64], right: &[f64]) -> (f64, f64) {
    left.iter().zip(right).fold((0.0, 0.0), |(sum, terms), (one, other)| {
        let term = one * other;
        (sum + term, terms + term.abs())
    })
}

#[derive(Serialize)]
struct Timed {
    run: &'static str,
    numbers: Numbers,
    batch: usize,
    heads: usize,
    length: usize,
    width: usize,
    is_causal: bool,
    has_bias: bool,
    /// Milliseconds of a forward and a backward pass by Burn's kernels.
    burn: f64,
    /// The same with library products.
    products: f64,
    library: f64,
}

/// Sequences, heads, length, and numbers of a head.
const SIZES: [[usize; 4]; 5] =
    [[64, 8, 256, 64], [64, 6, 256, 64], [64, 4, 144, 64], [16, 12, 1024, 64], [8, 16, 1024, 128]];

/// Forward and backward passes.
fn time(device: &Device) -> anyhow::Result<()> {
    let device = device.clone().autodiff();
    for (numbers, [batch, heads, length, width]) in
        NUMBERS.into_iter().flat_map(|numbers| SIZES.map(|size| (numbers, size)))
    {
        for (is_causal, has_bias) in [(false, false), (true, false), (false, true)] {
            select(&device, numbers, false)?;
            let random = |shape: [usize; 4]| {
                let tensor = Tensor::<4>::random(shape, Distribution::Normal(0.0, 1.0), (&device, DType::F32));
                tensor.cast(numbers.float())
            };
            let leaves = [(); 3].map(|()| random([batch, length, heads, width]).detach().require_grad());
            let bias = has_bias.then(|| random([batch, 1, length, length]).squeeze_dim::<3>(1).detach());
            let pass = |run: &dyn Fn([Tensor<4>; 3]) -> Tensor<4>| drop(run(leaves.clone()).sum().backward());
            let by_attention = || {
                pass(&|[query, key, value]| attention(query, key, value, bias.clone(), is_causal));
            };
            // As modules compute attention whose weights are returned.
            let by_operations = || {
                pass(&|tensors| {
                    let [query, key, value] = tensors.map(|tensor| tensor.swap_dims(1, 2));
                    let mut scores = matmul(query, key.transpose()).div_scalar((width as f32).sqrt());
                    if let Some(bias) = bias.clone() {
                        scores = scores + bias.unsqueeze_dim::<4>(1);
                    }
                    matmul(softmax(scores, 3), value).swap_dims(1, 2)
                });
            };
            let launched = cudnn_use().calls;
            let library = milliseconds(&device, by_attention)?;
            ensure!(cudnn_use().calls > launched, "the library computed no attention: {:?}", cudnn_use().reasons);
            let products = milliseconds(&device, by_operations)?;
            select_burn();
            let burn = milliseconds(&device, by_operations)?;
            let run = "attention times";
            let timed =
                Timed { run, numbers, batch, heads, length, width, is_causal, has_bias, burn, products, library };
            println!("{}", serde_json::to_string(&timed)?);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The formulas in fp64 are those of Burn's operations on the CPU.
    #[test]
    fn the_reference_agrees_with_burn() {
        let mut random = StdRng::seed_from_u64(1);
        for _ in 0..8 {
            let case = Case::draw(Numbers::F32, &mut random);
            let errors = case.errors(&Device::flex(), &mut random).expect("errors");
            assert_eq!(errors.len(), 4);
            assert!(errors.values().all(|error| *error <= limit(Numbers::F32)), "{errors:?} {case:?}");
        }
    }
}
