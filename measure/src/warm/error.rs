//! Errors of kernel cache archives.

use gpu_tuned_train::train::{StepError, TrainerError};
use thiserror::Error;

use super::bundle::BundleError;
use super::caches::Caches;

/// Reason why no kernel cache archive was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WarmError {
    /// There is no GPU.
    #[error("there is no GPU: nothing is compiled or tuned on the CPU, and there is nothing to bundle")]
    NoGpu,
    /// Kernels and tuning go into caches that cannot be archived.
    #[error("a bundle is made from caches of its own, and here it is: {caches}")]
    Caches {
        /// Caches of the session.
        caches: Caches,
    },
    /// The session has no trainer for its precision.
    #[error(transparent)]
    Trainer(#[from] TrainerError),
    /// A planned step failed.
    #[error("a step with micro-batches of {micro_batch} failed")]
    Step {
        /// Samples in a micro-batch.
        micro_batch: usize,
        /// Error of the step.
        #[source]
        source: Box<StepError>,
    },
    /// The model panicked.
    #[error("a step with micro-batches of {micro_batch} failed: {message}")]
    Model {
        /// Samples in a micro-batch.
        micro_batch: usize,
        /// Message of the panic.
        message: String,
    },
    /// Memory ran out, so that tuning may have chosen slow kernels.
    #[error("out of memory with the planned micro-batches of {micro_batch}: is another process using the GPU?")]
    Memory {
        /// Samples in a micro-batch.
        micro_batch: usize,
    },
    /// The archive could not be written.
    #[error("no bundle was written: {0}")]
    Bundle(BundleError),
}
