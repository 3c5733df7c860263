//! Metrics of samples and steps: one table each for CSV, Prometheus, TensorBoard and traces.

pub(crate) mod csv;
mod figure;
pub(crate) mod prometheus;
mod throttle;

#[cfg(feature = "tensorboard")]
pub(crate) use figure::NamedFigure;
pub use figure::{Figure, GPU_FIGURES, HOST_FIGURES};
pub(crate) use figure::{gpu_figures, phases, step_figures};
pub(crate) use throttle::REASONS;
pub use throttle::key as throttle_key;
