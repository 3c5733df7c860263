//! Tunes training configs for GPUs: `cargo gpu-tuned optimize` without its command line.
//!
//! A [`ConfigText`] is read into [`ConfigEntry`]s, in which [`Config`] finds the training settings and [`Model`] the model's
//! dimensions. A [`Tuner`] plans the training for a device and edits the text in place. The tables of names are in
//! `dialect.toml` and `names.toml`. [`pytorch`] estimates the memory of PyTorch runs.

#![forbid(unsafe_code)]

mod changes;
mod config;
mod dialect;
mod document;
mod entry;
mod error;
mod larger;
mod matched;
mod model;
mod names;
mod precision;
pub mod pytorch;
mod spelling;
mod step;
mod suggestions;
mod task;
#[cfg(test)]
mod tests;
mod tuner;

pub use changes::{Change, State};
pub use config::{Config, DataSet};
pub use dialect::{Role, role};
pub use document::{ConfigText, Format};
pub use entry::ConfigEntry;
pub use error::OptimizeError;
pub use larger::{Larger, TooSmall};
pub use matched::KeyOverride;
pub use model::{Dimension, Model, ModelRequest, Origin};
pub use names::aliases;
pub use step::Step;
pub use suggestions::{Gain, Suggestions};
pub use task::Task;
pub use tuner::{Expectation, Host, Tuned, Tuner};
