//! Costs of a training step: descriptions of models and training methods, the costs computed from them, and measured costs.
//!
//! `gpu-tuned-core` plans with them, and re-exports this crate.

#![forbid(unsafe_code)]

mod bytes;
pub mod dims;
pub mod measured;
mod precision;
mod provenance;
mod suggest;
pub mod workload;

pub use bytes::Bytes;
pub use precision::{ParsePolicyError, ParsePrecisionError, Precision, PrecisionPolicy};
pub use provenance::Provenance;
pub use suggest::{suggest, suggest_key};
