use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::Precision;

/// A way to run the step. Memory and time depend on the mode, the workload and the micro-batch.
///
/// In files and on command lines `f32`, `f32-checkpointed`, `f32-graphs`, `f32-checkpointed-graphs`, or `full_f32` in place
/// of `f32` without TF32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Mode {
    /// Number formats.
    pub precision: Precision,
    /// True if activations are recomputed.
    pub checkpointing: bool,
    /// True if f32 products do not use the TF32 of the device. Their kernels differ, and so does their memory.
    pub full_f32: bool,
    /// True if micro-steps are replayed as CUDA graphs.
    pub cuda_graphs: bool,
}

const CHECKPOINTED: &str = "-checkpointed";
const GRAPHS: &str = "-graphs";
const FULL_F32: &str = "full_f32";

impl Mode {
    /// A mode with TF32, where the device has it, and without CUDA graphs.
    pub const fn new(precision: Precision, checkpointing: bool) -> Self {
        Self { precision, checkpointing, full_f32: false, cuda_graphs: false }
    }

    /// The mode with CUDA graphs, or without.
    #[must_use]
    pub const fn with_graphs(self, cuda_graphs: bool) -> Self {
        Self { cuda_graphs, ..self }
    }

    /// The mode with full f32 products in place of the device's TF32; only f32 has such products.
    #[must_use]
    pub fn with_full_f32(self, full_f32: bool) -> Self {
        Self { full_f32: full_f32 && self.precision == Precision::F32, ..self }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let formats = if self.full_f32 { FULL_F32 } else { self.precision.name() };
        let checkpointed = if self.checkpointing { CHECKPOINTED } else { "" };
        let graphs = if self.cuda_graphs { GRAPHS } else { "" };
        write!(f, "{formats}{checkpointed}{graphs}")
    }
}

/// A text that names no mode.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "unknown mode `{0}`, expected a precision, such as `f32`, or one with checkpointing or CUDA graphs, such as \
     `f32-checkpointed` or `f32-graphs`"
)]
pub struct ParseModeError(String);

impl FromStr for Mode {
    type Err = ParseModeError;

    fn from_str(text: &str) -> Result<Self, ParseModeError> {
        let without = |text, suffix| str::strip_suffix(text, suffix).map_or((text, false), |rest| (rest, true));
        let (rest, cuda_graphs) = without(text, GRAPHS);
        let (precision, checkpointing) = without(rest, CHECKPOINTED);
        let full_f32 = precision == FULL_F32;
        let precision = if full_f32 { Ok(Precision::F32) } else { precision.parse() };
        let precision = precision.map_err(|_| ParseModeError(text.to_owned()))?;
        Ok(Self { full_f32, ..Self::new(precision, checkpointing).with_graphs(cuda_graphs) })
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
        for text in [
            "f32",
            "f32-checkpointed",
            "full_f32",
            "full_f32-checkpointed",
            "bf16_params-checkpointed",
            "f32-graphs",
            "full_f32-checkpointed-graphs",
        ] {
            assert_eq!(text.parse::<Mode>().expect("a mode").to_string(), text);
        }
        for text in [
            "",
            "-checkpointed",
            "f33",
            "f32-",
            "f32-checkpointed-checkpointed",
            "full_bf16_params",
            "-graphs",
            "f32-graphs-checkpointed",
        ] {
            assert!(text.parse::<Mode>().is_err(), "{text}");
        }
    }
}
