//! Tunes training configs for GPUs: `cargo gpu-tuned optimize` without its command line.
//!
//! A [`ConfigText`] is read into [`ConfigEntry`]s, in which [`Config`] finds the training settings and [`Model`] the model's
//! dimensions. A [`Tuner`] plans the training for a device and edits the text in place. The keys of each ecosystem are in
//! `dialects/`, the names of dimensions in `names.toml`.

#![forbid(unsafe_code)]

mod change;
mod changes;
mod config;
mod data_set;
mod dialect;
mod document;
mod effects;
mod entry;
mod error;
mod framework;
mod index;
mod key_names;
mod matched;
mod model;
mod names;
mod overrides;
mod precision;
mod spelling;
mod step;
mod suggestions;
mod task;
#[cfg(test)]
mod tests;
mod tuner;

pub use change::{Change, ChangeState};
pub use config::Config;
pub use data_set::DataSet;
pub use dialect::{Dialect, Role, role};
pub use document::{ConfigText, Format};
pub use entry::ConfigEntry;
pub use error::OptimizeError;
pub use framework::PytorchMemory;
pub use model::{Dimension, Model, ModelRequest, Origin};
pub use names::aliases;
pub use overrides::KeyOverride;
pub use step::Step;
pub use suggestions::{Gain, Suggestions};
pub use task::Task;
pub use tuner::{Expectation, Host, Tuned, Tuner};
