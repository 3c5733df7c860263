//! Metrics of samples and steps: one table each for CSV, Prometheus, TensorBoard and traces.

pub(crate) mod csv;
mod figure;
pub(crate) mod prometheus;
mod step;
mod throttle;

pub(crate) use figure::gpu_figures;
pub use figure::{Figure, GPU_FIGURES, HOST_FIGURES};
#[cfg(feature = "tensorboard")]
pub(crate) use step::NamedFigure;
pub(crate) use step::{phases, step_figures};
pub(crate) use throttle::REASONS;
pub use throttle::key as throttle_key;
