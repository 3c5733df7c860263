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
    /// The oldest compute capability that Burn is known to train on. PTX that Burn emits loads on Pascal and Volta up to
    /// driver branch 580 (tracel-ai/cubecl issue 1311: a Tesla P100), although toolkits of CUDA 13 begin at 7.5.
    pub const OLDEST: Self = Self::new(6, 0);

    /// Oldest and newest capability of a CUDA GPU, with a margin for later generations.
    pub(crate) const PLAUSIBLE: [Self; 2] = [Self::new(2, 0), Self::new(15, 9)];

    /// FP32 lanes per SM of every GPU since 8.6, and of unlisted ones.
    pub(crate) const USUAL_CORES_PER_SM: u32 = 128;

    /// The capability `major.minor`.
    pub const fn new(major: u8, minor: u8) -> Self {
        Self { major, minor }
    }

    /// The marketing name of the architecture (NVIDIA's CUDA GPU list).
    pub fn architecture(self) -> Option<&'static str> {
        self.row().map(|row| row.architecture)
    }

    /// Returns true if a GPU may have this capability.
    pub(crate) fn is_plausible(self) -> bool {
        let [oldest, newest] = Self::PLAUSIBLE;
        (oldest..=newest).contains(&self)
    }

    /// Returns true for the name of a listed architecture.
    pub(crate) fn is_architecture(name: &str) -> bool {
        ROWS.iter().any(|row| row.architecture == name)
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

    /// FP32 lanes per streaming multiprocessor (CUDA programming guide, arithmetic throughput); those of recent GPUs for a
    /// capability newer than the list, `None` for another unlisted one.
    pub fn cores_per_sm(self) -> Option<u32> {
        let is_newer = ROWS.iter().all(|row| row.major < self.major);
        self.row().map(|row| row.cores_per_sm).or(is_newer.then_some(Self::USUAL_CORES_PER_SM))
    }

    /// Dense fp16 operations per clock and multiprocessor of the tensor cores, accumulated in fp32 at full rate; `None`
    /// without tensor cores or for an unlisted capability.
    pub fn tensor_f16_per_sm(self) -> Option<u32> {
        self.row().map(|row| row.tensor_f16_per_sm).filter(|operations| *operations > 0)
    }

    /// The reason why Burn cannot train on such a GPU, for a message; `None` if it can.
    pub fn refusal(self) -> Option<String> {
        if self >= Self::OLDEST || self == Self::default() {
            return None;
        }
        let family = self.architecture().map_or_else(String::new, |family| format!(" ({family})"));
        let oldest = Self::OLDEST;
        Some(format!("CUDA 13 has dropped compute capability {self}{family}, and Burn needs {oldest} or later"))
    }

    /// The last driver branch and the last CUDA toolkit for such a GPU; `None` while current releases support it. The
    /// driver compiles the PTX of Burn's default backend, so the toolkit's limit applies to NVRTC only.
    pub fn last_cuda(self) -> Option<&'static str> {
        self.row().and_then(|row| row.last_cuda)
    }

    fn row(self) -> Option<&'static Row> {
        let exact = ROWS.iter().find(|row| row.major == self.major && row.minor == Some(self.minor));
        exact.or_else(|| ROWS.iter().find(|row| row.major == self.major && row.minor.is_none()))
    }
}

/// A row of the table of compute capabilities.
struct Row {
    major: u8,
    /// `None` for all other revisions of the generation.
    minor: Option<u8>,
    architecture: &'static str,
    cores_per_sm: u32,
    /// 0 without tensor cores.
    tensor_f16_per_sm: u32,
    last_cuda: Option<&'static str>,
}

const fn row(
    major: u8,
    minor: Option<u8>,
    architecture: &'static str,
    cores_per_sm: u32,
    tensor_f16_per_sm: u32,
    last_cuda: Option<&'static str>,
) -> Row {
    Row { major, minor, architecture, cores_per_sm, tensor_f16_per_sm, last_cuda }
}

const KEPLER: Option<&str> = Some("driver 470, toolkit 11");
const SINCE_MAXWELL: Option<&str> = Some("driver 580, toolkit 12");

/// Compute capabilities: architecture, fp32 lanes and tensor operations per SM (CUDA programming guide; openxla/xprof,
/// `utils/cuda_type_utils.cc`), and the last driver and toolkit (CUDA release notes).
const ROWS: [Row; 14] = [
    row(3, None, "Kepler", 192, 0, KEPLER),
    row(5, None, "Maxwell", 128, 0, SINCE_MAXWELL),
    row(6, Some(0), "Pascal", 64, 0, SINCE_MAXWELL),
    row(6, None, "Pascal", 128, 0, SINCE_MAXWELL),
    row(7, Some(5), "Turing", 64, 1024, None),
    row(7, None, "Volta", 64, 1024, SINCE_MAXWELL),
    row(8, Some(0), "Ampere", 64, 2048, None),
    row(8, Some(6), "Ampere", 128, 1024, None),
    row(8, Some(7), "Ampere", 128, 2048, None),
    row(8, Some(9), "Ada", 128, 1024, None),
    row(9, None, "Hopper", 128, 4096, None),
    row(10, None, "Blackwell", 128, 8192, None),
    row(11, None, "Blackwell", 128, 8192, None),
    row(12, None, "Blackwell", 128, 1024, None),
];

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
