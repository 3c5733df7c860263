mod policy;
mod spelling;

use core::str::FromStr;

use thiserror::Error;

use crate::dims::choices;
pub use policy::{ParsePolicyError, PrecisionPolicy};

choices! {
    /// Number formats of a training step.
    #[derive(Default, PartialOrd, Ord, Hash)]
    pub enum Precision: "precision", "Precision" {
        /// Everything in fp32; matrix products may use TF32 where the GPU supports it.
        #[default]
        F32 = "f32",
        /// bf16 mixed precision (AMP): weights and optimizer in fp32, arithmetic of the step in bf16.
        MixedBf16 = "mixed_bf16",
        /// fp16 mixed precision (AMP): weights and optimizer in fp32, arithmetic of the step in fp16 with loss scaling.
        MixedF16 = "mixed_f16",
        /// Pure bf16: everything in bf16, weights and optimizer state included.
        Bf16Params = "bf16_params",
    }
}

impl Precision {
    /// Returns true for mixed precision: arithmetic in 16 bits, weights in fp32.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::MixedBf16 | Self::MixedF16)
    }

    /// Precision of a switch for 16-bit mixed precision. A switch as in the build has the build's precision, `self`. One that
    /// was turned on has bf16, which the runtime replaces by what the device supports.
    #[doc(hidden)]
    #[must_use]
    pub const fn switched(self, is_on: bool) -> Self {
        match (is_on == self.is_mixed(), is_on) {
            (true, _) => self,
            (false, true) => Self::MixedBf16,
            (false, false) => Self::F32,
        }
    }

    /// Returns true if the step computes in bf16.
    pub const fn needs_bf16(self) -> bool {
        matches!(self, Self::MixedBf16 | Self::Bf16Params)
    }

    /// Bytes of one weight, gradient or optimizer value.
    pub const fn parameter_bytes(self) -> u64 {
        match self {
            Self::Bf16Params => 2,
            Self::F32 | Self::MixedBf16 | Self::MixedF16 => 4,
        }
    }

    /// Bytes of one value in a sum of gradients over micro-batches or ranks, which is in fp32 in every precision: 16-bit sums
    /// lose small gradients.
    pub const SUM_BYTES: u64 = 4;

    /// Bytes of one value in the forward pass.
    pub const fn compute_bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::MixedBf16 | Self::MixedF16 | Self::Bf16Params => 2,
        }
    }

    /// Size of one activation value relative to fp32.
    pub const fn activation_scale(self) -> f64 {
        match self {
            Self::F32 => 1.0,
            Self::MixedBf16 | Self::MixedF16 | Self::Bf16Params => 0.5,
        }
    }
}

/// A text that names no precision.
#[derive(Debug, Error)]
#[error("`{0}` is not a precision: expected f32, mixed_bf16, mixed_f16 or bf16_params")]
pub struct ParsePrecisionError(String);

impl FromStr for Precision {
    type Err = ParsePrecisionError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|precision| precision.name() == text);
        named.ok_or_else(|| ParsePrecisionError(text.to_owned()))
    }
}
