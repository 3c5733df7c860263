//! Number formats of a training step: their sizes, names in configs, and requests for them.

use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::ParseError;
use crate::dims::{Choices, choices};
use crate::text::through_text;

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

impl FromStr for Precision {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let named = Self::ALL.into_iter().find(|precision| precision.name() == text);
        named.ok_or_else(|| no_precision(text, "f32"))
    }
}

/// The error for a text that is no precision; `first` are the first names to expect.
fn no_precision(text: &str, first: &str) -> ParseError {
    let elsewhere = Precision::explain_spelling(text).unwrap_or_default();
    let others = "mixed_bf16, mixed_f16 or bf16_params";
    ParseError(format!("`{text}` is not a precision: expected {first}, {others}{elsewhere}"))
}

/// Request for a precision.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum PrecisionPolicy {
    /// The planner compares fp32 with the device's 16-bit mixed precision.
    Auto,
    /// One precision, on every device.
    Fixed(Precision),
}

impl PrecisionPolicy {
    /// The names for users.
    pub const CHOICES: Choices = Choices {
        what: "precision",
        path: "PrecisionPolicy",
        names: &[
            (Self::AUTO, "Auto"),
            (Precision::F32.name(), "Fixed(::gpu_tuned::Precision::F32)"),
            (Precision::MixedBf16.name(), "Fixed(::gpu_tuned::Precision::MixedBf16)"),
            (Precision::MixedF16.name(), "Fixed(::gpu_tuned::Precision::MixedF16)"),
            (Precision::Bf16Params.name(), "Fixed(::gpu_tuned::Precision::Bf16Params)"),
        ],
    };

    const AUTO: &str = "auto";

    /// The requested precision; `None` if the planner chooses.
    pub const fn fixed(self) -> Option<Precision> {
        match self {
            Self::Auto => None,
            Self::Fixed(precision) => Some(precision),
        }
    }
}

impl From<Precision> for PrecisionPolicy {
    fn from(precision: Precision) -> Self {
        Self::Fixed(precision)
    }
}

impl fmt::Display for PrecisionPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.fixed().map_or(Self::AUTO, Precision::name))
    }
}

impl FromStr for PrecisionPolicy {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == Self::AUTO {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Fixed).map_err(|_| no_precision(text, "auto, f32"))
    }
}

through_text!(PrecisionPolicy);

/// Names without separators, in lower case.
const NAMES: [(Precision, &str); 4] = [
    (Precision::F32, "f32 fp32 float32 32 32true full no"),
    (Precision::MixedBf16, "mixedbf16 bf16mixed ampbf16 bf16 bfloat16"),
    (Precision::MixedF16, "mixedf16 mixedfp16 f16mixed fp16mixed 16mixed ampf16 ampfp16 f16 fp16 float16 half 16"),
    (Precision::Bf16Params, "bf16params bf16true purebf16"),
];

impl Precision {
    /// Finds the precision with this usual name: `bf16-mixed`, `float16`, `MixedBf16`. Ignores case and separators.
    pub fn spelled(text: &str) -> Option<Self> {
        let is_letter = |letter: &char| letter.is_ascii_alphanumeric();
        let name: String = text.chars().filter(is_letter).map(|letter| letter.to_ascii_lowercase()).collect();
        let found = NAMES.into_iter().find(|(_, names)| names.split(' ').any(|known| known == name));
        found.map(|(precision, _)| precision)
    }

    /// Formats the name here of a precision with a [usual name](Self::spelled) of another framework.
    pub(crate) fn explain_spelling(text: &str) -> Option<String> {
        Some(format!("; other frameworks' `{text}` is `{}` here", Self::spelled(text)?))
    }
}

#[cfg(test)]
mod tests;
