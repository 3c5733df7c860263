//! A small causal transformer that learns to continue a text, on a CPU or a GPU, in a run that can be killed and resumed.
//!
//! - [`config`]: the settings of a training run
//! - [`text`]: the text, its characters and its held-out part
//! - [`windows`]: which pieces of the text make up an optimizer step
//! - [`model`]: the network
//! - [`training`]: the training loop
//! - [`checkpoint`]: what a run leaves on disk, and how it goes on from there
//! - [`perplexity`]: how well the held-out text is predicted, by the network and by simpler models
//! - [`sampling`]: text written by the network

pub mod checkpoint;
pub mod config;
pub mod model;
pub mod perplexity;
pub mod sampling;
pub mod text;
pub mod training;
pub mod windows;
