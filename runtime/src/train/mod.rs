//! Training steps that keep the global batch exact, whatever fits the device.

mod attempt;
mod buffers;
#[cfg(feature = "train")]
mod differentiated;
mod doubts;
pub(crate) mod failure;
mod gradients;
mod health;
#[cfg(feature = "train")]
mod learning;
#[cfg(feature = "train")]
pub mod metrics;
mod micro_batch;
mod outcome;
mod pace;
mod ranks;
mod rescue;
mod session;
mod stepper;
#[cfg(feature = "train")]
mod strategy;
#[cfg(test)]
mod tests;
mod trainer;
mod update;
mod weights;
#[cfg(feature = "train")]
mod whole;

#[cfg(feature = "train")]
pub(crate) use differentiated::differentiated;
pub(crate) use gradients::{times, witness};

pub use failure::{Moment, is_out_of_memory};
pub use health::{GradientHealth, LayerHealth, gradient_health};
pub use micro_batch::MicroBatch;
pub use outcome::{Rescue, Step, StepError, TrainerError};
pub(crate) use ranks::part;
pub use ranks::{Ended, Rank, Ranks, RanksError};
pub use trainer::Trainer;
pub(crate) use weights::{Held, summed};
