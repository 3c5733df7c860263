//! Recordings for other programs: CSV tables, Prometheus text, and with feature `tensorboard` TensorBoard's event files.
//!
//! All are functions over [`Record`](crate::recording::Record)s. `tensorboard::EventWriter` also exports a run that goes on.

mod csv;
mod prometheus;
#[cfg(feature = "tensorboard")]
pub mod tensorboard;

pub use csv::{Table, csv};
pub use prometheus::prometheus;
