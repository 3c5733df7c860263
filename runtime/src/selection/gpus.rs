use std::fmt;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use serde::{Deserialize, Serialize};

use super::Recognised;

/// The GPU that is trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SelectedGpu {
    /// Its number in CUDA's order: its position in [`Machine::gpus`](crate::Machine::gpus).
    pub position: usize,
    /// Match with a profile.
    pub device: Recognised,
    /// Reading of the driver.
    pub reading: GpuReading,
    /// Source of the memory, if the driver reports none or an implausible one; one sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_remark: Option<String>,
}

impl SelectedGpu {
    /// Name in the driver.
    pub fn name(&self) -> String {
        name(&self.reading)
    }
}

/// A figure in which the device of one of several ranks falls behind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "figure", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shortfall {
    /// Memory that a new process could take.
    Memory {
        /// The rank with the least.
        rank: usize,
        /// Its host.
        host: String,
        /// Free memory of its device.
        free: Bytes,
        /// Free memory of another device.
        most: Bytes,
    },
    /// Peak f32 rate, 10^12 operations per second.
    Rate {
        /// The rank with the least.
        rank: usize,
        /// Its host.
        host: String,
        /// Rate of its device.
        tflops: f64,
        /// Rate of another device.
        most: f64,
    },
    /// Peak memory bandwidth, 10^9 bytes per second.
    Bandwidth {
        /// The rank with the least.
        rank: usize,
        /// Its host.
        host: String,
        /// Bandwidth of its device.
        gb_s: f64,
        /// Bandwidth of another device.
        most: f64,
    },
    /// Tensor cores that take bf16.
    Bf16 {
        /// A rank without them.
        rank: usize,
        /// Its host.
        host: String,
    },
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::Memory { rank, host, .. }
        | Self::Rate { rank, host, .. }
        | Self::Bandwidth { rank, host, .. }
        | Self::Bf16 { rank, host }) = self;
        write!(f, "rank {rank} on {host} ")?;
        match self {
            Self::Memory { free, most, .. } => write!(f, "has {free} free, not {most}"),
            Self::Rate { tflops, most, .. } => write!(f, "does {tflops:.0} TFLOP/s in f32, not {most:.0}"),
            Self::Bandwidth { gb_s, most, .. } => write!(f, "reads {gb_s:.0} GB/s, not {most:.0}"),
            Self::Bf16 { .. } => f.write_str("has no bf16 tensor cores"),
        }
    }
}

/// The name and what it was recognised as.
impl fmt::Display for SelectedGpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.name();
        match &self.device {
            Recognised::Exact { profile } => write!(f, "{name} ({profile}, exact)"),
            Recognised::Variant { profile, differences } => {
                let differences: Vec<_> = differences.iter().map(ToString::to_string).collect();
                write!(f, "{name}: like {profile}, but {}", differences.join(", "))
            }
            Recognised::Class { compute_capability } => {
                write!(f, "{name}: no profile, compute capability {compute_capability}")
            }
            Recognised::Unknown | Recognised::Cpu => write!(f, "{name}, which no profile describes"),
        }
    }
}

/// Name in the driver.
pub(super) fn name(gpu: &GpuReading) -> String {
    gpu.name.clone().unwrap_or_else(|| format!("GPU {}", gpu.index))
}
