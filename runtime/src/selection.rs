use std::fmt;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, GpuReading};
use gpu_tuned_core::matching::{Difference, Match};
use gpu_tuned_core::{Precision, Setting, SettingValue};
use serde::Serialize;

use crate::resume::Resumed;

/// What the runtime settled on: which device, what it was recognised as, and why it is not what the build was for.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Selection {
    /// What the build was for: `rtx4090`, `h200 + rtx4090`, `generic`.
    pub built_for: String,
    /// The device; of several GPUs the first.
    pub device: Recognised,
    /// The GPU as its driver describes it, of several the first; `None` on the CPU.
    pub gpu: Option<GpuReading>,
    /// Every GPU that this process trains on, in the order in which they were asked for; empty on the CPU.
    pub gpus: Vec<SelectedGpu>,
    /// In what several GPUs are unequal. The plan is for the least of each.
    pub weakest: Vec<Shortfall>,
    /// Why the constants of the build could not be used as they are; empty when they are confirmed, or when the build
    /// left the decision to the runtime.
    pub fallbacks: Vec<Fallback>,
    /// How the run compares with the saved one; `None` when it begins.
    pub resumed: Option<Resumed>,
    /// The settings that differ from the constants of the build.
    pub changes: Vec<Change>,
}

/// A GPU that is trained on.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct SelectedGpu {
    /// Its number in CUDA's order: its position in [`Machine::gpus`](crate::Machine::gpus).
    pub position: usize,
    /// What it was recognised as.
    pub device: Recognised,
    /// What its driver says of it.
    pub reading: GpuReading,
}

impl SelectedGpu {
    /// What the driver calls it.
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
        /// What it has.
        free: Bytes,
        /// What another one has.
        most: Bytes,
    },
    /// Peak f32 rate, 10^12 operations per second.
    Rate {
        /// The GPU with the least.
        gpu: usize,
        /// What it has.
        tflops: f64,
        /// What another one has.
        most: f64,
    },
    /// Peak memory bandwidth, 10^9 bytes per second.
    Bandwidth {
        /// The GPU with the least.
        gpu: usize,
        /// What it has.
        gb_s: f64,
        /// What another one has.
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

/// The rungs of the ladder, from sure to unsure.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "rung", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Recognised {
    /// Everything that the driver answered is as the profile says.
    Exact {
        /// The profile's id.
        profile: String,
    },
    /// Nearly the profile's GPU: other memory or multiprocessors, a slice, a modified board.
    Variant {
        /// The nearest profile's id.
        profile: String,
        /// What differs.
        differences: Vec<Difference>,
    },
    /// No profile has this GPU; what it can do is known from its compute capability.
    Class {
        /// The compute capability.
        compute_capability: ComputeCapability,
    },
    /// A GPU of which the driver says nothing that identifies it.
    Unknown,
    /// The CPU.
    Cpu,
}

impl From<&Match> for Recognised {
    fn from(found: &Match) -> Self {
        match found {
            Match::Exact { profile } => Self::Exact { profile: profile.id.to_string() },
            Match::Variant { profile, differences } => {
                Self::Variant { profile: profile.id.to_string(), differences: differences.clone() }
            }
            Match::Class { compute_capability } => Self::Class { compute_capability: *compute_capability },
            Match::Unknown => Self::Unknown,
        }
    }
}

/// Why the constants of a build could not be used as they are.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Fallback {
    /// There is no GPU that this program can use.
    NoGpu {
        /// Why not: one sentence each.
        because: Vec<String>,
    },
    /// The GPU is not the one that the build was for.
    OtherGpu {
        /// What the driver calls it.
        found: String,
    },
    /// The GPU has too little free memory for the planned settings.
    Memory {
        /// What the planned settings need.
        needed: Bytes,
        /// What is free.
        available: Bytes,
    },
    /// Some of the GPUs that were asked for cannot be used. The global batch is shared by the others, as many of them as
    /// divide it.
    FewerGpus {
        /// The GPUs that were asked for, by their numbers in CUDA's order.
        asked: Vec<usize>,
        /// Those that are used.
        used: Vec<usize>,
        /// Why not the others: one sentence each.
        because: Vec<String>,
    },
    /// The micro-batch of the saved run does not fit. Another one makes up the same global batch.
    SavedMicroBatch {
        /// The micro-batch of the saved run.
        saved: u64,
        /// The micro-batch that is used.
        used: u64,
        /// The device.
        device: String,
        /// What is free on it.
        available: Bytes,
    },
    /// The micro-batch of the saved run holds more samples than a rank now has in a step. Another one makes up the same
    /// global batch.
    SavedShare {
        /// The micro-batch of the saved run.
        saved: u64,
        /// The micro-batch that is used.
        used: u64,
        /// Samples of an optimizer step on one rank.
        share: u64,
    },
    /// The device cannot carry the precision out. This changes what the run computes.
    Precision {
        /// What was asked for.
        asked: Precision,
    },
    /// The micro-batch of a model that computes statistics over it had to change. This changes what the run computes.
    BatchStatistics {
        /// The micro-batch that was planned.
        planned: u64,
    },
}

impl Fallback {
    /// Whether the run computes something else because of it, rather than the same in another way.
    pub fn changes_meaning(&self) -> bool {
        matches!(self, Self::Precision { .. } | Self::BatchStatistics { .. })
    }
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoGpu { because } if because.is_empty() => f.write_str("no GPU found"),
            Self::NoGpu { because } => write!(f, "no usable GPU: {}", because.join("; ")),
            Self::OtherGpu { found } => write!(f, "another GPU is there: {found}"),
            Self::Memory { needed, available } => {
                write!(f, "not enough memory: the planned settings need {needed}, {available} are free")
            }
            Self::FewerGpus { asked, used, because } => {
                let (used, asked) = (numbers(used), numbers(asked));
                write!(f, "training on GPU {used} of {asked}: {}", because.join("; "))
            }
            Self::SavedMicroBatch { saved, used, device, available } => {
                write!(f, "the saved micro-batch of {saved} does not fit {device} with {available} free, {used} does")
            }
            Self::SavedShare { saved, used, share } => {
                write!(f, "the saved micro-batch of {saved} is more than a rank's {share} samples, {used} is used")
            }
            Self::Precision { asked } => write!(f, "this device cannot train in {asked}; f32 changes the results"),
            Self::BatchStatistics { planned } => {
                write!(f, "the micro-batch of {planned} cannot be kept; another one changes the batch statistics")
            }
        }
    }
}

/// A setting that differs from the constant of the build.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// The constant of the build.
    pub built: SettingValue,
    /// The value that is used.
    pub used: SettingValue,
    /// Whether the user set it in the config.
    pub by_user: bool,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} -> {}", self.setting, self.built, self.used)?;
        if self.by_user { f.write_str(" (set in the config)") } else { Ok(()) }
    }
}

impl Selection {
    /// Whether the constants of the build are used as they are.
    pub fn is_confirmed(&self) -> bool {
        self.fallbacks.is_empty() && self.changes.is_empty()
    }

    /// What the device is called; of several GPUs the first.
    pub fn device_name(&self) -> String {
        self.gpu.as_ref().map_or_else(|| "CPU".to_owned(), name)
    }
}

fn name(gpu: &GpuReading) -> String {
    gpu.name.clone().unwrap_or_else(|| format!("GPU {}", gpu.index))
}

fn numbers(gpus: &[usize]) -> String {
    gpus.iter().map(usize::to_string).collect::<Vec<_>>().join(", ")
}

/// One line for each device, then one for each fallback, one for the saved run and one for the changes.
impl fmt::Display for Selection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "built for {}, ", self.built_for)?;
        match self.gpus.as_slice() {
            [] => f.write_str("using the CPU")?,
            [gpu] => write!(f, "found {gpu}")?,
            several => {
                write!(f, "found {} GPUs", several.len())?;
                several.iter().try_for_each(|gpu| write!(f, "\n  GPU {}: {gpu}", gpu.position))?;
            }
        }
        if !self.weakest.is_empty() {
            let weakest: Vec<_> = self.weakest.iter().map(ToString::to_string).collect();
            write!(f, "\n  planned for the weakest: {}", weakest.join("; "))?;
        }
        for fallback in &self.fallbacks {
            write!(f, "\n  fallback: {fallback}")?;
        }
        if let Some(resumed) = &self.resumed {
            write!(f, "\n  {resumed}")?;
        }
        if self.is_confirmed() {
            f.write_str("\n  the constants of the build are confirmed")?;
        }
        if !self.changes.is_empty() {
            let changes: Vec<_> = self.changes.iter().map(ToString::to_string).collect();
            write!(f, "\n  changed: {}", changes.join(", "))?;
        }
        Ok(())
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
