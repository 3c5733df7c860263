use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dims::Choices;

/// Number formats of a training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Everything in fp32; matrix products may use TF32 where the GPU supports it.
    #[default]
    F32,
    /// bf16 mixed precision (AMP): weights and optimizer in fp32, arithmetic of the step in bf16.
    MixedBf16,
    /// fp16 mixed precision (AMP): weights and optimizer in fp32, arithmetic of the step in fp16 with loss scaling.
    MixedF16,
    /// Pure bf16: everything in bf16, weights and optimizer state included.
    Bf16Params,
}

impl Precision {
    /// All precisions.
    pub const ALL: [Self; 4] = [Self::F32, Self::MixedBf16, Self::MixedF16, Self::Bf16Params];

    /// The names for users.
    pub const CHOICES: Choices = Choices {
        what: "precision",
        path: "Precision",
        names: &[("f32", "F32"), ("mixed_bf16", "MixedBf16"), ("mixed_f16", "MixedF16"), ("bf16_params", "Bf16Params")],
    };

    /// The name in attributes and files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F32 => "f32",
            Self::MixedBf16 => "mixed_bf16",
            Self::MixedF16 => "mixed_f16",
            Self::Bf16Params => "bf16_params",
        }
    }

    /// Returns true for mixed precision: arithmetic in 16 bits, weights in fp32.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::MixedBf16 | Self::MixedF16)
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

impl fmt::Display for Precision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
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
