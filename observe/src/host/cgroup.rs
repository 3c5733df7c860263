//! Limits of control groups, versions 1 and 2, at any depth.
//!
//! A group bounds its children, so every group from that of the process up to the root counts. In a container, the
//! mounted tree may begin below the root: the longest end of the group's path that exists is taken.

use std::fs;
use std::path::{Path, PathBuf};

use super::{Limits, MemoryLimit};

/// Folder of the groups, without and with a controller of version 1.
const GROUPS: &str = "sys/fs/cgroup";

/// Reads the limits of this process from the files below `root`, which is `/` but in tests.
pub(super) fn limits(root: &Path) -> Limits {
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

#[cfg(test)]
mod tests {
    use std::fs;

    use tempfile::TempDir;

    use super::limits;
    use crate::host::{Limits, MemoryLimit};

    const MIB: u64 = 1 << 20;

    /// A root with the process's groups and the files of groups.
    fn root(groups: &str, files: &[(&str, &str)]) -> TempDir {
        let root = tempfile::tempdir().expect("a temporary folder");
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("it can be made");
            fs::write(path, text).expect("it can be written");
        };
        write("proc/self/cgroup", groups);
        for (file, text) in files {
            write(&format!("sys/fs/cgroup/{file}"), text);
        }
        root
    }

    /// Limits of memory and what is used of them in MiB, and cores.
    fn read(groups: &str, files: &[(&str, &str)]) -> (Vec<(u64, u64)>, Vec<u64>) {
        let Limits { memory, cores } = limits(root(groups, files).path());
        (memory.into_iter().map(|MemoryLimit { limit, used, .. }| (limit / MIB, used / MIB)).collect(), cores)
    }

    #[test]
    fn version_2_counts_every_group_up_to_the_root() {
        let files = [
            ("job.slice/memory.max", "8589934592\n"),
            ("job.slice/memory.current", "3221225472\n"),
            ("job.slice/memory.stat", "anon 1\nfile 2\nactive_file 1073741824\ninactive_file 1073741824\n"),
            ("job.slice/step/memory.max", "max\n"),
            ("job.slice/step/memory.high", "max\n"),
            ("job.slice/step/cpu.max", "max 100000\n"),
            ("job.slice/step/task/memory.max", "4294967296\n"),
            ("job.slice/step/task/memory.high", "2147483648\n"),
            ("job.slice/step/task/cpu.max", "250000 100000\n"),
            ("job.slice/cpu.max", "800000 100000\n"),
            ("other/memory.max", "1048576\n"),
        ];
        let (memory, cores) = read("0::/job.slice/step/task\n", &files);
        assert_eq!(memory, [(2048, 0), (8192, 1024)]);
        assert_eq!(cores, [2, 8]);
    }

    #[test]
    fn version_1_has_a_folder_for_each_controller() {
        let groups =
            "9:cpuset:/\n4:memory:/slurm/uid_0/job_7/step_0\n3:cpu,cpuacct:/slurm/job_7\n1:name=systemd:/x\n0::/\n";
        let files = [
            ("memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("memory/slurm/uid_0/job_7/memory.limit_in_bytes", "2147483648\n"),
            ("memory/slurm/uid_0/job_7/memory.usage_in_bytes", "1073741824\n"),
            ("memory/slurm/uid_0/job_7/memory.stat", "inactive_file 5\ntotal_inactive_file 536870912\n"),
            ("memory/slurm/uid_0/job_7/step_0/memory.limit_in_bytes", "9223372036854771712\n"),
            ("cpu,cpuacct/slurm/job_7/cpu.cfs_quota_us", "50000\n"),
            ("cpu,cpuacct/slurm/job_7/cpu.cfs_period_us", "100000\n"),
            ("cpu,cpuacct/cpu.cfs_quota_us", "-1\n"),
            ("cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
            ("unified/cgroup.controllers", ""),
        ];
        let (memory, cores) = read(groups, &files);
        assert!(memory.contains(&(2048, 512)), "{memory:?}");
        // Half a core is one.
        assert_eq!(cores, [1]);
    }

    #[test]
    fn a_container_sees_the_end_of_its_path() {
        // The container's group is mounted as the root.
        let files = [("memory.max", "1073741824\n"), ("app/memory.max", "536870912\n")];
        for (path, expected) in [
            ("/", &[(1024, 0)][..]),
            ("/docker/abc", &[(1024, 0)]),
            ("/../../kubepods/pod1/abc", &[(1024, 0)]),
            ("/kubepods/pod1/abc/app", &[(512, 0), (1024, 0)]),
        ] {
            assert_eq!(read(&format!("0::{path}\n"), &files).0, expected, "{path}");
        }
        let files = [("memory/memory.limit_in_bytes", "1073741824\n"), ("cpu/cpu.cfs_quota_us", "400000\n")];
        let (memory, cores) = read("4:memory:/docker/abc\n3:cpu:/docker/abc\n", &files);
        assert_eq!((memory, cores), (vec![(1024, 0)], vec![]));
    }

    #[test]
    fn broken_files_are_no_limits() {
        let files = [
            ("memory.max", "much\n"),
            ("memory.high", ""),
            ("cpu.max", "0 0\n"),
            ("a/cpu.max", "100000\n"),
            ("a/memory.max", "-5\n"),
        ];
        assert_eq!(read("0::/a\nwhat\n7\n", &files), (vec![], vec![]));
        assert_eq!(limits(tempfile::tempdir().expect("a folder").path()), Limits::default());
    }
}
