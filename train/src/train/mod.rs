//! Training steps that keep the global batch exact, whatever fits the device.

mod accumulation;
mod buffers;
mod checks;
mod graph;
mod health;
#[cfg(feature = "train")]
pub mod metrics;
mod optimizer_files;
mod outcome;
mod ranks;
mod recipe;
mod rescue;
mod stepper;
#[cfg(feature = "train")]
mod strategy;
#[cfg(test)]
mod tests;
mod trainer;
mod update;
#[cfg(feature = "train")]
mod weighted;

pub use crate::mixed::{accumulate, in_parameter_types};
pub use graph::{FixedBatchGraphs, GraphStatus, check_loss};
pub use health::{GradientHealth, LayerHealth, gradient_health};
pub use optimizer_files::OptimizerFileError;
pub use outcome::{Rescue, Step, StepError, TrainerError};
pub(crate) use ranks::OpenEpoch;
pub use ranks::{Collectives, CollectivesError, Inputs, Peers, PeersEnded, Rank};
pub use recipe::{NotReady, Recipe, group_bytes};
pub use rescue::Replanning;
#[cfg(feature = "train")]
pub use strategy::{BatchCheck, TakeLearnersFirstStep, differentiated, strategy};
pub use trainer::{AnyBatch, FirstStep, ModelWeights, TakeFirstStep, Trainer};
pub use update::witness;
#[cfg(feature = "train")]
pub use weighted::Weighted;
