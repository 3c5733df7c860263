use super::{Family, ModelCosts, Product, Tensors};
use crate::dims::{LARGEST, schema};
use crate::{Bytes, Provenance};

schema! {
    /// A model with user-specified costs.
    pub struct Declared {
        /// Parameters.
        parameters: u64, Count(1..=1 << 50), "parameters";
        /// Bytes that each sample keeps from the forward for the backward pass, in f32.
        activation_bytes_per_sample: u64, Count(1..=LARGEST_BYTES),
            "bytes that each sample keeps from the forward for the backward pass, in f32";
        /// Bytes that each sample keeps under Burn's activation checkpointing. Without this figure the planner does not
        /// consider checkpointing.
        checkpointed_activation_bytes_per_sample?: u64, Count(1..=LARGEST_BYTES),
            "bytes kept under activation checkpointing (default: not planned)";
        /// Bytes of the largest single tensor for one sample.
        largest_tensor_bytes_per_sample?: u64, Count(1..=LARGEST_BYTES),
            "bytes of the largest single tensor for one sample";
        /// Bytes of one sample as the loader delivers it.
        input_bytes_per_sample?: u64, Count(1..=LARGEST_BYTES), "bytes of one sample on the device";
        /// Floating-point operations of the forward and backward pass for one sample, with all parameters trained.
        flops_per_sample: f64, Number(1.0..=1e24),
            "floating-point operations of the forward and backward pass for one sample";
        /// Kernels launched by one forward and backward pass. Default: those of a dozen layers of about 40 kernels.
        kernels_per_step: u64 = 500, Count(1..=LARGEST), "kernels of one forward and backward pass (default 500)";
        /// The kind of network.
        family: Family = Family::Other, Choice(&Family::CHOICES), "kind of network (default other)";
        /// True if the model computes statistics over the micro-batch (BatchNorm).
        batch_statistics: bool = false, Flag, "BatchNorm as the norm (default false)";
        /// Tokens in a sample.
        tokens_per_sample?: u64, Count(1..=LARGEST), "tokens in a sample";
        /// The matrix product with most of the arithmetic, for probing the device.
        dominant_product?: Product, Product, "the matrix product with most of the arithmetic";
    }
}

/// More bytes than any device has.
const LARGEST_BYTES: u64 = 1 << 50;

impl Declared {
    pub(super) fn costs(&self) -> ModelCosts {
        let values = |bytes: u64| bytes.div_ceil(4);
        ModelCosts {
            // Their shapes are unavailable.
            tensors: vec![Tensors::vectors(self.parameters, 1)],
            kept: values(self.activation_bytes_per_sample),
            kept_checkpointed: self.checkpointed_activation_bytes_per_sample.map(values),
            largest: self.largest_tensor_bytes_per_sample.map(values),
            result: self.largest_tensor_bytes_per_sample.map_or(0, values),
            input: self.input_bytes_per_sample.map(Bytes),
            multiplications: self.flops_per_sample / 6.0,
            tokens: self.tokens_per_sample,
            kernels: self.kernels_per_step,
            family: self.family,
            batch_statistics: self.batch_statistics,
            dominant_product: self.dominant_product,
            provenance: Provenance::Declared,
            ..ModelCosts::default()
        }
    }

    #[expect(clippy::unused_self, reason = "the signature is that of every model")]
    pub(super) fn contradictions(&self) -> Vec<(&'static str, String)> {
        Vec::new()
    }
}
