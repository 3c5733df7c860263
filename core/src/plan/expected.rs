//! Predicted speed and memory of one micro-batch.

use serde::{Deserialize, Deserializer, Serialize};

use crate::Provenance;

/// Predicted speed and memory of one micro-batch on a device.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Expected {
    /// Samples in the micro-batch.
    pub batch: u64,
    /// Activation checkpointing is on.
    pub checkpointing: bool,
    /// Samples per second on one rank.
    #[serde(deserialize_with = "number_or_nan")]
    pub samples_per_s: f64,
    /// Memory needed, in bytes.
    pub memory_bytes: u64,
    /// The micro-batch fits the memory that is available.
    pub fits: bool,
    /// No free memory would make the micro-batch fit: one of its tensors exceeds the largest possible allocation.
    #[serde(skip_serializing_if = "core::ops::Not::not")]
    pub in_no_piece: bool,
    /// Micro-batches that would be prefetched to the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prefetch_depth: Option<u64>,
    /// Source of the speed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provenance: Option<Provenance>,
}

/// Reads `null`, which JSON has in place of infinities and NaN, as NaN.
fn number_or_nan<'de, D: Deserializer<'de>>(number: D) -> Result<f64, D::Error> {
    Option::deserialize(number).map(|number| number.unwrap_or(f64::NAN))
}
