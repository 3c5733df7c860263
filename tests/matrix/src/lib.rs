//! Builds small packages with cargo, as a user would, and checks the results.
//!
//! The packages are written to cargo's folder for integration tests. They share one target folder, so that
//! dependencies are compiled once. They use the versions of the workspace's `Cargo.lock`, so that nothing is
//! downloaded.

#![forbid(unsafe_code)]

mod build;
mod fixture;
pub mod sources;

pub use build::Build;
pub use fixture::Fixture;
