//! Tunes training configs for GPUs: `cargo gpu-tuned optimize` without its command line.
//!
//! A [`ConfigText`] is read into [`ConfigEntry`]s, in which [`Config`] finds the training settings and [`Model`] the model's
//! dimensions. A [`Tuner`] plans the training for a device and edits the text in place. The keys of each ecosystem are in
//! `dialects/`, all keys of a framework in `schemas/`, the names of dimensions in `names.toml`.

#![forbid(unsafe_code)]

mod changes;
mod config;
mod dialect;
mod document;
mod edit;
mod error;
mod matched;
mod model;
mod names;
mod pytorch;
mod schema;
mod task;
#[cfg(test)]
mod tests;
mod tuner;
mod vocabulary;

pub use changes::{Change, ChangeState};
pub use config::{Config, Step};
pub use dialect::{Dialect, Framework, Role, role};
pub use document::{ConfigEntry, ConfigText, Format};
pub use error::OptimizeError;
pub use matched::KeyOverride;
pub use model::{Dimension, Model, ModelRequest, Origin};
pub use names::{Words, aliases};
pub use tuner::{Expectation, Gain, Host, Suggestions, Tuned, Tuner};
