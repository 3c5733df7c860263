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
    /// The limit that leaves the least available memory to this process, if it is below the host's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<HostMemoryLimit>,
}

/// Limit of this process on the host's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HostMemoryLimit {
    /// Name: a variable, or a file of a control group.
    pub name: &'static str,
    /// All memory of this process.
    pub limit: Bytes,
    /// Available memory of the host without limits.
    pub available_without: Bytes,
}

/// Limit on the memory of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MemoryLimit {
    /// A variable, or a file of a control group.
    name: &'static str,
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
            memory_limit: None,
        };
        let slurm = slurm::limits(|name| env::var(name).ok());
        host.within(&cgroup::limits(Path::new("/"))).within(&slurm)
    }

    /// Applies limits. A limit above all memory is none: some systems report it so.
    fn within(mut self, limits: &Limits) -> Self {
        let total = self.memory_total.0;
        let available_without = self.memory_limit.map_or(self.memory_available, |limit| limit.available_without);
        for memory in limits.memory.iter().filter(|memory| memory.limit < total) {
            let limit = Bytes(memory.limit);
            self.memory_total = self.memory_total.min(limit);
            let available = Bytes(memory.limit.saturating_sub(memory.used));
            if available < self.memory_available {
                self.memory_available = available;
                self.memory_limit = Some(HostMemoryLimit { name: memory.name, limit, available_without });
            }
        }
        self.cores = limits.cores.iter().copied().fold(self.cores, u64::min);
        self
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
            memory_limit: None,
        };
        let limits = |memory: &[(&'static str, u64, u64)], cores: &[u64]| Limits {
            memory: memory
                .iter()
                .map(|(name, limit, used)| MemoryLimit { name, limit: limit * GIB, used: used * GIB })
                .collect(),
            cores: cores.to_vec(),
        };
        for (memory, cores, expected, lowest) in [
            (&[][..], &[][..], host(16, 24, 22), None),
            (&[("a", 24, 1), ("b", 1 << 30, 1)], &[64], host(16, 24, 22), None),
            (&[("a", 8, 1)], &[4, 8], host(4, 8, 7), Some(("a", 8))),
            (&[("a", 8, 1), ("b", 2, 0)], &[], host(16, 2, 2), Some(("b", 2))),
            // An outer group that is nearly full.
            (&[("a", 8, 0), ("b", 16, 15)], &[], host(16, 8, 1), Some(("b", 16))),
            (&[("a", 8, 9)], &[], host(16, 8, 0), Some(("a", 8))),
        ] {
            let found = host(16, 24, 22).within(&limits(memory, cores));
            let limit = found.memory_limit.map(|limit| (limit.name, limit.limit.0 / GIB));
            assert_eq!((Host { memory_limit: None, ..found }, limit), (expected, lowest), "{memory:?}, {cores:?}");
            assert!(found.memory_limit.is_none_or(|limit| limit.available_without == Bytes(22 * GIB)));
        }
        assert_eq!(host(16, 24, 3).within(&limits(&[("a", 8, 1)], &[])), host(16, 8, 3));
    }
}
