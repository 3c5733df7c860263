//! The host.

use serde::{Deserialize, Serialize};

/// The host at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct HostSample {
    /// When.
    pub at: f64,
    /// Work of all processors, in percent of what they could do together.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Memory in use, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_used_bytes: Option<u64>,
    /// The program that is watched, its children among it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub process: Option<ProcessSample>,
}

/// A program at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct ProcessSample {
    /// Its number.
    pub pid: u32,
    /// Work since the last look, in percent of one processor: 400 is four of them busy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Memory that it holds, in bytes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
    /// The most that one of its threads worked since the last look, in percent of one processor.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub busiest_thread_percent: Option<f64>,
}

impl HostSample {
    /// A look at the host without figures.
    pub fn new(at: f64) -> Self {
        Self { at, ..Self::default() }
    }
}

impl ProcessSample {
    /// A process of which nothing else is known.
    pub fn new(pid: u32) -> Self {
        Self { pid, ..Self::default() }
    }
}
