use thiserror::Error;

use super::Step;

/// Why a workload could not be measured.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeasureError {
    /// A step failed: most often the model's own panic, or memory that ran out.
    #[error("a training step could not be measured ({step}): {message}")]
    Step {
        /// The step.
        step: Step,
        /// The panic's message, or what reading the loss returned.
        message: String,
    },
    /// The device does not say what its memory pools hold.
    #[error("the device keeps no memory pools, so that a dry run tells nothing: measure on a CUDA GPU")]
    NoPools,
    /// The driver does not say how much memory is free.
    #[error("the driver does not say how much memory is free")]
    Driver(#[source] crate::burn::OpenError),
    /// What was measured could not be written.
    #[error(transparent)]
    Lock(#[from] crate::lock::LockError),
}
