//! Builds small packages with cargo, as a user would, and looks at what came out.
//!
//! The packages are written to the folder that cargo gives to integration tests. They share one target folder, so that
//! what they depend on is compiled once, and they use the versions of the workspace's `Cargo.lock`, so that nothing is
//! downloaded.

#![forbid(unsafe_code)]

mod build;
mod fixture;
pub mod sources;

pub use build::Build;
pub use fixture::Fixture;
