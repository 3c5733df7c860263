use serde::{Deserialize, Serialize};

use super::{Family, Optimizer, Product, SampleCost, Workload, dims};
use crate::{Bytes, Provenance};

/// A workload whose costs the user states.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Declared {
    /// Trainable parameters.
    pub parameters: u64,
    /// The optimizer.
    #[serde(default)]
    pub optimizer: Optimizer,
    /// Bytes that each sample keeps from the forward for the backward pass, in f32.
    pub activation_bytes_per_sample: u64,
    /// The same under Burn's gradient checkpointing; without it checkpointing is not planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checkpointed_activation_bytes_per_sample: Option<u64>,
    /// Bytes of the largest single tensor for one sample.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub largest_tensor_bytes_per_sample: Option<u64>,
    /// Bytes of one sample as the loader delivers it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_bytes_per_sample: Option<u64>,
    /// Floating-point operations of the forward and backward pass for one sample.
    pub flops_per_sample: f64,
    /// Kernels launched by one forward and backward pass.
    #[serde(default = "Declared::default_kernels")]
    pub kernels_per_step: u64,
    /// What kind of network it is.
    #[serde(default = "Declared::default_family")]
    pub family: Family,
    /// Whether the model computes statistics over the micro-batch (BatchNorm).
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub batch_statistics: bool,
    /// The matrix product that takes most of the arithmetic, for a probe of what the device does with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dominant_product: Option<Product>,
}

impl Declared {
    // A dozen layers of about 40 kernels.
    const fn default_kernels() -> u64 {
        500
    }

    const fn default_family() -> Family {
        Family::Other
    }

    /// What one training step costs.
    pub fn workload(&self) -> Workload {
        Workload {
            parameters: self.parameters,
            optimizer: self.optimizer,
            sample: SampleCost {
                activations: Bytes(self.activation_bytes_per_sample),
                checkpointed_activations: self.checkpointed_activation_bytes_per_sample.map(Bytes),
                largest_tensor: self.largest_tensor_bytes_per_sample.map(Bytes),
                input: self.input_bytes_per_sample.map(Bytes),
                flops: self.flops_per_sample,
            },
            kernels: self.kernels_per_step,
            family: self.family,
            batch_statistics: self.batch_statistics,
            dominant_product: self.dominant_product,
            provenance: Provenance::Declared,
        }
    }

    pub(super) fn mistakes(&self) -> Vec<(&'static str, String)> {
        let mut found =
            dims::out_of_range(&[("activation_bytes_per_sample", self.activation_bytes_per_sample.min(1 << 32))]);
        if self.parameters == 0 {
            found.push(("parameters", "parameters = 0: a model that trains has parameters".to_owned()));
        }
        if !(self.flops_per_sample.is_finite() && self.flops_per_sample > 0.0) {
            found.push((
                "flops_per_sample",
                format!("flops_per_sample = {}: expected a positive number", self.flops_per_sample),
            ));
        }
        found
    }
}
