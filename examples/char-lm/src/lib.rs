//! A small causal transformer that learns to continue a text, on a CPU or a GPU. A run can be killed and resumed.
//!
//! - [`config`]: settings of a training run
//! - [`text`]: the text, its vocabulary and its validation part
//! - [`windows`]: pieces of the text for each optimizer step
//! - [`model`]: the network
//! - [`training`]: the training loop, with checkpoints
//! - [`perplexity`]: perplexity on the validation text, of the network and of baselines
//! - [`sampling`]: generated text

pub mod config;
pub mod model;
pub mod perplexity;
pub mod sampling;
pub mod text;
pub mod training;
pub mod windows;
