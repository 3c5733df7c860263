//! Memory on GPUs that are not there, from what steps allocate on the CPU.
//!
//! Three optimizer steps are run on the CPU at two micro-batches, and every allocation is recorded. Each one's size is a
//! line over the micro-batch, so that the allocations of any micro-batch are known. What CUDA does otherwise is
//! rewritten: fused optimizers, convolutions, padded rows. Then the allocations are dealt out as `CubeCL` would.

use std::collections::BTreeMap;

use burn::module::Module;
use gpu_tuned_core::measured::MeasuredOn;

use super::MeasureError;
use super::bench::Bench;

#[cfg(feature = "counting-allocator")]
mod affine;
#[cfg(feature = "counting-allocator")]
mod convolution;
#[cfg(feature = "counting-allocator")]
mod parameters;
#[cfg(feature = "counting-allocator")]
mod pools;
#[cfg(feature = "counting-allocator")]
mod program;
#[cfg(feature = "counting-allocator")]
mod replayed;
#[cfg(all(test, feature = "counting-allocator"))]
mod tests;
#[cfg(feature = "counting-allocator")]
mod trace;
#[cfg(feature = "counting-allocator")]
mod update;

#[cfg(feature = "counting-allocator")]
pub use replayed::{Replayed, Trace};

/// What steps would reserve on GPUs, each by its name; none yet.
#[expect(clippy::unnecessary_wraps, reason = "replaying can fail")]
pub(super) fn devices<M: Module, B: Clone>(
    _: &Bench<'_, '_, M, B>,
) -> Result<BTreeMap<String, MeasuredOn>, MeasureError> {
    Ok(BTreeMap::new())
}
