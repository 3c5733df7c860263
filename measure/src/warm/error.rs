//! Errors of kernel cache archives.

use std::io;
use std::path::PathBuf;

use gpu_tuned_train::train::{StepError, TrainerError};
use thiserror::Error;

use super::SHA256;
use super::bundle::{FORMAT, LARGEST};
use super::caches::Caches;

/// Reason why no kernel cache archive was made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WarmError {
    /// There is no GPU.
    #[error("there is no GPU, so there are no kernels to archive: run on a machine with a GPU")]
    NoGpu,
    /// Kernels and tuning go into caches that cannot be archived.
    #[error("an archive needs caches of its own, and this process has others: {caches}")]
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
    #[error("no archive was written: {0}")]
    Bundle(BundleError),
}

/// Error of a kernel cache archive.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BundleError {
    /// The file cannot be read.
    #[error("it cannot be read: {0}")]
    Read(io::Error),
    /// The file cannot be written.
    #[error("`{}` cannot be written: {cause}", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Error of the system.
        cause: io::Error,
    },
    /// The file is no archive.
    #[error("it is no kernel cache archive of gpu-tuned")]
    Unknown,
    /// The file has the format of another release.
    #[error("it has format {found}, and this release reads format {FORMAT}")]
    Format {
        /// Format of the file.
        found: u32,
    },
    /// The archive was made on another GPU, with another driver or with other versions.
    #[error("{}", differences.join("; "))]
    Elsewhere {
        /// Differences, a sentence each.
        differences: Vec<String>,
    },
    /// The file is larger than any archive.
    #[error("it has {bytes} bytes, and an archive has {LARGEST} at most")]
    TooLarge {
        /// Bytes of the file.
        bytes: u64,
    },
    /// The file was cut short or changed.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The file is another one than the variable pins.
    #[error("its SHA-256 is {found}, and {SHA256} is {expected}")]
    Digest {
        /// Digest of the file.
        found: String,
        /// Digest of the variable.
        expected: String,
    },
    /// The archive would be empty.
    #[error("nothing was compiled or tuned")]
    Empty,
    /// `CubeCL` could not export its environment.
    #[error("CubeCL exported no caches: {0}")]
    Export(String),
}
