use std::fs;

use gpu_tuned_core::Bytes;
#[cfg(feature = "driver")]
use gpu_tuned_core::device::{ComputeCapability, GpuReading};
use tempfile::TempDir;

#[cfg(feature = "driver")]
use super::share_memory;
use super::{Host, Limits, MemoryLimit, cgroup_limits, slurm_limits, total_and_available};

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

#[test]
fn cached_files_are_available() {
    // A GB10 with a large page cache.
    let text = "MemTotal:       125514684 kB\nMemFree:         2262516 kB\nMemAvailable:   117440512 kB\n";
    assert_eq!(total_and_available(text), Some((Bytes(125_514_684 << 10), Bytes(117_440_512 << 10))));
    for broken in ["", "MemTotal: 1 kB", "MemTotal: x kB\nMemAvailable: 1 kB", "MemTotal: 0 kB\nMemAvailable: 0 kB"] {
        assert_eq!(total_and_available(broken), None, "{broken}");
    }
}

#[test]
#[cfg(feature = "driver")]
fn a_name_is_enough_for_the_memory_of_the_host() {
    for (name, is_unified) in
        [("NVIDIA GB10", true), ("NVIDIA Thor", true), ("Orin (nvgpu)", true), ("NVIDIA H200", false)]
    {
        let mut unit = GpuReading::default();
        unit.name = Some(name.to_owned());
        share_memory(&mut unit);
        assert_eq!(unit.unified_memory, is_unified, "{name}");
        assert!(!cfg!(target_os = "linux") || unit.memory_free.is_some() == is_unified, "{name}");
    }
}

#[test]
#[cfg(all(feature = "driver", target_os = "linux"))]
fn only_a_gpu_without_memory_of_its_own_has_the_hosts() {
    for (capability, is_unified) in
        [((8, 7), true), ((11, 0), true), ((12, 1), true), ((12, 0), false), ((9, 0), false)]
    {
        let mut unit = GpuReading::default();
        unit.compute_capability = Some(ComputeCapability::new(capability.0, capability.1));
        unit.memory_reserved = Some(Bytes(1));
        share_memory(&mut unit);
        assert_eq!((unit.unified_memory, unit.memory_total.is_some()), (is_unified, is_unified), "{capability:?}");
        assert!(unit.memory_free <= unit.memory_total && unit.memory_reserved.is_none() == is_unified);
    }
}

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
    let Limits { memory, cores } = cgroup_limits(root(groups, files).path());
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
    assert_eq!(cgroup_limits(tempfile::tempdir().expect("a folder").path()), Limits::default());
}

#[test]
fn a_job_has_its_part_of_the_node() {
    for (variables, cores, mib) in [
        (&[][..], None, None),
        (&[("SLURM_CPUS_PER_TASK", "4"), ("SLURM_CPUS_ON_NODE", "32")], Some(4), None),
        (&[("SLURM_CPUS_ON_NODE", "32")], Some(32), None),
        (&[("SLURM_MEM_PER_NODE", "16384")], None, Some(16_384)),
        // `--mem=0` is all of the node.
        (&[("SLURM_MEM_PER_NODE", "0")], None, None),
        (&[("SLURM_MEM_PER_CPU", "2048"), ("SLURM_CPUS_ON_NODE", "8")], Some(8), Some(16_384)),
        (&[("SLURM_MEM_PER_CPU", "2048"), ("SLURM_CPUS_PER_TASK", "4")], Some(4), Some(8192)),
        (&[("SLURM_MEM_PER_GPU", "65536"), ("SLURM_GPUS_ON_NODE", "2")], None, Some(131_072)),
        (&[("SLURM_MEM_PER_GPU", "65536")], None, None),
        (&[("SLURM_CPUS_PER_TASK", "many"), ("SLURM_MEM_PER_NODE", "-1")], None, None),
        (&[("SLURM_MEM_PER_NODE", "18446744073709551615")], None, None),
    ] {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        let limits = slurm_limits(value);
        assert_eq!(limits.cores.first().copied(), cores, "{variables:?}");
        let memory = limits.memory.first().map(|memory| (memory.limit >> 20, memory.used));
        assert_eq!(memory, mib.map(|mib: u64| (mib, 0)), "{variables:?}");
    }
}
