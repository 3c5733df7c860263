//! Cores and memory of the host.

use std::thread;

use gpu_tuned_core::Bytes;
use serde::Serialize;
use sysinfo::{MemoryRefreshKind, System};

/// Cores and memory of the host, within the limits of this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Host {
    /// CPU cores that this process may use.
    pub cores: u64,
    /// Memory of the host, or the limit of the process's control group.
    pub memory_total: Bytes,
    /// Memory that can be allocated without swapping.
    pub memory_available: Bytes,
}

impl Host {
    /// Reads the host's memory and its cores.
    pub fn read() -> Self {
        let mut system = System::new();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let (total, available) = (system.total_memory(), system.available_memory());
        let limits = system.cgroup_limits().map(|limits| (limits.total_memory, limits.rss));
        let (memory_total, memory_available) = within_limits(total, available, limits);
        Self {
            cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_total: Bytes(memory_total),
            memory_available: Bytes(memory_available),
        }
    }
}

/// Applies a control group's limit to total and available bytes. `limits` has the limit and the resident bytes of the group.
/// Cached files do not count: the kernel frees them when memory is short.
fn within_limits(total: u64, available: u64, limits: Option<(u64, u64)>) -> (u64, u64) {
    match limits {
        Some((limit, resident)) if limit < total => (limit, available.min(limit.saturating_sub(resident))),
        _ => (total, available),
    }
}

#[cfg(test)]
mod tests {
    use super::within_limits;

    const GIB: u64 = 1 << 30;

    #[test]
    fn cached_files_count_as_available() {
        let (total, available) = (24 * GIB, 22 * GIB);
        assert_eq!(within_limits(total, available, None), (total, available));
        // Some systems report a limit of all memory in place of none.
        assert_eq!(within_limits(total, available, Some((total, GIB))), (total, available));
        assert_eq!(within_limits(total, available, Some((8 * GIB, GIB))), (8 * GIB, 7 * GIB));
        assert_eq!(within_limits(total, 3 * GIB, Some((8 * GIB, GIB))), (8 * GIB, 3 * GIB));
        assert_eq!(within_limits(total, available, Some((8 * GIB, 9 * GIB))), (8 * GIB, 0));
    }
}
