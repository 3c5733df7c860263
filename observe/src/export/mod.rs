//! Recordings for other programs: CSV tables, Prometheus text, and with feature `tensorboard` TensorBoard's event files.
//!
//! All of them are functions over [`Record`](crate::recording::Record)s, so that a recording is exported when it is
//! finished, and by `tensorboard::EventWriter` also while it is made.

mod csv;
mod figures;
mod prometheus;
#[cfg(feature = "tensorboard")]
pub mod tensorboard;

pub use csv::{Table, csv};
pub use prometheus::prometheus;
