//! Cores and memory of the host, within the limits of this process.

use std::path::{Path, PathBuf};
use std::{env, fs, thread};

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::DeviceFacts;
#[cfg(feature = "driver")]
use gpu_tuned_core::device::GpuReading;
#[cfg(feature = "driver")]
use gpu_tuned_core::matching::identify;
#[cfg(feature = "driver")]
use gpu_tuned_core::profile::ProfileTable;
use serde::Serialize;

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
        let (memory_total, memory_available) = memory();
        // Respects the affinity of the process.
        let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let host = Self { cores, memory_total, memory_available, memory_limit: None };
        let slurm = slurm_limits(|name| env::var(name).ok());
        host.within(&cgroup_limits(Path::new("/"))).within(&slurm)
    }

    /// Facts of the CPU for the planner.
    pub fn facts(&self) -> DeviceFacts {
        DeviceFacts::cpu(self.memory_total, self.memory_available, self.cores)
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

/// Total and available memory of the host.
#[cfg(target_os = "linux")]
fn memory() -> (Bytes, Bytes) {
    total_and_available(&meminfo()).unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn memory() -> (Bytes, Bytes) {
    use sysinfo::{MemoryRefreshKind, System};

    let mut system = System::new();
    system.refresh_memory_specifics(MemoryRefreshKind::nothing().with_ram());
    (Bytes(system.total_memory()), Bytes(system.available_memory()))
}

/// Replaces the memory figures of a GPU with unified memory by those of the host. NVML reports none, or counts the page
/// cache as used. Other systems than Linux keep the driver's. The shipped profiles identify a GPU that reports no compute
/// capability.
#[cfg(feature = "driver")]
pub(crate) fn share_memory(unit: &mut GpuReading) {
    if !unit.has_unified_memory() && !unit.shares_memory(identify(unit, &ProfileTable::default()).profile()) {
        return;
    }
    unit.unified_memory = true;
    if let Some((total, available)) = total_and_available(&meminfo()) {
        (unit.memory_total, unit.memory_free, unit.memory_reserved) = (Some(total), Some(available), None);
    }
}

#[cfg(any(target_os = "linux", feature = "driver"))]
fn meminfo() -> String {
    fs::read_to_string("/proc/meminfo").unwrap_or_default()
}

/// Total and available memory in `/proc/meminfo`. Available memory counts caches that the kernel can free; `MemFree` does
/// not.
#[cfg(any(target_os = "linux", feature = "driver"))]
fn total_and_available(text: &str) -> Option<(Bytes, Bytes)> {
    let kib = |key: &str| {
        let figure = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        figure.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let (total, available) = (kib("MemTotal")?, kib("MemAvailable")?);
    (total > 0).then_some((Bytes(total << 10), Bytes(available.min(total) << 10)))
}

/// Folder of the groups, without and with a controller of version 1.
const GROUPS: &str = "sys/fs/cgroup";

/// Reads the limits of control groups, versions 1 and 2, from the files below `root`, which is `/` but in tests.
///
/// A group bounds its children, so every group from that of the process up to the root counts. In a container, the
/// mounted tree may begin below the root: the longest end of the group's path that exists is taken.
fn cgroup_limits(root: &Path) -> Limits {
    let mut limits = Limits::default();
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).unwrap_or_default();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let has = |name| controllers.split(',').any(|controller| controller == name);
        if controllers.is_empty() {
            let folder = mounted(root, &["unified"]);
            for group in folders(&folder, path) {
                limits.memory.extend(memory_v2(&group));
                limits.cores.extend(cores_v2(&group));
            }
        }
        if has("memory") {
            let folder = mounted(root, &[controllers, "memory"]);
            limits.memory.extend(folders(&folder, path).iter().filter_map(|group| memory_v1(group)));
        }
        if has("cpu") {
            let folder = mounted(root, &[controllers, "cpu"]);
            limits.cores.extend(folders(&folder, path).iter().filter_map(|group| cores_v1(group)));
        }
    }
    limits
}

/// Folder in which groups are mounted: the first of these names, else the folder of version 2.
fn mounted(root: &Path, names: &[&str]) -> PathBuf {
    let folder = root.join(GROUPS);
    names.iter().map(|name| folder.join(name)).find(|folder| folder.is_dir()).unwrap_or(folder)
}

/// Folders of a group and of all groups above it.
fn folders(mount: &Path, path: &str) -> Vec<PathBuf> {
    let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | "." | "..")).collect();
    let visible = (0..parts.len()).map(|hidden| mount.join(parts[hidden..].join("/"))).find(|folder| folder.is_dir());
    let group = visible.unwrap_or_else(|| mount.to_owned());
    group.ancestors().take_while(|folder| folder.starts_with(mount)).map(Path::to_owned).collect()
}

/// Number in a file; `None` for a missing file, `max` and negative numbers.
fn number(group: &Path, file: &str) -> Option<u64> {
    fs::read_to_string(group.join(file)).ok()?.trim().parse().ok()
}

/// Sum of figures of `memory.stat`. Missing figures count as 0.
fn stat(group: &Path, keys: &[&str]) -> u64 {
    let text = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let figures = text.lines().filter_map(|line| line.split_once(' '));
    let wanted = figures.filter(|(key, _)| keys.contains(key));
    wanted.filter_map(|(_, figure)| figure.trim().parse::<u64>().ok()).fold(0, u64::saturating_add)
}

fn memory_v2(group: &Path) -> Option<MemoryLimit> {
    // Above `memory.high` the kernel slows the process down instead of ending it.
    let files = [("memory.max", "memory.max of a control group"), ("memory.high", "memory.high of a control group")];
    let limits = files.into_iter().filter_map(|(file, name)| Some((number(group, file)?, name)));
    let (limit, name) = limits.min()?;
    let caches = stat(group, &["active_file", "inactive_file", "slab_reclaimable"]);
    let used = number(group, "memory.current").unwrap_or_default().saturating_sub(caches);
    Some(MemoryLimit { name, limit, used })
}

fn memory_v1(group: &Path) -> Option<MemoryLimit> {
    let limit = number(group, "memory.limit_in_bytes")?;
    let caches = stat(group, &["total_active_file", "total_inactive_file"]);
    let used = number(group, "memory.usage_in_bytes").unwrap_or_default().saturating_sub(caches);
    Some(MemoryLimit { name: "memory.limit_in_bytes of a control group", limit, used })
}

fn cores_v2(group: &Path) -> Option<u64> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let (quota, period) = text.trim().split_once(' ')?;
    whole_cores(quota.parse().ok()?, period.trim().parse().ok()?)
}

fn cores_v1(group: &Path) -> Option<u64> {
    whole_cores(number(group, "cpu.cfs_quota_us")?, number(group, "cpu.cfs_period_us")?)
}

/// Cores of a quota, rounded down; at least one.
fn whole_cores(quota: u64, period: u64) -> Option<u64> {
    Some(quota.checked_div(period)?.max(1))
}

/// Reads the limits of a Slurm job on its node. A cluster may enforce them without control groups. Amounts of memory are in
/// MiB; 0 is all of the node.
fn slurm_limits(variable: impl Fn(&str) -> Option<String>) -> Limits {
    let number = |name: &str| variable(name)?.trim().parse().ok().filter(|number: &u64| *number > 0);
    let cores_on_node = number("SLURM_CPUS_ON_NODE");
    let cores = number("SLURM_CPUS_PER_TASK").or(cores_on_node);
    let amounts = [
        ("SLURM_MEM_PER_NODE", Some(1)),
        ("SLURM_MEM_PER_CPU", cores_on_node.or(cores)),
        ("SLURM_MEM_PER_GPU", number("SLURM_GPUS_ON_NODE")),
    ];
    let limit = |(name, count): (&'static str, Option<u64>)| {
        let limit = number(name)?.checked_mul(count?)?.checked_mul(1 << 20)?;
        Some(MemoryLimit { name, limit, used: 0 })
    };
    Limits { memory: amounts.into_iter().find_map(limit).into_iter().collect(), cores: cores.into_iter().collect() }
}

#[cfg(test)]
mod tests;
