//! Proposes annotations and other edits for programs: `cargo gpu-tuned init` without its command line.
//!
//! [`Proposal`] looks for training configs in Rust sources. The other modules edit build scripts and manifests, and keep
//! their line endings.

#![forbid(unsafe_code)]

mod annotation;
pub mod build_script;
mod burn;
mod candidate;
mod code;
mod constructor;
mod defaults;
mod device;
pub mod diff;
mod failure;
pub mod line_endings;
mod losses;
mod micro_batch;
mod nested;
mod not_found;
mod numbers;
mod optimizer;
mod program;
mod proposal;
mod readiness;
pub mod release;
mod sources;
pub mod toml_insert;
mod training_loop;
mod values;
mod words;

pub use proposal::{Found, Proposal, Reading};
pub use sources::Edit;
pub use words::ModelWords;
