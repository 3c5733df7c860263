//! Cores and memory of the host.

mod cgroup;
mod slurm;

use std::env;
use std::path::Path;
use std::thread;

use gpu_tuned_core::Bytes;
use serde::Serialize;
use sysinfo::{MemoryRefreshKind, System};

/// Cores and memory of the host, within the limits of this process: affinity, control groups and the allocation of Slurm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Host {
    /// CPU cores that this process may use.
    pub cores: u64,
    /// Memory of the host, or the lowest limit of this process.
    pub memory_total: Bytes,
    /// Memory that can be allocated without swapping.
    pub memory_available: Bytes,
}

/// Limit on the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryLimit {
    limit: u64,
    /// Bytes in use within the limit, without caches that the kernel can free.
    used: u64,
}

/// Limits on a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Limits {
    memory: Vec<MemoryLimit>,
    /// CPU cores; at least one.
    cores: Vec<u64>,
}

impl Host {
    /// Reads the host's memory, its cores, and the limits of this process.
    pub fn read() -> Self {
        let mut system = System::new();
        system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
        let host = Self {
            // Respects the affinity of the process.
            cores: thread::available_parallelism().map_or(1, |cores| cores.get() as u64),
            memory_total: Bytes(system.total_memory()),
            memory_available: Bytes(system.available_memory()),
        };
        let slurm = slurm::limits(|name| env::var(name).ok());
        host.within(&cgroup::limits(Path::new("/"))).within(&slurm)
    }

    /// Applies limits. A limit above all memory is none: some systems report it so.
    fn within(self, limits: &Limits) -> Self {
        let total = self.memory_total.0;
        let effective = || limits.memory.iter().filter(|memory| memory.limit < total);
        let available = effective().map(|memory| memory.limit.saturating_sub(memory.used));
        Self {
            cores: limits.cores.iter().copied().fold(self.cores, u64::min),
            memory_total: Bytes(effective().map(|memory| memory.limit).fold(total, u64::min)),
            memory_available: Bytes(available.fold(self.memory_available.0, u64::min)),
        }
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;

    use super::{Host, Limits, MemoryLimit};

    const GIB: u64 = 1 << 30;

    #[test]
    fn the_lowest_limits_count() {
        let host = |cores, total, available| Host {
            cores,
            memory_total: Bytes(total * GIB),
            memory_available: Bytes(available * GIB),
        };
        let limits = |memory: &[(u64, u64)], cores: &[u64]| Limits {
            memory: memory.iter().map(|(limit, used)| MemoryLimit { limit: limit * GIB, used: used * GIB }).collect(),
            cores: cores.to_vec(),
        };
        for (memory, cores, expected) in [
            (&[][..], &[][..], host(16, 24, 22)),
            (&[(24, 1), (1 << 30, 1)], &[64], host(16, 24, 22)),
            (&[(8, 1)], &[4, 8], host(4, 8, 7)),
            (&[(8, 1), (2, 0)], &[], host(16, 2, 2)),
            // An outer group that is nearly full.
            (&[(8, 0), (16, 15)], &[], host(16, 8, 1)),
            (&[(8, 9)], &[], host(16, 8, 0)),
        ] {
            assert_eq!(host(16, 24, 22).within(&limits(memory, cores)), expected, "{memory:?}, {cores:?}");
        }
        assert_eq!(host(16, 24, 3).within(&limits(&[(8, 1)], &[])), host(16, 8, 3));
    }
}
