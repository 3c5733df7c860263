//! Precision of fp32 products on a device.
//!
//! With TF32 on, some tuned kernels on tensor cores round their fp32 operands to TF32's 10 mantissa bits, and others do
//! not. Tuning chooses a kernel for each shape, so the probe runs a product.
//!
//! Each row of the left operand pairs `1 + 2^-p` with `-1`, for one p of 1 to 23, and the right operand is constant. A
//! row's exact sum is (number of pairs) x `2^-p`. The number of pairs is bounded so that every partial sum, in any
//! order, fits into fp32's 24 bits. Kernels that add in another order, or with fused multiply-add, return the exact
//! sum; any difference is rounding of the operand alone. A kernel that rounds to fewer than p bits loses the whole sum.
//! The left operand is scaled by 2^20 and the right one by 2^-20. These values fit into fp32, TF32 and bf16, but not
//! into fp16, which has as many mantissa bits as TF32.

use core::fmt;

use burn::tensor::{DType, Device, Tensor, TensorData, TensorReadError};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::guard::catching;

/// The shape of a product of row-major matrices: `m x k` times `k x n`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Gemm {
    /// Rows of the left operand: for a linear layer, the samples (times the positions) of a micro-batch.
    pub m: usize,
    /// The length of the sums: for a linear layer, its inputs.
    pub k: usize,
    /// Columns of the right operand: for a linear layer, its outputs.
    pub n: usize,
}

impl fmt::Display for Gemm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}x{}x{}", self.m, self.k, self.n)
    }
}

/// Precision of the operands of an fp32 product on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatmulMath {
    /// As f32: at least 20 mantissa bits, which sums of several TF32 products reach too.
    Full,
    /// As TF32: at least 10 mantissa bits, with the range of f32.
    Tf32,
    /// Less than TF32, as bf16 or f16.
    Lower,
}

impl MatmulMath {
    const FULL_BITS: u32 = 20;
    const TF32_BITS: u32 = 10;

    fn from_mantissa_bits(mantissa_bits: u32) -> Self {
        match mantissa_bits {
            Self::FULL_BITS.. => Self::Full,
            Self::TF32_BITS.. => Self::Tf32,
            _ => Self::Lower,
        }
    }
}

impl fmt::Display for MatmulMath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Full => "f32",
            Self::Tf32 => "TF32",
            Self::Lower => "less than TF32",
        })
    }
}

/// Result of a probe with products of one shape.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct MatmulProbe {
    /// The shape; another one may be answered by another kernel.
    pub shape: Gemm,
    /// The verdict.
    pub math: MatmulMath,
    /// Mantissa bits of the left operand that reached the result, of f32's 23.
    pub mantissa_bits: u32,
    /// The largest error of a result, relative to the sum of its terms' magnitudes; at most 1.
    pub worst_relative_error: f64,
}

impl fmt::Display for MatmulProbe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { shape, math, mantissa_bits, worst_relative_error } = self;
        write!(f, "f32 products of {shape} run in {math}: {mantissa_bits} of 23 mantissa bits")?;
        write!(f, ", worst relative error {worst_relative_error:.1e}")
    }
}

/// Why a device could not be probed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ProbeError {
    /// The shape has no rows or columns, sums of fewer than two terms, or more entries than can be addressed.
    #[error("products of {0} cannot be probed: m and n must be at least 1, k at least 2")]
    Shape(Gemm),
    /// The device did not deliver the result; on a full device this is where it shows.
    #[error("the products of {shape} could not be read")]
    Read {
        /// The shape.
        shape: Gemm,
        /// Error of the read.
        #[source]
        source: TensorReadError,
    },
    /// Burn panicked on the way.
    #[error("the products of {shape} failed: {message}")]
    Failed {
        /// The shape.
        shape: Gemm,
        /// The panic's message.
        message: String,
    },
}

/// Finds out how precisely `device` computes f32 products of this shape.
///
/// The result applies to this shape, row-major operands and a product of two matrices. Transposed operands (the
/// backward pass), batches of matrices and convolutions have other kernels.
///
/// Allocates `4 (mk + kn + mn)` bytes and as much again for copies on the device. Runs one product, or `23 / m` of them
/// for fewer than 23 rows. The first product of a shape costs autotuning, up to some seconds, which training on that
/// shape would spend later.
///
/// # Errors
///
/// [`ProbeError`] if the shape is degenerate, or the device has no room for it.
pub fn probe(device: &Device, shape: Gemm) -> Result<MatmulProbe, ProbeError> {
    let Gemm { m, k, n } = shape;
    let addressable = [(m, k), (k, n), (m, n)].iter().all(|(a, b)| a.checked_mul(*b).is_some());
    if m == 0 || n == 0 || k < 2 || !addressable {
        return Err(ProbeError::Shape(shape));
    }
    let device = device.clone().without_autodiff();
    let lines = catching(|| measure(&device, shape)).map_err(|message| ProbeError::Failed { shape, message })?;
    Ok(judge(shape, &lines.map_err(|source| ProbeError::Read { shape, source })?))
}

const BITS: u32 = 23;
const SCALE: f32 = (1 << 20) as f32;
const MOST_PAIRS: usize = 512;
// Columns are equal; a few show that, and the whole result may be too large to read.
const COLUMNS_READ: usize = 32;

/// The results that show whether the mantissa bit worth `2^-bit` was kept.
struct Line {
    bit: u32,
    pairs: usize,
    values: Vec<f32>,
}

impl Line {
    fn exact(&self) -> f64 {
        self.pairs as f64 * (-f64::from(self.bit)).exp2()
    }

    fn is_kept(&self) -> bool {
        let exact = self.exact();
        self.values.iter().all(|value| (f64::from(*value) - exact).abs() < exact / 2.0)
    }

    fn worst_relative_error(&self) -> f64 {
        let exact = self.exact();
        let magnitude = 2.0 * self.pairs as f64 + exact;
        // `min` also makes NaN, which overflow leaves behind, an error of 1.
        let errors = self.values.iter().map(|value| ((f64::from(*value) - exact).abs() / magnitude).min(1.0));
        errors.fold(0.0, f64::max)
    }
}

/// The verdict on results, whatever computed them.
fn judge(shape: Gemm, lines: &[Line]) -> MatmulProbe {
    let kept = |bit: &u32| lines.iter().filter(|line| line.bit == *bit).all(Line::is_kept);
    let mantissa_bits = (1..=BITS).take_while(kept).last().unwrap_or(0);
    let worst_relative_error = lines.iter().map(Line::worst_relative_error).fold(0.0, f64::max);
    MatmulProbe { shape, math: MatmulMath::from_mantissa_bits(mantissa_bits), mantissa_bits, worst_relative_error }
}

fn pairs(bit: u32, k: usize) -> usize {
    // More pairs than 2^(23 - bit), and a partial sum could need more than 24 bits.
    (k / 2).min(1 << (BITS - bit)).min(MOST_PAIRS)
}

/// A row of the left operand: pairs that lose their sum without the bit worth `2^-bit`, spread over `k` entries.
fn row(bit: u32, k: usize) -> Vec<f32> {
    let mut row = vec![0.0; k];
    let pairs = pairs(bit, k);
    for pair in 0..pairs {
        let at = 2 * (pair * (k / 2) / pairs);
        row[at] = SCALE * (1.0 + (-(bit as f32)).exp2());
        row[at + 1] = -SCALE;
    }
    row
}

fn measure(device: &Device, shape: Gemm) -> Result<Vec<Line>, TensorReadError> {
    let right = Tensor::<2>::full([shape.k, shape.n], SCALE.recip(), (device, DType::F32));
    let bits: Vec<u32> = (1..=BITS).collect();
    let mut lines = Vec::with_capacity(bits.len());
    for bits in bits.chunks(shape.m) {
        lines.extend(product(bits, right.clone(), shape)?);
    }
    Ok(lines)
}

fn product(bits: &[u32], right: Tensor<2>, shape: Gemm) -> Result<Vec<Line>, TensorReadError> {
    let Gemm { m, k, n } = shape;
    let rows: Vec<f32> = bits.iter().flat_map(|bit| row(*bit, k)).collect();
    let rows = TensorData::new(rows, [bits.len(), k]);
    let rows = Tensor::<2>::from_data(rows, (&right.device(), DType::F32));
    let left = rows.repeat_dim(0, m.div_ceil(bits.len())).slice([0..m, 0..k]);
    let columns = n.min(COLUMNS_READ);
    let values = left.matmul(right).slice([0..m, 0..columns]).try_into_vec_as::<f32>()?;
    let line = |(at, bit): (usize, &u32)| {
        let rows = values.chunks(columns).skip(at).step_by(bits.len());
        Line { bit: *bit, pairs: pairs(*bit, k), values: rows.flatten().copied().collect() }
    };
    Ok(bits.iter().enumerate().map(line).collect())
}

#[cfg(test)]
#[path = "tf32_tests.rs"]
mod tests;
