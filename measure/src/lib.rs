//! Measurements of training steps in Burn, and kernel caches that outlive the process.
//!
//! | module | content |
//! |---|---|
//! | [`measure`] | memory and time of training steps |
//! | [`warm`] | caches of kernels and tuning, and archives of them |
//! | [`warm_up`] | steps that fill an archive |
//! | [`requests`] | environment variables by which the command line requests measurements |
//!
//! Programs depend on `gpu-tuned`, which re-exports what they need.

#![forbid(unsafe_code)]

pub mod measure;
pub mod requests;
mod versions;
#[cfg(feature = "warm")]
pub mod warm;
#[cfg(feature = "warm")]
pub mod warm_up;
