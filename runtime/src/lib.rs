//! Training settings for the GPU you build for, verified on the GPU you run on.
//!
//! [`#[gpu_tuned]`](gpu_tuned) turns the fields of a training config into compile-time constants for the GPU that a
//! Cargo feature names. [`start`] reads the machine at run time. It confirms the constants, or plans again and reports
//! the reason. The samples of an optimizer step stay the same.
//!
//! ```
//! use gpu_tuned::gpu_tuned;
//!
//! #[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "generic")]
//! #[derive(Clone, Debug)]
//! struct LmConfig {
//!     #[tuned]
//!     batch_size: usize,
//!     #[tuned]
//!     gradient_accumulation: usize,
//! }
//!
//! # fn main() -> Result<(), gpu_tuned::StartError> {
//! let session = gpu_tuned::start(LmConfig::default())?;
//! println!("{session}");
//! let config = session.config();
//! assert_eq!(config.batch_size * config.gradient_accumulation, 512);
//! # Ok(())
//! # }
//! ```
//!
//! # Resuming
//!
//! [`Session::save`] writes the plan beside the checkpoints, and [`Options::resume`] starts from it, with the same
//! samples in an optimizer step. The micro-batches stay the same if they fit the device; otherwise a [`Fallback`]
//! reports other ones that make up the same step. A changed model, precision or global batch would make another run: it
//! is a [`ResumeError`] with both values and the remedy.
//!
//! ```
//! # use gpu_tuned::{Options, gpu_tuned};
//! # #[gpu_tuned(transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "generic")]
//! # #[derive(Clone, Debug)]
//! # struct LmConfig {
//! #     #[tuned]
//! #     batch_size: usize,
//! # }
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let checkpoints = folder.path();
//! let session = gpu_tuned::start(LmConfig::default())?;
//! session.save(checkpoints)?;
//!
//! let resumed = Options::default().resume(checkpoints).start(LmConfig::default())?;
//! assert_eq!(resumed.schedule(), session.schedule());
//! # Ok(())
//! # }
//! ```
//!
//! With feature `burn`, `Session::checkpoints` saves all of a run while it trains, and `Options::resume_or_start` goes on from
//! the newest checkpoint, or starts.
//!
//! # Several GPUs
//!
//! With feature `distributed`, `Options::distributed` makes the process one of several, each with one GPU, on one host or
//! many: see module `ranks`. All of them get one plan, for the weakest: its memory is the limit, and the report names it.
//! They share the global batch evenly; a number of ranks that does not divide it is an error naming the numbers that would.
//! The loop is that of one GPU.
//!
//! # Training
//!
//! With feature `burn` the session has a loader and a trainer.
//!
//! | module | content |
//! |---|---|
//! | `train` | optimizer steps in micro-batches, CUDA graphs, Burn's own loop |
//! | `ranks` | training in several processes, with one GPU each |
//! | `mixed` | mixed precision |
//! | `load` | data loading with bounded prefetch |
//! | `loss` | cross-entropy of large vocabularies in chunks |
//! | `recurrent` | Burn's LSTM with one matrix product a time step |
//! | `measure` | measurements for `gpu-tuned.lock` |
//!
//! # Warm starts
//!
//! With feature `cuda`, kernels and tuning of the first optimizer step are cached for the next process, in the user's
//! cache folder, unless the user has configured caches. `cargo gpu-tuned warm` archives them for other machines: see
//! module `warm`. The session's report has the state of the caches.
//!
//! # Watching
//!
//! [`monitor::Monitor`] records figures of the GPUs, of the host and of the program during training, and summarizes them.
//!
//! # Features
//!
//! | feature | content |
//! |---|---|
//! | `nvml` (default) | identity, free memory and MIG slices of GPUs, from the driver's management library |
//! | `burn` | the session opens the planned device in Burn, loads data, trains, measures workloads, and can probe arithmetic |
//! | `train` | the session's steps in Burn's own training loop |
//! | `distributed` | several processes that train together: see `Options::distributed` |
//! | `warm` | cached kernels and autotune choices, and archives of them: part of `cuda`, and without use alone |
//! | `cuda` | Burn on CUDA with fusion and autotune, on the GPU of the plan; needs LLVM at build time, as Burn does |
//! | `tensorboard` | recordings as TensorBoard's event files |
//! | `counting-allocator` | an allocator for the whole program that counts bytes, to measure memory on the CPU |

#![deny(unsafe_code)]

#[cfg(feature = "burn")]
pub mod burn;
#[cfg(feature = "burn")]
mod checkpoints;
mod decide;
#[cfg(feature = "burn")]
mod progress;
#[cfg(feature = "distributed")]
pub mod ranks;
mod restart;
mod resume;
mod saved;
mod selection;
mod session;
mod start;
mod tuned;
#[doc(hidden)]
pub mod variant;

#[cfg(feature = "burn")]
pub use burn::device;
#[cfg(feature = "burn")]
pub use checkpoints::{Checkpoint, CheckpointError, Checkpoints};
pub use decide::Decision;
pub use gpu_tuned_core::device::{ComputeCapability, DeviceFacts, DeviceKind, GpuReading};
pub use gpu_tuned_core::matching::{Difference, Match};
pub use gpu_tuned_core::plan::{Plan, PlanError, Schedule};
pub use gpu_tuned_core::workload::{Workload, WorkloadSpec};
pub use gpu_tuned_core::{
    Bytes, Goal, Kernels, OnResume, Pins, Precision, PrecisionPolicy, Provenance, SetError, Setting, SettingKind,
    SettingRow, SettingValue, Settings,
};
#[cfg(feature = "burn")]
#[doc(inline)]
pub use gpu_tuned_kernels::{nn, optim, selection as kernels};
#[cfg(feature = "burn")]
pub use gpu_tuned_macros::MicroBatch;
pub use gpu_tuned_macros::gpu_tuned;
#[cfg(feature = "warm")]
#[doc(inline)]
pub use gpu_tuned_measure::warm;
pub use gpu_tuned_nvml::{
    FirstFit, Fit, Host, HostMemoryLimit, Machine, PassedOver, UnusableGpu, UsableGpu, detect, detect_through,
};
pub use gpu_tuned_observe::{diagnose, export, leak, monitor, recording, trace};
#[cfg(feature = "burn")]
#[doc(inline)]
pub use gpu_tuned_train::{load, loss, mixed, recurrent};
#[cfg(feature = "burn")]
pub use progress::Progress;
pub use resume::{ResumeError, Resumed, ResumedChange};
pub use saved::{FigureChange, LoadError, SaveError, SavedRun};
pub use selection::{Change, Fallback, Selection, Shortfall};
pub use session::Session;
pub use start::{Options, StartError, start};
#[cfg(feature = "burn")]
pub use train::MicroBatch;
pub use tuned::{Built, Tuned};

/// Costs of a training step, and the models that they are computed from.
pub mod workload {
    pub use gpu_tuned_core::workload::*;
    pub use gpu_tuned_project::lock::SpecChange;
}

/// `gpu-tuned.lock` on disk: read whole, updated by one writer at a time, never half-written.
pub mod lock {
    #[doc(inline)]
    pub use gpu_tuned_project::lock::{Lock, LockError, LockFile, LockedWorkload, Update};
}

/// Training steps that keep the global batch exact, whatever fits the device.
#[cfg(feature = "burn")]
pub mod train {
    #[cfg(feature = "train")]
    pub mod metrics;

    #[doc(inline)]
    pub use gpu_tuned_train::micro_batch::{MicroBatch, UnequalParts};
    #[doc(inline)]
    pub use gpu_tuned_train::out_of_memory::{Moment, is_out_of_memory};
    #[doc(inline)]
    pub use gpu_tuned_train::train::{
        GradientHealth, GraphStatus, LayerHealth, PeersEnded, Rescue, Step, StepError, Trainer, TrainerError,
        gradient_health,
    };
}

/// Memory and time of training steps.
///
/// On a GPU, memory is measured by dry runs: allocations happen, kernels do not run. Time is measured by running steps.
///
/// [`Session::measure_if_asked`](crate::Session::measure_if_asked) does all of it and writes `gpu-tuned.lock`, or times steps
/// over a range of settings under `cargo gpu-tuned bench`. The parts are public for programs that measure by themselves.
#[cfg(feature = "burn")]
pub mod measure {
    #[cfg(feature = "cuda")]
    #[doc(inline)]
    pub use gpu_tuned_measure::measure::dry;
    #[doc(inline)]
    pub use gpu_tuned_measure::measure::{MeasureError, Memory, Step, Subject, Times, parameters, shape, timed};
    #[cfg(feature = "counting-allocator")]
    #[doc(inline)]
    pub use gpu_tuned_measure::measure::{Trace, Traces, held};
}

/// Allocator that counts live bytes, their peak, and live allocations by size.
///
/// With feature `counting-allocator` it is the program's allocator: the system's own with a few atomic operations more.
#[cfg(feature = "counting-allocator")]
pub mod allocation {
    #[doc(inline)]
    pub use gpu_tuned_train::allocation::{SMALLEST_TENSOR_BYTES, live_by_size, live_bytes, peak_bytes, restart_peak};
}

/// Names in generated code.
#[doc(hidden)]
pub mod __private {
    pub use crate::tuned::{Count, Field, FieldDefault, WithoutText, count, with_text};
    #[cfg(feature = "burn")]
    pub use burn::tensor::Device;
    #[cfg(feature = "burn")]
    pub use gpu_tuned_train::micro_batch::UnequalParts;
}
