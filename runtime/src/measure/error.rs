use std::path::PathBuf;

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
    /// In Burn's own loop the learner holds the weights, of which mixed precision holds a copy.
    #[error(
        "steps of Burn's own loop in {precision} cannot be measured: measure in f32 or bf16_params, and plan {precision} \
         without"
    )]
    Mixed {
        /// The precision of the session.
        precision: gpu_tuned_core::Precision,
    },
    /// A measurement or a bundle is asked for, and training begins without anything that it could be made of.
    #[error(
        "a measurement or a bundle of kernels is asked for, and the program trains without having said what: call \
         `session.measure_if_asked(\"NAME\", &subject)?` before the model is made"
    )]
    Undescribed,
    /// What is measured would be written down as what it is not.
    #[error(
        "`Subject::mixed` says that steps are in {subject}, and the session's are in {session}: leave it out, as a session in \
         {subject} does it by itself, and ask for `precision = \"{subject}\"` if that is what you train in"
    )]
    OtherPrecision {
        /// What [`Subject::mixed`](super::Subject::mixed) says.
        subject: gpu_tuned_core::Precision,
        /// The precision of the session, or the one that is asked for in its place.
        session: gpu_tuned_core::Precision,
    },
    /// The driver does not say how much memory is free.
    #[error("the driver does not say how much memory is free")]
    Driver(#[source] crate::burn::OpenError),
    /// What was measured could not be written.
    #[error(transparent)]
    Lock(#[from] crate::lock::LockError),
    /// What `cargo gpu-tuned bench` asks for cannot be read.
    #[error("cannot read what is asked for, `{}`: {message}", gpu_tuned_observe::bench::Request::VARIABLE)]
    Request {
        /// Why not.
        message: String,
    },
    /// What was timed over a range cannot be written down.
    #[error("cannot write `{}`", path.display())]
    Results {
        /// The file of results.
        path: PathBuf,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// A bundle of kernels and tuning was asked for, and none was made.
    #[cfg(feature = "warm")]
    #[error(transparent)]
    Warm(#[from] crate::warm::WarmError),
    /// A bundle was asked for, and the program has nothing to make it of.
    #[cfg(not(feature = "warm"))]
    #[error("this program is built without CUDA, and has no kernels to bundle: enable feature `cuda` of gpu-tuned")]
    NothingToWarm,
}
