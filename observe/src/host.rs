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
    /// Reads the host's memory and its cores.
    pub fn read() -> Self {
        let mut system = System::new();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let (total, available) = (system.total_memory(), system.available_memory());
        let limits = system.cgroup_limits().map(|limits| (limits.total_memory, limits.rss));
        let (memory_total, memory_available) = limited(total, available, limits);
        Self {
            cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_total: Bytes(memory_total),
            memory_available: Bytes(memory_available),
        }
    }
}

/// Bytes in all, and those that could be taken, under a control group's limit, of which its processes hold so much. What they
/// have cached of files counts as theirs elsewhere, and is given back when memory is short.
fn limited(total: u64, available: u64, limits: Option<(u64, u64)>) -> (u64, u64) {
    match limits {
        Some((limit, held)) if limit < total => (limit, available.min(limit.saturating_sub(held))),
        _ => (total, available),
    }
}

#[cfg(test)]
mod tests {
    use super::limited;

    const GIB: u64 = 1 << 30;

    #[test]
    fn what_is_cached_of_files_can_be_taken() {
        let (total, available) = (24 * GIB, 22 * GIB);
        assert_eq!(limited(total, available, None), (total, available));
        // No limit at all, which some systems state as one of all memory.
        assert_eq!(limited(total, available, Some((total, GIB))), (total, available));
        assert_eq!(limited(total, available, Some((8 * GIB, GIB))), (8 * GIB, 7 * GIB));
        assert_eq!(limited(total, 3 * GIB, Some((8 * GIB, GIB))), (8 * GIB, 3 * GIB));
        assert_eq!(limited(total, available, Some((8 * GIB, 9 * GIB))), (8 * GIB, 0));
    }
}
