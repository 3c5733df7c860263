//! Proposes annotations and other edits for programs: `cargo gpu-tuned init` without its command line.
//!
//! [`Proposal`] looks for training configs in Rust sources. The other modules edit build scripts and manifests, and keep
//! their line endings.

#![forbid(unsafe_code)]

mod annotation;
pub mod build_script;
mod candidate;
mod code;
pub mod diff;
mod flow;
mod imports;
pub mod line_endings;
mod live;
mod losses;
mod model;
mod proposal;
pub mod release;
mod sources;
#[cfg(test)]
mod tests;
pub mod toml_insert;
mod training_loop;

pub use imports::{Import, ImportProposal};
pub use model::ModelWords;
pub use proposal::{Found, Proposal, Reading};
pub use sources::Edit;
pub use training_loop::{LoopPlaces, TAKE_STEPS};
