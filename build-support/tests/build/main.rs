//! What a build script resolves and tells cargo, with the environment and the package given.

mod directives;
mod measured;
mod mistakes;
#[cfg(feature = "native")]
mod native;
mod project;
mod selection;
