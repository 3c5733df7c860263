use std::fmt;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use serde::Serialize;

use super::Recognised;

/// A GPU that is trained on.
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

/// A figure in which one of several GPUs falls behind, with its number in CUDA's order.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(tag = "figure", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Shortfall {
    /// Memory that a new process could take.
    Memory {
        /// The GPU with the least.
        gpu: usize,
        /// Free memory of the GPU.
        free: Bytes,
        /// Free memory of another GPU.
        most: Bytes,
    },
    /// Peak f32 rate, 10^12 operations per second.
    Rate {
        /// The GPU with the least.
        gpu: usize,
        /// Rate of the GPU.
        tflops: f64,
        /// Rate of another GPU.
        most: f64,
    },
    /// Peak memory bandwidth, 10^9 bytes per second.
    Bandwidth {
        /// The GPU with the least.
        gpu: usize,
        /// Bandwidth of the GPU.
        gb_s: f64,
        /// Bandwidth of another GPU.
        most: f64,
    },
    /// Tensor cores that take bf16.
    Bf16 {
        /// A GPU without them.
        gpu: usize,
    },
}

impl fmt::Display for Shortfall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Memory { gpu, free, most } => write!(f, "GPU {gpu} has {free} free, not {most}"),
            Self::Rate { gpu, tflops, most } => write!(f, "GPU {gpu} does {tflops:.0} TFLOP/s in f32, not {most:.0}"),
            Self::Bandwidth { gpu, gb_s, most } => write!(f, "GPU {gpu} reads {gb_s:.0} GB/s, not {most:.0}"),
            Self::Bf16 { gpu } => write!(f, "GPU {gpu} has no bf16 tensor cores"),
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
