//! A convolutional network for handwritten digits. Runs on a CPU or a GPU, with the same optimizer steps on both.
//!
//! - [`config`]: the settings of a training run
//! - [`data`]: the images, and how they become batches
//! - [`model`]: the network
//! - [`training`]: the training loop

pub mod config;
pub mod data;
pub mod model;
pub mod training;
