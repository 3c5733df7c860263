//! Mixed precision: the step computes in 16 bits, the optimizer in f32.
//!
//! Burn 0.22.1 has no automatic casts, no loss scaler and no master weights. An operation on two float types panics on
//! the CPU, and `CubeCL`'s kernels read one type as the other. The default float type of the device is therefore the
//! 16-bit one ([`default_float`](crate::device::default_float)), which applies to all tensors that a model creates
//! (states, masks, positions, batches). A [`Master`] has the weights in fp32 and makes 16-bit copies to compute with.
//! Their gradients are [widened](widen) before they are accumulated, clipped and passed to the optimizer.
//!
//! | what | type | bytes for each parameter |
//! |---|---|---|
//! | [`Master`] | f32 | 4 |
//! | optimizer state | f32 | 8 for Adam |
//! | gradients after [`widen`] | f32 | 4 |
//! | [`compute_copy`](Master::compute_copy) | 16 bits | 2 |
//! | gradients before [`widen`] | 16 bits | 2, each until it is widened |
//! | activations | 16 bits | |
//! | modules in an [`InF32`], the loss after [`in_f32`] | f32 | |
//!
//! A step of two micro-batches:
//!
//! ```
//! # extern crate gpu_tuned_train as gpu_tuned;
//! use burn::nn::{Linear, LinearConfig};
//! use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
//! use burn::tensor::{DType, Device, Tensor};
//! use gpu_tuned::mixed::{F32State, Half, LossScale, Master, StepOutcome, clip, global_norm, in_f32};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let device = Device::flex().autodiff(); // in a session of `mixed_f16`, its default float type is f16
//! let model: Linear = LinearConfig::new(4, 1).init(&device);
//! let mut optimizer: ModuleOptimizer = F32State::new(AdamWConfig::new().build()).into();
//! let mut master = Master::new(model, Half::F16)?;
//! let mut scale = LossScale::for_half(Half::F16);
//!
//! let model = master.compute_copy();
//! let mut gradients = GradientsParams::new();
//! for _ in 0..2 {
//!     let batch = Tensor::<2>::ones([8, 4], (&device, DType::F16));
//!     let loss = in_f32(model.forward(batch)).square().mean() / 2.0;
//!     let of_batch = GradientsParams::from_grads(scale.scale(loss).backward(), &model);
//!     gradients = scale.widen_onto(gradients, of_batch, &model)?;
//! }
//! let norm = global_norm(&gradients, &model).ok_or("nothing is trained")?;
//! let gradients = clip(gradients, &model, &norm, 1.0);
//! drop(model);
//! let norm: f32 = norm.try_into_scalar()?; // the only thing that the host waits for
//! if scale.update(norm.is_finite()) == StepOutcome::Applied {
//!     master = master.update(|model| optimizer.step(1e-3, model, gradients));
//! }
//! # assert_eq!(master.model().weight.dtype(), DType::F32);
//! # Ok(())
//! # }
//! ```
//!
//! # Normalisation
//!
//! Largest errors of the outputs of Burn's layers against fp64, in standard deviations of the output, over widths 64,
//! 1024 and 8192. The inputs have a mean and deviation, and are 16-bit already. The errors were computed on the CPU,
//! whose operations sum in fp32 and round their results, as those of `CubeCL` do. In an [`InF32`] all errors are within
//! the rounding of the output: 0.008 in bf16, 0.001 in fp16.
//!
//! | layer | bf16: 0 ± 1 | 10 ± 10 | 10 ± 1 | 10 ± 0.1 | f16: 0 ± 1 | 10 ± 1 | 10 ± 0.1 |
//! |---|---|---|---|---|---|---|---|
//! | `LayerNorm`, CPU | 0.008 | 0.008 | 0.008 | 0.009 | 0.001 | 0.001 | 0.002 |
//! | `LayerNorm` of its operations, as on a GPU | 0.020 | 0.027 | 0.035 | 0.149 | in f32 | in f32 | in f32 |
//! | `RmsNorm` | 0.014 | 0.012 | 0.007 | 0.004 | 0.002 | 0.001 | 0.001 |
//! | `GroupNorm`, `InstanceNorm` | 0.020 | 0.027 | 0.035 | 0.149 | 0.001 | 0.001 | 0.001 |
//! | `BatchNorm` | 0.020 | 0.027 | 0.035 | 0.149 | 0.002 | 0.005 | 0.040 |
//!
//! The loss comes from rounding the mean and the differences to it. `RmsNorm` sums in fp32 by itself; `LayerNorm`,
//! `GroupNorm` and `InstanceNorm` widen fp16 but not bf16. Wrap a layer whose inputs are far from centred in an
//! `InF32`.
//!
//! **Wrap every `BatchNorm` in an `InF32`**: [`Master::new`] refuses other models. Each batch moves the running
//! statistics by a tenth of the difference, which 16 bits round away. The factors 0.9 and 0.1, rounded to bf16, do not
//! add up to 1. After 200 equal batches of mean 3 and variance 4, a mean in bf16 stays at 0.95 of it and a variance at
//! 0.98. In an `InF32` the statistics are fp32, are computed from fp32 sums of fp32 differences, and are shared by the
//! master and its copies: a forward pass of a copy updates those that are saved. They cannot be recovered from 16-bit
//! ones, because Burn exposes neither the momentum nor the number of runs.
//!
//! # Losses
//!
//! Call [`in_f32`] on the model's output, and on real-valued targets. With a default of bf16 or fp16, these losses of
//! Burn then return the same as with fp32. `CrossEntropyLoss` (also with padding), `CTCLoss`, `MseLoss`, `LpLoss`,
//! `HuberLoss`, `SmoothL1Loss`, `PoissonNllLoss`, `GaussianNLLLoss`, `KLDivLoss`, `CosineEmbeddingLoss`,
//! `HingeEmbeddingLoss`, `MarginRankingLoss`, `MultiMarginLoss`, `SoftMarginLoss`, `TripletMarginLoss`.
//!
//! The following create tensors of the default type inside, and so mix types:
//!
//! | loss | instead |
//! |---|---|
//! | `CrossEntropyLoss` with smoothing `a` | `(1 - a)` times the one without, less `a` times the mean of `log_softmax` |
//! | `CrossEntropyLoss` with weights | weigh the picked `log_softmax` with an f32 tensor |
//! | `BinaryCrossEntropyLoss` of logits | the mean of `softplus(logits, 1.0) - logits * targets`, targets in f32 |
//! | `CTCLoss::forward_with_reduction` with a mean | `forward`, and a mean over f32 lengths |
//! | `RNNTLoss` | none: compute the joiner's output in 16 bits |
//!
//! # Positions
//!
//! `RotaryEncoding` computes its angles in the default type, and rotates by other angles than it should: use [`rotary`].
//! `PositionalEncoding` computes on the host, and only rounds the result. A model that makes numbers of its own out of
//! positions or counts above 256 should make them integers until the end.
//!
//! # Saving and loading
//!
//! Save `master.model().valid()`: plain fp32 weights, and statistics with the last batch in them (Burn keeps the last
//! update of each thread pending). Load an fp32 record into a model before [`Master::new`]: it stays fp32.
//! [`LossScale`] serialises. Burn loads the state of optimizers in the default float type: wrap the optimizer in an
//! [`F32State`].
//!
//! Evaluate with `master.compute_copy().valid()` in the process that trains, and with the f32 model in any other.

mod gradients;
mod island;
mod master;
#[cfg(test)]
mod tests;

use burn::nn::{RotaryEncoding, RotaryEncodingConfig};
use burn::tensor::{DType, Device, FloatDType, Tensor, TensorData};
use gpu_tuned_core::Precision;
use thiserror::Error;

pub use gradients::{Factor, LossScale, StepOutcome, clip, global_norm, widen, widen_onto};
pub(crate) use gradients::{TOGETHER, clip_factor, multiplied, multiply};
#[doc(hidden)]
pub use gradients::{accumulate, in_parameter_types};
pub use island::InF32;
pub(crate) use island::{ModulePath, running_states, track_path};
pub use master::{F32State, Master, Wide, in_f32};
pub(crate) use master::{is_half, with_values};

/// A 16-bit float type that the step of mixed precision computes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Half {
    /// The range of f32 with 8 bits of mantissa.
    Bf16,
    /// 11 bits of mantissa, no value above 65504: needs [`LossScale`].
    F16,
}

impl Half {
    /// The 16-bit type of a mixed precision; `None` for other precisions.
    pub const fn of(precision: Precision) -> Option<Self> {
        match precision {
            Precision::MixedBf16 => Some(Self::Bf16),
            Precision::MixedF16 => Some(Self::F16),
            Precision::F32 | Precision::Bf16Params => None,
        }
    }

    /// Its type in Burn: the default float type of the device that trains, see
    /// [`default_float`](crate::device::default_float).
    pub const fn float(self) -> FloatDType {
        match self {
            Self::Bf16 => FloatDType::BF16,
            Self::F16 => FloatDType::F16,
        }
    }
}

/// Why a model cannot be trained in mixed precision as it is.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum MixedError {
    /// Running statistics, of a `BatchNorm` for example, whose updates would be rounded away.
    #[error(
        "running statistics would be kept in 16 bits, which rounds their updates away: {}; hold the module in an \
         `InF32`, or set precision = \"f32\"",
        .paths.join(", ")
    )]
    HalfStatistics { paths: Vec<String> },
    /// A gradient that does not have the type of its parameter: somewhere the forward pass mixed types, and what it
    /// computed there means nothing.
    #[error(
        "the gradient of `{path}` is {gradient:?} where the parameter is {parameter:?}: the forward pass mixes float types \
         there; convert the model's output and the targets with `in_f32` before the loss, or set precision = \"f32\""
    )]
    MixedTypes {
        path: String,
        /// The type of the parameter that computed.
        parameter: DType,
        gradient: DType,
    },
    /// A loss in 16 bits. It has two to three digits in bf16, and its gradients begin from rounded logits. PyTorch's autocast
    /// computes losses in fp32.
    #[error(
        "the loss is in {loss:?}, which rounds it to {} digits, and its gradients with it: call `in_f32` on the inputs of the \
         loss, such as the logits; or set precision = \"f32\"; or accept such losses with `Trainer::accept_half_loss`",
        if *.loss == DType::BF16 { 2 } else { 3 }
    )]
    HalfLoss { loss: DType },
}

/// Rotary position encodings whose angles are exact.
///
/// Burn 0.22.1 computes positions, frequencies and angles in the default float type. bf16 rounds positions above 256,
/// and angles by up to some radians. Over 1024 positions, a component of at most 1.41 is off by up to 2.4, and in fp16
/// by up to 0.25. This function computes angles in fp64, and rounds only their sines and cosines.
///
/// [`RotaryEncoding::shift`] recomputes angles as Burn does: do not use it with a 16-bit default type.
///
/// # Panics
///
/// As `config.init`, if the width is odd or theta is not positive.
pub fn rotary(config: &RotaryEncodingConfig, device: &Device) -> RotaryEncoding {
    let mut encoding = config.init(device);
    let frequency = |pair: usize| f64::from(config.theta).powf(-(2.0 * pair as f64) / config.d_model as f64);
    let angles = (0..config.max_sequence_length).flat_map(|position| {
        // Both components of a pair turn by the same angle.
        (0..config.d_model).map(move |component| position as f64 * frequency(component / 2))
    });
    let table: Vec<f32> = angles.flat_map(|angle| [angle.cos() as f32, angle.sin() as f32]).collect();
    let table = TensorData::new(table, [config.max_sequence_length, config.d_model, 2]);
    encoding.freq_complex = Tensor::from_data(table, device);
    encoding
}
