//! Precision of fp32 products on a device: a probe, and a switch.
//!
//! # Probe
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
//!
//! # Switch
//!
//! Burn 0.22 has no switch for TF32: its kernels use tensor cores for fp32 on every device that reports TF32. `CubeCL`
//! reads these properties once, when the device is opened. [`switch_tf32_off`] opens the device without TF32 in its
//! properties, so kernels that need tensor cores decline fp32. Kernels of other formats stay. Burn 0.23 will have a switch
//! (`allow_tf32` in `[cubek.matmul]`), which replaces this one.

use core::fmt;
use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use burn::tensor::{DType, Device, Tensor, TensorData, TensorReadError};
#[cfg(feature = "cuda")]
use gpu_tuned_core::device::ComputeCapability;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{OpenError, Place, catching};

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
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum ProbeError {
    /// The shape has no rows or columns, sums of fewer than two terms, or more entries than can be addressed.
    #[error("products of {0} cannot be probed: m and n must be at least 1, k at least 2")]
    Shape(Gemm),
    /// The device did not deliver the result; on a full device this is where it shows.
    #[error("the products of {shape} could not be read")]
    Read {
        shape: Gemm,
        #[source]
        source: TensorReadError,
    },
    /// Burn panicked on the way.
    #[error("the products of {shape} failed: {message}")]
    Failed { shape: Gemm, message: String },
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

/// The GPUs that this process has opened or tried to, by CUDA's index.
static OPENED: Mutex<Opened> = Mutex::new(Opened { with_tf32: BTreeSet::new(), without: BTreeSet::new() });

#[cfg_attr(not(feature = "cuda"), expect(dead_code, reason = "no GPU is opened without CUDA"))]
struct Opened {
    with_tf32: BTreeSet<usize>,
    without: BTreeSet<usize>,
}

fn opened() -> MutexGuard<'static, Opened> {
    OPENED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns true if this process has switched TF32 off on any GPU. It stays off.
pub fn tf32_is_off() -> bool {
    !opened().without.is_empty()
}

/// Returns true if this process has opened a GPU with TF32, which stays on.
#[cfg(feature = "cuda")]
pub fn tf32_is_on() -> bool {
    !opened().with_tf32.is_empty()
}

/// Records that a GPU is about to be opened, with TF32 or without. Returns true if TF32 must be switched off first,
/// because other GPUs have none.
#[cfg(feature = "cuda")]
pub(super) fn is_to_be_switched_off(gpu: &super::CudaDevice) -> bool {
    let mut opened = opened();
    if has_tf32(gpu) && opened.without.is_empty() {
        opened.with_tf32.insert(gpu.index);
    }
    has_tf32(gpu) && !opened.without.is_empty() && !opened.without.contains(&gpu.index)
}

/// Returns true if the GPU has TF32, or if that is unknown.
#[cfg(feature = "cuda")]
fn has_tf32(gpu: &super::CudaDevice) -> bool {
    gpu.compute_capability.is_none_or(ComputeCapability::has_tf32)
}

/// Switches TF32 off on the GPU at `place`, for the rest of the process: products and convolutions of f32 run without
/// tensor cores then. Other formats keep theirs. Where it is off, or the GPU has none, this does nothing.
///
/// Burn's `attention` function on tensors without autodiff is not affected: it multiplies fp32 in fp16 where tuning
/// finds that faster.
///
/// Call it before anything uses a GPU, [`open`](super::open) included. GPUs that are opened later with that follow; call it
/// for those that Burn is to open by itself. `start` does, where that is asked for.
///
/// Processes with TF32 need other tuning caches: Burn panics if a cached choice declines. With feature `warm`, begin
/// with a `Fingerprint` that has `full_f32`.
///
/// # Errors
///
/// [`OpenError::Tf32`] if the GPU was used before, if another one is open with TF32, or if `CubeCL` fails. The errors
/// of [`open`](super::open) for a missing GPU or a missing context.
pub fn switch_tf32_off(place: &Place) -> Result<(), OpenError> {
    #[cfg(feature = "cuda")]
    return cuda::switch_off(place);
    #[cfg(not(feature = "cuda"))]
    {
        let _ = place;
        Err(OpenError::WithoutCuda)
    }
}

/// Removes all properties by which fp32 products could use TF32.
#[cfg(any(feature = "cuda", all(test, feature = "cubecl")))]
fn strip(properties: &mut cubecl::ir::DeviceProperties) {
    use cubecl::ir::{ElemType, FloatKind};

    const TF32: ElemType = ElemType::Float(FloatKind::TF32);
    let features = &mut properties.features;
    features.types.elem.remove(&TF32);
    features.matmul.cmma.retain(|config| ![config.a_type, config.b_type].contains(&TF32));
    features.matmul.cube_mma.retain(|config| ![config.a_type, config.b_type].contains(&TF32));
    features.matmul.mma.retain(|config| ![config.a_type, config.b_type].contains(&TF32));
}

#[cfg(feature = "cuda")]
mod cuda {
    #![allow(unsafe_code)]

    use std::convert::identity;
    use std::sync::Arc;
    use std::sync::atomic::{Ordering, fence};

    use burn::backend::DeviceService;
    use cubecl::client::Client;
    use cubecl::cuda::CudaRuntime;
    use cubecl::device::DeviceId;
    use cubecl::server::Server;
    use cubecl_runtime::runtime::Runtime;
    use gpu_tuned_nvml::cuda_devices;

    use super::{OpenError, Place, has_tf32, opened, strip};
    use crate::device::catching_on_thread;
    use crate::device::open::cuda::retain;

    pub(super) fn switch_off(place: &Place) -> Result<(), OpenError> {
        let gpu = place.find(&cuda_devices()?)?.clone();
        if !has_tf32(&gpu) {
            return Ok(());
        }
        // Locked to the end, so that the second of two concurrent calls finds TF32 switched off.
        let mut opened = opened();
        if opened.without.contains(&gpu.index) {
            return Ok(());
        }
        let refused = |message: String| OpenError::Tf32 { device: Box::new(gpu.clone()), message };
        if !opened.with_tf32.is_empty() {
            return Err(refused("this process has opened GPUs with it".to_owned()));
        }
        // The driver reports errors for which CubeCL would panic.
        let (context, _) = retain(&gpu)?;
        let id = DeviceId::new(0, gpu.index as u16);
        // On a thread of its own, because it makes the context current.
        catching_on_thread(|| serve(id)).and_then(identity).map_err(refused)?;
        drop(context);
        opened.without.insert(gpu.index);
        Ok(())
    }

    type CudaServer = <CudaRuntime as Runtime>::Server;

    /// Opens a device as `CubeCL` does when it is first used, but for TF32.
    fn serve(device: DeviceId) -> Result<(), String> {
        let mut server = CudaServer::init(device);
        forget_tf32(&mut server)?;
        Client::try_init(device, server).map(drop).map_err(|error| format!("it was used before ({error:?})"))
    }

    fn forget_tf32(server: &mut CudaServer) -> Result<(), String> {
        let shared = Server::utilities(server);
        if (Arc::strong_count(&shared), Arc::weak_count(&shared)) != (2, 0) {
            return Err("CubeCL knows the device already".to_owned());
        }
        // Whoever has let go of it before has done so before what follows.
        fence(Ordering::Acquire);
        // SAFETY: one of the two counts is `shared`. The other is the server's, which hands out clones of its own and
        // is borrowed mutably here. No other code reads or clones the value until this function returns, and this
        // reference, the only one, ends before.
        let utilities = unsafe { &mut *Arc::as_ptr(&shared).cast_mut() };
        strip(Arc::make_mut(&mut utilities.properties));
        utilities.properties_hash = utilities.properties.checksum();
        Ok(())
    }
}

#[cfg(test)]
mod tests;
