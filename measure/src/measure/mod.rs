//! Memory and time of training steps.
//!
//! On a GPU, memory is measured by dry runs: allocations happen, kernels do not run. Time is measured by running steps.
//!
//! `Session::measure_if_asked` does all of it and writes `gpu-tuned.lock`, or times steps over a range of settings under
//! `cargo gpu-tuned bench`. The parts are public for programs that measure by themselves.

mod bench;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(any(feature = "cuda", test))]
mod gpu;
mod range;
#[cfg(feature = "counting-allocator")]
mod replay;
mod report;
mod subject;
mod target;
mod timed;
mod training;

use std::path::PathBuf;

use burn::tensor::Device;
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_project::lock::LockError;
use gpu_tuned_train::device::{OpenError, catching_on_thread};
use thiserror::Error;

use crate::requests::{archive_folder, is_measurement_requested};
use bench::counted;

pub use bench::Memory;
#[cfg(feature = "counting-allocator")]
pub use bench::held;
#[cfg(feature = "cuda")]
pub use cuda::dry;
pub use gpu_tuned_train::shape::{parameters, shape};
pub use range::requested_precision;
#[cfg(feature = "counting-allocator")]
pub use replay::{Trace, Traces};
pub use subject::Subject;
pub use target::{BuiltFor, MeasurementTarget};
pub use timed::{Times, timed};
pub use training::Step;

/// Returns true if the command line runs the program to measure it, to bench it or to fill a kernel cache archive.
pub fn is_requested() -> bool {
    is_measurement_requested() || range::is_requested() || archive_folder().is_some()
}

/// Runs `measure` on a new thread, and turns a panic into an error.
///
/// `CubeCL` keeps memory pools for every thread, whose pages grow with the largest tensor and never shrink. A new thread
/// starts with the empty pools of a new process.
fn isolated<T: Send>(step: Step, measure: impl FnOnce() -> T + Send) -> Result<T, MeasureError> {
    catching_on_thread(measure).map_err(|message| step.failed(&message))
}

/// Releases memory that nothing uses.
fn release(device: &Device, step: Step) -> Result<(), MeasureError> {
    device.sync().map_err(|error| step.failed(&error))?;
    device.memory_cleanup();
    Ok(())
}

impl Step {
    fn failed(self, message: &dyn std::fmt::Display) -> MeasureError {
        MeasureError::Step { step: self, message: message.to_string() }
    }
}

/// Bytes reserved by the device's memory pools, once all queued work was launched; `None` on the CPU.
fn reserved(device: &Device) -> Option<Bytes> {
    device.memory_pool_usage().map(|usage| Bytes(usage.bytes_reserved))
}

/// Error of a measurement.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A step failed: most often a panic of the model, or an out-of-memory error.
    #[error("a training step could not be measured ({step}): {message}")]
    Step {
        /// The step.
        step: Step,
        /// Message of the panic, or of the failure to read the loss.
        message: String,
    },
    /// The device does not report its memory pools.
    #[error("the device has no memory pools, so a dry run measures nothing: measure on a CUDA GPU")]
    NoPools,
    /// A measurement or an archive is requested, but the program trains without a call of `measure_if_asked`.
    #[error(
        "a measurement or a kernel cache archive is requested, but the program has not described a step: call \
         `session.measure_if_asked(\"NAME\", &subject)?` before it creates the model"
    )]
    Undescribed,
    /// The subject's precision differs from the session's.
    #[error(
        "`Subject::mixed` says that steps are in {subject}, and the session's are in {session}: leave it out, as a session in \
         {subject} does it by itself, and ask for `precision = \"{subject}\"` if that is what you train in"
    )]
    OtherPrecision {
        /// Precision of [`Subject::mixed`].
        subject: Precision,
        /// Precision of the session, or the one that is requested.
        session: Precision,
    },
    /// The driver does not report free memory.
    #[error("the driver does not report free memory")]
    Driver(#[source] OpenError),
    /// The lock could not be read or written.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The requested time of a measurement is no number of seconds.
    #[error("`{}` is `{text}`, expected whole seconds from 1 on, such as `120`", crate::requests::BUDGET)]
    Budget {
        /// Value of the variable.
        text: String,
    },
    /// The request of `cargo gpu-tuned bench` cannot be read.
    #[error(
        "cannot read the request `{}`: {message}; unset it: `cargo gpu-tuned bench` sets it",
        gpu_tuned_observe::bench::Request::VARIABLE
    )]
    Request {
        /// Parser message.
        message: String,
    },
    /// The results of a benchmark cannot be written.
    #[error("cannot write `{}`", path.display())]
    Results {
        /// File of results.
        path: PathBuf,
        /// Error of the file.
        #[source]
        source: std::io::Error,
    },
    /// No kernel cache archive could be made.
    #[cfg(feature = "warm")]
    #[error(transparent)]
    Warm(#[from] crate::warm::WarmError),
    /// An archive is requested, but the program has no kernels.
    #[cfg(not(feature = "warm"))]
    #[error("this program is built without CUDA, and has no kernels to archive: enable feature `cuda` of gpu-tuned")]
    NothingToWarm,
}
