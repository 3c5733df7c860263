//! The host of a device.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::ASSUMED_CORES;
use serde::Serialize;

/// The host that loader workers are planned for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Host {
    pub cores: u64,
    /// Whether nobody knows how many cores it has; else it is this machine.
    pub assumed: bool,
}

impl Host {
    pub(super) fn of(facts: &DeviceFacts) -> Self {
        Self { cores: facts.host_cores.unwrap_or(ASSUMED_CORES), assumed: facts.host_cores.is_none() }
    }
}
