//! A line of a recording.

use gpu_tuned_core::telemetry::{Gpu, GpuSample};
use serde::{Deserialize, Deserializer, Serialize};

use super::{HostSample, Run, StepRecord};

/// The version of the format that is written.
pub const VERSION: u32 = 1;

/// One line of a recording. Times are seconds since 1970 (UTC); a figure that nobody has is left out.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[non_exhaustive]
pub enum Record {
    /// A monitor begins.
    Start(Start),
    /// A GPU at one moment.
    Gpu(GpuSample),
    /// The host at one moment.
    Host(HostSample),
    /// A training program begins.
    Run(Box<Run>),
    /// The program took an optimizer step.
    Step(Box<StepRecord>),
    /// The program named a figure of its own.
    Value(Value),
    /// A newer version has more kinds.
    #[serde(other)]
    Unknown,
}

/// A monitor begins: what there is to be watched.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Start {
    /// When.
    pub at: f64,
    /// The version of the format: [`VERSION`].
    pub version: u32,
    /// Processors of the host that may be used.
    pub cores: u64,
    /// Memory of the host in bytes.
    pub memory_bytes: u64,
    /// The driver's version.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_version: Option<String>,
    /// The GPUs that are watched.
    pub gpus: Vec<Gpu>,
    /// Why none is, or why some are not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub trouble: Vec<String>,
}

/// A figure that the program named.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Value {
    /// When.
    pub at: f64,
    /// What it is, such as `valid/loss`.
    pub name: String,
    /// How much; what is no finite number is written as `null`.
    #[serde(deserialize_with = "or_nan")]
    pub value: f64,
    /// The optimizer step that it belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<u64>,
}

/// JSON has no word for what is no finite number.
fn or_nan<'de, D: Deserializer<'de>>(figure: D) -> Result<f64, D::Error> {
    Option::deserialize(figure).map(|figure| figure.unwrap_or(f64::NAN))
}

impl Record {
    /// When it was, in seconds since 1970; `None` of a kind that is not known.
    pub const fn at(&self) -> Option<f64> {
        match self {
            Self::Start(start) => Some(start.at),
            Self::Gpu(sample) => Some(sample.at),
            Self::Host(sample) => Some(sample.at),
            Self::Run(run) => Some(run.at),
            Self::Step(step) => Some(step.at),
            Self::Value(value) => Some(value.at),
            Self::Unknown => None,
        }
    }
}

impl Value {
    /// A figure of the moment `at`.
    pub fn new(at: f64, name: impl Into<String>, value: f64) -> Self {
        Self { at, name: name.into(), value, step: None }
    }
}
