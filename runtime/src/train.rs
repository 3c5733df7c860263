//! Training steps that keep the global batch exact, whatever fits the device.

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
