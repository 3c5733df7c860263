//! The GPUs of this machine, and the one among them that a program takes.
//!
//! | module | content |
//! |---|---|
//! | `driver` | [`read`]: NVIDIA's management library (NVML), also with a broken driver |
//! | `gpu`, `raw` | one GPU and its MIG slices, field by field |
//! | `cuda` | GPUs that CUDA lists, and their figures that NVML does not report |
//! | `visible` | [`CudaEnvironment`]: GPUs that CUDA shows to a process, their order and limits |
//! | `gauge`, `telemetry` | repeated readings of one GPU, and of all |
//! | `host` | [`Host`]: cores and memory within the limits of this process |
//! | `machine` | [`detect`]: all of this for a program, with [`UsableGpu`] for the planner |
//! | `choice` | the order in which a start tries GPUs, [`FirstFit`], and remedies |
//!
//! [`detect`] and [`Machine`] need no driver. An unavailable field is `None`. An unusable GPU is listed as [`GpuTrouble`] and
//! does not hide the others. Without a driver, [`DriverError`] gives the reason and the remedy. No function panics.
//!
//! # Features
//!
//! | feature | content |
//! |---|---|
//! | `nvml` (default) | [`detect`] reads the GPUs through NVML |
//! | `cuda` | [`detect`] takes the GPUs that CUDA lists, in CUDA's order |
//! | `driver` | the functions that call NVML and CUDA; part of both |

#![deny(unsafe_code)]

mod choice;
#[cfg(feature = "driver")]
#[allow(unsafe_code, reason = "calls of the CUDA driver")]
mod cuda;
#[cfg(feature = "driver")]
mod driver;
#[cfg(feature = "driver")]
mod gauge;
#[cfg(feature = "driver")]
mod gpu;
mod host;
pub mod log;
mod machine;
#[cfg(feature = "driver")]
#[allow(unsafe_code, reason = "calls that nvml-wrapper does not wrap")]
mod raw;
#[cfg(feature = "driver")]
mod telemetry;
#[cfg(feature = "driver")]
mod visible;

pub use choice::{FirstFit, Fit, PassedOver};
#[cfg(feature = "driver")]
pub use cuda::{CudaError, add_cuda_figures, cuda_devices};
#[cfg(feature = "driver")]
pub use driver::{DriverError, DriverReading, GpuTrouble, LIBRARY_VARIABLE, Limited, SAMPLE_LIMIT, Trouble, read};
#[cfg(feature = "driver")]
pub use gauge::{Gauge, GaugeError, Load};
pub use host::{Host, HostMemoryLimit};
pub use machine::{Machine, UnusableGpu, UsableGpu, detect, detect_through};
#[cfg(feature = "driver")]
pub use telemetry::{Telemetry, WatchedGpu};
#[cfg(feature = "driver")]
pub use visible::{CudaEnvironment, VisibleGpus};
