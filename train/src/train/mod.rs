//! Training steps that keep the global batch exact, whatever fits the device.

mod accumulation;
mod adaptive_size;
#[cfg(feature = "train")]
mod batch_check;
mod batch_statistics;
mod buffers;
#[cfg(feature = "train")]
mod differentiated;
mod first_step;
mod gradients;
mod graph;
mod health;
#[cfg(feature = "train")]
mod learning;
#[cfg(feature = "train")]
pub mod metrics;
mod not_ready;
mod optimizer_files;
mod outcome;
mod ranks;
mod recipe;
mod replanning;
mod rescue;
mod sanity_checks;
mod skips;
mod step_failure;
mod stepper;
#[cfg(feature = "train")]
mod strategy;
#[cfg(test)]
mod tests;
mod trainer;
mod update;
#[cfg(feature = "train")]
mod weighted;
mod weights;

pub use crate::mixed::in_parameter_types;
#[cfg(feature = "train")]
pub use batch_check::BatchCheck;
#[cfg(feature = "train")]
pub use differentiated::differentiated;
pub use first_step::{AnyBatch, FirstStep, TakeFirstStep};
pub use gradients::witness;
pub use graph::{FixedBatchGraphs, GraphStatus, check_loss};
pub use health::{GradientHealth, LayerHealth, gradient_health};
pub use not_ready::NotReady;
pub use optimizer_files::OptimizerFileError;
pub use outcome::{Rescue, Step, StepError, TrainerError};
pub(crate) use ranks::OpenEpoch;
#[cfg(feature = "cuda")]
pub use ranks::nccl::set_bootstrap;
pub use ranks::{Inputs, Peers, PeersEnded, Rank};
pub use recipe::{Recipe, group_bytes};
pub use replanning::Replanning;
#[cfg(feature = "train")]
pub use strategy::{TakeLearnersFirstStep, strategy};
pub use trainer::Trainer;
#[cfg(feature = "train")]
pub use weighted::Weighted;
pub use weights::{ModelWeights, accumulate};
