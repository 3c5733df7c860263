use std::thread;

use gpu_tuned_core::Bytes;
use serde::Serialize;
use sysinfo::{MemoryRefreshKind, System};

/// The host's processor and memory, as far as this process may use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Host {
    /// Cores that this process may run on.
    pub cores: u64,
    /// All memory, or the limit of the process's control group.
    pub memory_total: Bytes,
    /// Memory that could be taken without swapping.
    pub memory_available: Bytes,
}

impl Host {
    pub(crate) fn read() -> Self {
        let mut system = System::new();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let (total, available) = (system.total_memory(), system.available_memory());
        let limits = system.cgroup_limits();
        let (limit, left) = limits.map_or((total, available), |limits| (limits.total_memory, limits.free_memory));
        Self {
            cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_total: Bytes(total.min(limit)),
            memory_available: Bytes(available.min(left)),
        }
    }
}
