//! Memory on GPUs that are not there, from what steps allocate on the CPU.
//!
//! Three optimizer steps run on the CPU at two micro-batches, and every allocation is recorded. The size of each
//! allocation is linear in the micro-batch, which predicts the allocations of any micro-batch. Differences of CUDA are
//! rewritten: fused optimizers, convolutions, padded rows. A model of `CubeCL`'s pools then allocates them.

mod affine;
mod convolution;
mod devices;
mod parameters;
mod pools;
mod program;
mod replayed;
#[cfg(test)]
mod tests;
mod trace;
mod traces;
mod update;

pub(super) use devices::devices;
pub use replayed::{Replayed, Trace};
pub use traces::Traces;
