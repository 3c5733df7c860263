use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Precision;
use crate::device::{DeviceFacts, Rates};

/// A way to run the step. Memory and time depend on the mode, the workload and the micro-batch.
///
/// In files and on command lines `f32`, `f32-checkpointed`, or `full_f32` without TF32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode {
    /// Number formats.
    pub precision: Precision,
    /// True if activations are recomputed.
    pub checkpointing: bool,
    /// True if f32 products do not use the TF32 of the device. Their kernels differ, and so does their memory.
    pub full_f32: bool,
}

const CHECKPOINTED: &str = "-checkpointed";
const FULL_F32: &str = "full_f32";

impl Mode {
    /// A mode with TF32, where the device has it.
    pub const fn new(precision: Precision, checkpointing: bool) -> Self {
        Self { precision, checkpointing, full_f32: false }
    }

    /// The mode on a device, with TF32 allowed or not.
    #[must_use]
    pub fn allowing(self, tf32: bool, device: &DeviceFacts) -> Self {
        Self { full_f32: !tf32 && device.has_tf32 && self.precision == Precision::F32, ..self }
    }

    /// Rate of the mode's matrix products.
    pub const fn rate(self, rates: &Rates) -> Option<f64> {
        match self.precision {
            Precision::F32 if self.full_f32 => rates.fp32,
            Precision::F32 => rates.tf32,
            Precision::MixedF16 => rates.fp16,
            Precision::MixedBf16 | Precision::Bf16Params => rates.bf16,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let formats = if self.full_f32 { FULL_F32 } else { self.precision.name() };
        write!(f, "{formats}{}", if self.checkpointing { CHECKPOINTED } else { "" })
    }
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown mode `{0}`, expected a precision, such as `f32`, or one with checkpointing, such as `f32-checkpointed`"
)]
pub struct ParseModeError(String);

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, ParseModeError> {
        let (precision, checkpointing) = match text.strip_suffix(CHECKPOINTED) {
            Some(precision) => (precision, true),
            None => (text, false),
        };
        if precision == FULL_F32 {
            return Ok(Self { full_f32: true, ..Self::new(Precision::F32, checkpointing) });
        }
        let precision = precision.parse().map_err(|_| ParseModeError(text.to_owned()))?;
        Ok(Self::new(precision, checkpointing))
    }
}

impl TryFrom<String> for Mode {
    type Error = ParseModeError;

    fn try_from(text: String) -> Result<Self, ParseModeError> {
        text.parse()
    }
}

impl From<Mode> for String {
    fn from(mode: Mode) -> Self {
        mode.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::Mode;

    #[test]
    fn modes_are_read_as_they_are_written() {
        for text in ["f32", "f32-checkpointed", "full_f32", "full_f32-checkpointed", "bf16_params-checkpointed"] {
            assert_eq!(text.parse::<Mode>().expect("a mode").to_string(), text);
        }
        for text in ["", "-checkpointed", "f33", "f32-", "f32-checkpointed-checkpointed", "full_bf16_params"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }
}
