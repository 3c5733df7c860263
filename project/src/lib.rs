//! The files of a package that `gpu-tuned` reads: `gpu-tuned.toml`, `gpu-tuned.lock`, `Cargo.lock` and the resolved table.
//!
//! The build script, the attribute, the runtime and the command line read them with this crate, so that all plan by the
//! same input.

#![forbid(unsafe_code)]

pub mod compile;
pub mod config;
pub mod file;
pub mod gpu_names;
pub mod lock;
pub mod profile_text;
pub mod resolved;
pub mod schema;
pub mod workspace;
