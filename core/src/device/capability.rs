use core::fmt;
use core::str::FromStr;

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A CUDA compute capability, such as 8.9.
///
/// Values order by age only: a larger one does not have every feature of a smaller one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ComputeCapability {
    /// The generation, such as 8 for Ampere and Ada.
    pub major: u8,
    /// The revision within the generation.
    pub minor: u8,
}

impl ComputeCapability {
    /// The capability `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }

    /// The marketing name of the architecture (NVIDIA's CUDA GPU list).
    pub const fn architecture(self) -> Option<&'static str> {
        Some(match (self.major, self.minor) {
            (5, _) => "Maxwell",
            (6, _) => "Pascal",
            (7, 0 | 2) => "Volta",
            (7, 5) => "Turing",
            (8, 9) => "Ada",
            (8, _) => "Ampere",
            (9, _) => "Hopper",
            (10..=12, _) => "Blackwell",
            _ => return None,
        })
    }

    /// Returns true if fp32 products may run on TF32 tensor cores (8.0 and later; A100 whitepaper).
    pub const fn has_tf32(self) -> bool {
        self.major >= 8
    }

    /// Returns true if tensor cores support bf16 (8.0 and later; A100 whitepaper).
    pub const fn has_tensor_bf16(self) -> bool {
        self.major >= 8
    }

    /// Returns true if tensor cores support fp16 (7.0 and later; V100 whitepaper).
    pub const fn has_tensor_f16(self) -> bool {
        self.major >= 7
    }

    /// Returns true if every GPU of this capability shares the host's memory (Jetson modules, GB10).
    pub const fn is_integrated(self) -> bool {
        matches!((self.major, self.minor), (5, 3) | (6 | 7, 2) | (8, 7) | (11, _) | (12, 1))
    }

    /// Distance between two capabilities: generations count ten revisions.
    pub(crate) const fn distance(self, other: Self) -> u32 {
        (self.major as u32 * 10 + self.minor as u32).abs_diff(other.major as u32 * 10 + other.minor as u32)
    }

    /// FP32 lanes per streaming multiprocessor (CUDA programming guide, arithmetic throughput); `None` for an
    /// unlisted capability.
    pub const fn cores_per_sm(self) -> Option<u32> {
        Some(match (self.major, self.minor) {
            (6 | 8, 0) | (7, _) => 64,
            (5 | 6 | 9 | 10 | 12, _) | (8, 6 | 7 | 9) => 128,
            _ => return None,
        })
    }
}

impl fmt::Display for ComputeCapability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}.{}", self.major, self.minor))
    }
}

/// A text that is not a compute capability.
#[derive(Debug, Error)]
#[error("`{0}` is not a compute capability: expected MAJOR.MINOR, such as \"8.9\"")]
pub struct ParseCapabilityError(String);

impl FromStr for ComputeCapability {
    type Err = ParseCapabilityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let parts = text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
        match parts {
            Some((major, minor)) => Ok(Self { major, minor }),
            None => Err(ParseCapabilityError(text.to_owned())),
        }
    }
}

impl TryFrom<String> for ComputeCapability {
    type Error = ParseCapabilityError;
    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ComputeCapability> for String {
    fn from(capability: ComputeCapability) -> Self {
        capability.to_string()
    }
}
