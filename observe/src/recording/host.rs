//! Samples of the host.

use serde::{Deserialize, Serialize};

/// A sample of the host.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HostSample {
    /// Time of the sample.
    pub at: f64,
    /// CPU time of all processes since the last sample, in percent of all cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Memory in use, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// The monitored program and its children.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSample>,
}

/// A sample of a program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProcessSample {
    /// Process ID.
    pub pid: u32,
    /// CPU time since the last sample, in percent of one core: 400 is four busy cores.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Resident memory in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// CPU time of its busiest thread since the last sample, in percent of one core.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_thread_percent: Option<f64>,
}

impl HostSample {
    /// Creates a sample without figures.
    pub fn new(at: f64) -> Self {
        Self { at, ..Self::default() }
    }
}

impl ProcessSample {
    /// Creates a sample without figures.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }
}
