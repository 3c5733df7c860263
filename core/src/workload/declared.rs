use serde::{Deserialize, Serialize};

use super::{Family, ModelCosts, Product, Tensors};
use crate::dims::Presence::{Defaulted, Optional, Required};
use crate::dims::{Dim, DimKind, Schema};
use crate::{Bytes, Provenance};

/// A model with user-specified costs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Declared {
    /// Parameters.
    pub parameters: u64,
    /// Bytes that each sample keeps from the forward for the backward pass, in f32.
    pub activation_bytes_per_sample: u64,
    /// Bytes that each sample keeps under Burn's activation checkpointing. Without this figure the planner does not
    /// consider checkpointing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkpointed_activation_bytes_per_sample: Option<u64>,
    /// Bytes of the largest single tensor for one sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub largest_tensor_bytes_per_sample: Option<u64>,
    /// Bytes of one sample as the loader delivers it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub input_bytes_per_sample: Option<u64>,
    /// Floating-point operations of the forward and backward pass for one sample, with all parameters trained.
    pub flops_per_sample: f64,
    /// Kernels launched by one forward and backward pass.
    pub kernels_per_step: u64,
    /// The kind of network.
    pub family: Family,
    /// True if the model computes statistics over the micro-batch (BatchNorm).
    pub batch_statistics: bool,
    /// Tokens in a sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_sample: Option<u64>,
    /// The matrix product with most of the arithmetic, for probing the device.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dominant_product: Option<Product>,
}

/// An invalid model, without the required figures.
impl Default for Declared {
    fn default() -> Self {
        Self {
            parameters: 0,
            activation_bytes_per_sample: 0,
            checkpointed_activation_bytes_per_sample: None,
            largest_tensor_bytes_per_sample: None,
            input_bytes_per_sample: None,
            flops_per_sample: 0.0,
            // A dozen layers of about 40 kernels.
            kernels_per_step: 500,
            family: Family::Other,
            batch_statistics: false,
            tokens_per_sample: None,
            dominant_product: None,
        }
    }
}

/// More bytes than any device has.
const LARGEST_BYTES: u64 = 1 << 50;

impl Schema for Declared {
    const DIMS: &'static [Dim] = &[
        Dim::count_in("parameters", Required, 1..=1 << 50, "parameters"),
        Dim::count_in(
            "activation_bytes_per_sample",
            Required,
            1..=LARGEST_BYTES,
            "bytes that each sample keeps from the forward for the backward pass, in f32",
        ),
        Dim::count_in(
            "checkpointed_activation_bytes_per_sample",
            Optional,
            1..=LARGEST_BYTES,
            "bytes kept under activation checkpointing (default: not planned)",
        ),
        Dim::count_in(
            "largest_tensor_bytes_per_sample",
            Optional,
            1..=LARGEST_BYTES,
            "bytes of the largest single tensor for one sample",
        ),
        Dim::count_in("input_bytes_per_sample", Optional, 1..=LARGEST_BYTES, "bytes of one sample on the device"),
        Dim {
            name: "flops_per_sample",
            kind: DimKind::Number(1.0..=1e24),
            presence: Required,
            meaning: "floating-point operations of the forward and backward pass for one sample",
        },
        Dim::count("kernels_per_step", Defaulted, "kernels of one forward and backward pass (default 500)"),
        Dim::choice("family", &Family::CHOICES, "kind of network (default other)"),
        Dim::flag("batch_statistics", "BatchNorm as the norm (default false)"),
        Dim::count("tokens_per_sample", Optional, "tokens in a sample"),
        Dim {
            name: "dominant_product",
            kind: DimKind::Product,
            presence: Optional,
            meaning: "the matrix product with most of the arithmetic",
        },
    ];
}

impl Declared {
    pub(super) fn costs(&self) -> ModelCosts {
        let values = |bytes: u64| bytes.div_ceil(4);
        ModelCosts {
            // Their shapes are unavailable.
            tensors: vec![Tensors::vectors(self.parameters, 1)],
            buffers: 0,
            kept: values(self.activation_bytes_per_sample),
            kept_checkpointed: self.checkpointed_activation_bytes_per_sample.map(values),
            kept_for: Vec::new(),
            copies: 0,
            largest: self.largest_tensor_bytes_per_sample.map(values),
            result: self.largest_tensor_bytes_per_sample.map_or(0, values),
            input: self.input_bytes_per_sample.map(Bytes),
            multiplications: self.flops_per_sample / 6.0,
            tokens: self.tokens_per_sample,
            kernels: self.kernels_per_step,
            family: self.family,
            batch_statistics: self.batch_statistics,
            dominant_product: self.dominant_product,
            channels: None,
            provenance: Provenance::Declared,
        }
    }

    #[expect(clippy::unused_self, reason = "the signature is that of every model")]
    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
