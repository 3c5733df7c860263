use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::Precision;
use crate::dims::Choices;

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

/// A text that names no precision policy.
#[derive(Debug, Error)]
#[error("`{0}` is not a precision: expected auto, f32, mixed_bf16, mixed_f16 or bf16_params")]
pub struct ParsePolicyError(String);

impl FromStr for PrecisionPolicy {
    type Err = ParsePolicyError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == Self::AUTO {
            return Ok(Self::Auto);
        }
        text.parse().map(Self::Fixed).map_err(|_| ParsePolicyError(text.to_owned()))
    }
}

impl TryFrom<String> for PrecisionPolicy {
    type Error = ParsePolicyError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<PrecisionPolicy> for String {
    fn from(policy: PrecisionPolicy) -> Self {
        policy.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::{Precision, PrecisionPolicy};

    #[test]
    fn every_precision_is_a_policy_by_its_own_name() {
        let names: Vec<_> = PrecisionPolicy::CHOICES.names.iter().map(|(name, _)| *name).collect();
        let all = Precision::ALL.map(PrecisionPolicy::Fixed);
        let policies: Vec<_> = core::iter::once(PrecisionPolicy::Auto).chain(all).collect();
        assert_eq!(names, policies.iter().map(ToString::to_string).collect::<Vec<_>>());
        for (policy, name) in policies.into_iter().zip(names) {
            assert_eq!(name.parse::<PrecisionPolicy>().expect("a policy"), policy);
        }
        let error = "bf16".parse::<PrecisionPolicy>().expect_err("no policy").to_string();
        assert_eq!(error, "`bf16` is not a precision: expected auto, f32, mixed_bf16, mixed_f16 or bf16_params");
    }
}
