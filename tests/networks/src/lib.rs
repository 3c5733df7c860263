//! Small networks and data sets for tests: parameters that are the same in every run, and steps that fail on demand.

#[cfg(feature = "train")]
mod classifier;
mod data;
mod language;
#[cfg(feature = "train")]
mod regression;
pub mod steps;
mod values;

#[cfg(feature = "train")]
pub use classifier::Classifier;
pub use data::{CLASSES, FEATURES, Labelled, Rows};
pub use language::{Model, Tokens, dataset};
#[cfg(feature = "train")]
pub use regression::Regression;
pub use values::{furthest, gradients, norm, relative_l2, values};

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
#[cfg(feature = "train")]
use std::sync::atomic::Ordering;

#[cfg(feature = "train")]
use burn::nn::{Initializer, Linear, LinearConfig};
#[cfg(feature = "train")]
use burn::tensor::Device;

/// Message of a step that finds no memory, as a GPU's allocator words it.
pub const OUT_OF_MEMORY: &str = "out of device memory allocating 1024 bytes";

/// Number of a training step that fails, shared with copies of the network.
pub type Countdown = Arc<AtomicUsize>;

/// Panics as a step without memory does, and counts down, until the count is 0.
#[cfg(feature = "train")]
fn fail(left: &Countdown) {
    let fails = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
    assert!(fails.is_err(), "{OUT_OF_MEMORY}");
}

/// Layer whose parameters all have this value.
#[cfg(feature = "train")]
fn constant(inputs: usize, outputs: usize, value: f64, device: &Device) -> Linear {
    LinearConfig::new(inputs, outputs).with_initializer(Initializer::Constant { value }).init(device)
}
