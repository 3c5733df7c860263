use std::path::PathBuf;

use thiserror::Error;

use gpu_tuned_core::Precision;
use gpu_tuned_project::lock::LockError;
use gpu_tuned_train::device::OpenError;

use super::Step;

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
        /// Precision of [`Subject::mixed`](super::Subject::mixed).
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
