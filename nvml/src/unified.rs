//! Memory of GPUs that share the host's. NVML reports none, or counts the page cache as used.

use std::fs;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::ProfileTable;

/// Replaces the memory figures of a GPU with unified memory by those of the host. Other systems than Linux keep the
/// driver's. The shipped profiles identify a GPU that reports no compute capability.
pub(crate) fn read_memory(unit: &mut GpuReading) {
    if !unit.has_unified_memory() && !unit.shares_memory(identify(unit, &ProfileTable::default()).profile()) {
        return;
    }
    unit.unified_memory = true;
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    if let Some((total, available)) = total_and_available(&text) {
        (unit.memory_total, unit.memory_free, unit.memory_reserved) = (Some(total), Some(available), None);
    }
}

/// Total and available memory in `/proc/meminfo`. Available memory counts caches that the kernel can free; `MemFree` does
/// not.
fn total_and_available(text: &str) -> Option<(Bytes, Bytes)> {
    let kib = |key: &str| {
        let figure = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
        figure.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    };
    let (total, available) = (kib("MemTotal")?, kib("MemAvailable")?);
    (total > 0).then_some((Bytes(total << 10), Bytes(available.min(total) << 10)))
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::Bytes;
    use gpu_tuned_core::device::{ComputeCapability, GpuReading};

    use super::{read_memory, total_and_available};

    #[test]
    fn cached_files_are_available() {
        // A GB10 with a large page cache.
        let text = "MemTotal:       125514684 kB\nMemFree:         2262516 kB\nMemAvailable:   117440512 kB\n";
        assert_eq!(total_and_available(text), Some((Bytes(125_514_684 << 10), Bytes(117_440_512 << 10))));
        for broken in ["", "MemTotal: 1 kB", "MemTotal: x kB\nMemAvailable: 1 kB", "MemTotal: 0 kB\nMemAvailable: 0 kB"]
        {
            assert_eq!(total_and_available(broken), None, "{broken}");
        }
    }

    #[test]
    fn a_name_is_enough_for_the_memory_of_the_host() {
        for (name, is_unified) in
            [("NVIDIA GB10", true), ("NVIDIA Thor", true), ("Orin (nvgpu)", true), ("NVIDIA H200", false)]
        {
            let mut unit = GpuReading::default();
            unit.name = Some(name.to_owned());
            read_memory(&mut unit);
            assert_eq!(unit.unified_memory, is_unified, "{name}");
            assert!(!cfg!(target_os = "linux") || unit.memory_free.is_some() == is_unified, "{name}");
        }
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn only_a_gpu_without_memory_of_its_own_has_the_hosts() {
        for (capability, is_unified) in
            [((8, 7), true), ((11, 0), true), ((12, 1), true), ((12, 0), false), ((9, 0), false)]
        {
            let mut unit = GpuReading::default();
            unit.compute_capability = Some(ComputeCapability::new(capability.0, capability.1));
            unit.memory_reserved = Some(Bytes(1));
            read_memory(&mut unit);
            assert_eq!((unit.unified_memory, unit.memory_total.is_some()), (is_unified, is_unified), "{capability:?}");
            assert!(unit.memory_free <= unit.memory_total && unit.memory_reserved.is_none() == is_unified);
        }
    }
}
