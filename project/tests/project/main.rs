//! The files of a package: reading, writing, merging, and what a build plans from them.

mod compile;
mod config;
mod fuzz;
mod lock;
mod schema;
mod strategies;
