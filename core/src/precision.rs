use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::dims::Choices;

/// The number formats of a training step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Precision {
    /// Everything in f32; matrix products may use TF32 where the GPU has it.
    #[default]
    F32,
    /// Weights and optimizer in f32, the step's arithmetic in bf16.
    MixedBf16,
    /// Weights and optimizer in f32, the step's arithmetic in f16 with loss scaling.
    MixedF16,
    /// Everything in bf16, weights and optimizer state included.
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

    /// Whether the step computes in 16 bits with weights that are kept in f32.
    pub const fn is_mixed(self) -> bool {
        matches!(self, Self::MixedBf16 | Self::MixedF16)
    }

    /// Whether it takes arithmetic in bf16.
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

    /// Bytes of one value that the forward pass computes with.
    pub const fn compute_bytes(self) -> u64 {
        match self {
            Self::F32 => 4,
            Self::MixedBf16 | Self::MixedF16 | Self::Bf16Params => 2,
        }
    }

    /// Size of one activation value relative to f32.
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
