//! Tunes training configs for GPUs, and proposes annotations for programs: `cargo gpu-tuned optimize` and `init` without their
//! command lines.
//!
//! A [`ConfigText`] is read into [`ConfigEntry`]s, in which [`Config`] finds the training settings and [`Model`] the model's
//! dimensions. A [`Tuner`] plans the training for a device and edits the text in place. The keys of each ecosystem are in
//! `dialects/`, the names of dimensions in `names.toml`. [`proposal`] looks for training configs in Rust sources, and
//! [`pytorch`] estimates the memory of PyTorch runs.

#![forbid(unsafe_code)]

pub mod build_script;
mod change;
mod changes;
mod config;
mod data_set;
mod dialect;
pub mod diff;
mod document;
mod entry;
mod error;
mod framework;
mod index;
mod key_names;
pub mod line_endings;
mod matched;
mod model;
mod names;
mod overrides;
mod precision;
pub mod proposal;
pub mod pytorch;
mod spelling;
mod step;
mod suggestions;
mod task;
#[cfg(test)]
mod tests;
pub mod toml_insert;
mod tuner;

pub use change::{Change, State};
pub use config::Config;
pub use data_set::DataSet;
pub use dialect::{Dialect, Framework, Role};
pub use document::{ConfigText, Format};
pub use entry::ConfigEntry;
pub use error::OptimizeError;
pub use framework::PytorchMemory;
pub use model::{Dimension, Model, ModelRequest, Origin};
pub use overrides::KeyOverride;
pub use step::Step;
pub use suggestions::{Gain, Suggestions};
pub use task::Task;
pub use tuner::{Expectation, Host, Tuned, Tuner};
