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

mod cast;
mod error;
mod gradients;
mod half;
mod island;
mod loss_scale;
mod master;
mod module_path;
mod optimizer;
mod rotary;
mod statistics;

#[cfg(test)]
mod tests;

pub use cast::in_f32;
pub(crate) use cast::is_half;
pub use error::MixedError;
#[doc(hidden)]
pub use gradients::in_parameter_types;
pub use gradients::{Factor, clip, global_norm, widen, widen_onto};
pub(crate) use gradients::{TOGETHER, add, clip_factor, multiply};
pub use half::Half;
pub use island::InF32;
pub use loss_scale::{LossScale, StepOutcome};
pub use master::Master;
pub(crate) use master::with_values;
pub(crate) use module_path::{ModulePath, track_path};
pub use optimizer::{F32State, Wide};
pub use rotary::rotary;
pub(crate) use statistics::running_states;
