//! Recordings for other programs: CSV tables, Prometheus text, and with feature `tensorboard` TensorBoard's event files.
//!
//! All are functions over [`Record`](crate::recording::Record)s. `tensorboard::EventWriter` also exports a run that goes on.

pub(crate) mod exposition;
pub(crate) mod tables;
#[cfg(feature = "tensorboard")]
pub mod tensorboard;

pub use exposition::prometheus;
pub use tables::{Table, csv};
