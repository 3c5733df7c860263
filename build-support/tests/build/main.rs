//! Tables and directives of build scripts, with a given environment and package.

mod directives;
mod measured;
mod mistakes;
#[cfg(feature = "native")]
mod native;
mod project;
mod selection;
