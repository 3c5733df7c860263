//! Memory on GPUs that are not there, from what steps allocate on the CPU.
//!
//! Three optimizer steps are run on the CPU at two micro-batches, and every allocation is recorded. Each one's size is a
//! line over the micro-batch, so that the allocations of any micro-batch are known. What CUDA does otherwise is
//! rewritten: fused optimizers, convolutions, padded rows. Then the allocations are dealt out as `CubeCL` would.

mod affine;
mod convolution;
mod devices;
mod missed;
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
pub use missed::missed;
pub use replayed::{Replayed, Trace};
pub use traces::Traces;
