use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Precision;

/// A way to run the step: what memory and time depend on beside the workload and the micro-batch.
///
/// In files and on command lines `f32`, or `f32-checkpointed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode {
    /// Number formats.
    pub precision: Precision,
    /// Whether activations are recomputed.
    pub checkpointing: bool,
}

const CHECKPOINTED: &str = "-checkpointed";

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.precision.name(), if self.checkpointing { CHECKPOINTED } else { "" })
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
        let precision = precision.parse().map_err(|_| ParseModeError(text.to_owned()))?;
        Ok(Self { precision, checkpointing })
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
        for text in ["f32", "f32-checkpointed", "bf16_params", "bf16_params-checkpointed"] {
            assert_eq!(text.parse::<Mode>().expect("a mode").to_string(), text);
        }
        for text in ["", "-checkpointed", "f33", "f32-", "f32-checkpointed-checkpointed"] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }
}
