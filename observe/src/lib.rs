//! Observation of training runs: recording, monitoring, diagnosis and export.
//!
//! | module | content |
//! |---|---|
//! | [`recording`] | the format of recordings, with reader, writer and recorder |
//! | [`monitor`] | samples of GPUs, the host and a program while it trains |
//! | [`diagnose`] | findings in a recording, each with evidence and a remedy |
//! | [`leak`] | memory that grows from step to step |
//! | [`trace`] | traces of steps for Perfetto |
//! | [`export`] | CSV, Prometheus and TensorBoard |
//! | [`bench`](mod@bench) | requests and results of a bench run |
//! | [`plot`] | SVG plots |
//! | [`progress`] | reports during long work |
//! | `progress_line` | progress of a training run, with feature `progress-line` |
//!
//! Programs that depend on `gpu-tuned` find the first six as `gpu_tuned::recording`, `gpu_tuned::monitor` and so on.

#![forbid(unsafe_code)]

pub mod bench;
pub mod diagnose;
pub mod export;
pub mod leak;
mod metrics;
pub mod monitor;
pub mod plot;
pub mod progress;
#[cfg(feature = "progress-line")]
pub mod progress_line;
pub mod recording;
mod stats;
pub mod trace;

pub use gpu_tuned_nvml::{Host, HostMemoryLimit, log};
