//! Products of NVIDIA's cuBLASLt in Burn, and Burn's modules with them.
//!
//! Burn's own products reach an eighth of a GPU's peak; those of the library 2 to 8 times as much, without autotune. The
//! modules in [`nn`] have Burn's names, configs and records. On a CUDA device with the library they compute with it;
//! elsewhere they are Burn's.

pub mod cublaslt;
pub mod find;
pub mod matrix;
#[cfg(feature = "nn")]
pub mod nn;
#[cfg(feature = "cuda")]
pub mod operations;
#[cfg(feature = "nn")]
pub mod product;
#[cfg(feature = "nn")]
pub mod selection;
