//! The build-script half of `gpu-tuned`: Cargo features and tables in, one resolved table out.
//!
//! ```no_run
//! // build.rs, in `main`
//! gpu_tuned_build::configure().emit();
//! ```
//!
//! # What a build is for
//!
//! A feature of your package that is named like a GPU profile (`rtx4090`, `h200`, or one of your `gpu-tuned.toml`)
//! selects that GPU.
//!
//! | enabled features | selection |
//! |---|---|
//! | none of a profile | the conservative `generic` profile |
//! | one | that GPU |
//! | several, `--all-features` | one plan that fits each of them, with what all can do |
//! | `native` | the GPU in the build machine; without one `generic`, with a warning |
//! | `native` and others | the others, with a warning: what is named beats what is found |
//! | `generic` and others | the others: `generic` says that no GPU is named |
//!
//! The environment variable `GPU_TUNED_TARGET` overrides the features: `h200`, `h200,rtx4090`, `generic` or `native`.
//! `GPU_TUNED_PRINT=1` stops the build and prints the resolved table.
//!
//! `native` needs the feature of that name of this crate, which is best forwarded:
//!
//! ```toml
//! [features]
//! native = ["gpu-tuned-build/native"]
//! ```
//!
//! The machine is asked when the build script runs, which is not at every build: after a change of the GPU or of its
//! driver, `touch Cargo.toml`.
//!
//! # What was measured
//!
//! Measurements in `gpu-tuned.lock` take the place of declared and derived costs, in the constants and when the program runs.
//! What was measured with another release of Burn than that of the package's `Cargo.lock`, or of its workspace's, is left out,
//! with a warning.
//!
//! # When it runs again
//!
//! When `Cargo.toml`, `gpu-tuned.toml`, `gpu-tuned.lock` or one of the variables changes, when one of the two files comes
//! or goes, and where something was measured when `Cargo.lock` changes. Where there are no symbolic links for everyone
//! (Windows, some network drives), creating `gpu-tuned.toml` is not noticed by itself: save `Cargo.toml` once.

#![forbid(unsafe_code)]

mod config;
mod directives;
mod environment;
mod error;
mod lookalike;
mod measured;
mod native;
mod output;
mod package;
mod report;
mod select;
mod watch;

pub use config::{Config, configure};
pub use environment::{Environment, Process};
pub use error::BuildError;
pub use gpu_tuned_project::resolved::{Resolved, Selected};
