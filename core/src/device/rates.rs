//! Rates that large matrix products reach, by number format.

use serde::{Deserialize, Serialize};

/// Rates that large matrix products reach, in 10^12 operations per second: a peak times the fraction of it that published
/// tests reach.
///
/// A format without tensor cores has the fp32 rate. `None` is an unavailable figure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rates {
    /// fp32 on the ordinary units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp32: Option<f64>,
    /// fp32 where TF32 is allowed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tf32: Option<f64>,
    /// fp16, accumulated in fp32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fp16: Option<f64>,
    /// bf16, accumulated in fp32.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bf16: Option<f64>,
}

impl Rates {
    /// Rates of a share of the GPU, 0 to 1.
    pub(crate) fn scaled(self, share: f64) -> Self {
        let scaled = |rate: Option<f64>| rate.map(|rate| rate * share);
        Self { fp32: scaled(self.fp32), tf32: scaled(self.tf32), fp16: scaled(self.fp16), bf16: scaled(self.bf16) }
    }

    /// The lower rate in each format; `None` where either is unavailable.
    pub(super) fn lowest(self, other: Self) -> Self {
        let lowest = |a: Option<f64>, b: Option<f64>| Some(a?.min(b?));
        Self {
            fp32: lowest(self.fp32, other.fp32),
            tf32: lowest(self.tf32, other.tf32),
            fp16: lowest(self.fp16, other.fp16),
            bf16: lowest(self.bf16, other.bf16),
        }
    }
}
