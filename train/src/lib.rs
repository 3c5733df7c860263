//! Training in Burn: devices, mixed precision, data loading and optimizer steps.
//!
//! | module | content |
//! |---|---|
//! | [`device`] | GPUs as CUDA shows them, opened without a panic |
//! | [`mixed`] | mixed precision |
//! | [`micro_batch`] | batches that can be cut |
//! | [`load`] | data loading with bounded prefetch |
//! | [`loss`] | cross-entropy of large vocabularies in chunks |
//! | [`train`] | trainer, ranks, Burn's training loop, metrics |
//! | [`timing`] | times of steps for recordings and traces |
//! | [`recurrent`] | LSTM with one matrix product a time step |
//! | [`shape`] | parameter count and shape hash of a model |
//! | [`allocation`] | allocator that counts bytes |
//!
//! Programs depend on `gpu-tuned`, which re-exports what they need.

#![deny(unsafe_code)]

#[cfg(feature = "counting-allocator")]
pub mod allocation;
pub mod device;
pub mod load;
pub mod loss;
pub mod micro_batch;
pub mod mixed;
pub mod out_of_memory;
pub mod recurrent;
pub mod shape;
pub mod timing;
pub mod train;
