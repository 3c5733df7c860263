//! GPUs that share the host's memory: one name for several modules, of which the total memory decides.

use gpu_tuned_core::device::{DeviceFacts, GpuReading, MemoryKind};
use gpu_tuned_core::matching::Difference;
use gpu_tuned_core::workload::Transformer;
use gpu_tuned_core::{Bytes, Goal, plan};

use super::{assert_exact, facts, shipped, variant};

fn reading(name: &str, capability: &str, mib: Option<u64>) -> GpuReading {
    let mut reading = super::reading(name);
    reading.compute_capability = Some(capability.parse().expect("a capability"));
    (reading.memory_total, reading.memory_free) = (mib.map(Bytes::from_mib), mib.map(Bytes::from_mib));
    reading
}

#[test]
fn the_total_memory_of_the_host_identifies_a_module() {
    // Totals of Linux or CUDA in public logs.
    for (name, capability, mib, id) in [
        ("Orin (nvgpu)", "8.7", 62_841, "jetson-agx-orin-64gb"),
        ("Orin", "8.7", 62_841, "jetson-agx-orin-64gb"),
        ("Orin (nvgpu)", "8.7", 30_697, "jetson-agx-orin-32gb"),
        ("Orin (nvgpu)", "8.7", 15_655, "jetson-orin-nx-16gb"),
        ("Orin (nvgpu)", "8.7", 3_300, "jetson-orin-nano-4gb"),
        ("NVIDIA GB10", "12.1", 122_570, "gb10"),
        ("NVIDIA Thor", "11.0", 125_772, "jetson-agx-thor"),
    ] {
        assert_exact(&reading(name, capability, Some(mib)), id);
    }
}

#[test]
fn a_name_that_several_modules_share_is_never_exact() {
    for (name, mib) in [("Orin (nvgpu)", None), ("Orin", None), ("Orin (nvgpu)", Some(7_620)), ("Orin", Some(7_607))] {
        let (_, differences) = variant(&reading(name, "8.7", mib));
        assert!(matches!(differences[..], [Difference::Ambiguous { .. }]), "{name} {mib:?}: {differences:?}");
    }
}

#[test]
fn a_total_of_no_module_is_that_of_the_next_larger_one() {
    let gib = |gib: u64| Some(gib << 10);
    for (name, capability, mib, id) in [
        ("Orin (nvgpu)", "8.7", gib(40), "jetson-agx-orin-64gb"),
        ("Orin (nvgpu)", "8.7", gib(20), "jetson-agx-orin-32gb"),
        ("Orin", "8.7", gib(2), "jetson-orin-nano-4gb"),
        ("Orin", "8.7", gib(100), "jetson-agx-orin-64gb"),
        ("NVIDIA Thor", "11.0", gib(70), "jetson-agx-thor"),
        ("NVIDIA Thor", "11.0", gib(90), "jetson-agx-thor"),
        ("NVIDIA Thor", "11.0", gib(40), "jetson-t4000"),
    ] {
        let mut reading = reading(name, capability, mib);
        for sm_count in [None, Some(8)] {
            reading.sm_count = sm_count;
            let (profile, differences) = variant(&reading);
            assert_eq!(profile.id.as_str(), id, "{name} {mib:?}");
            assert!(matches!(differences[0], Difference::Memory { .. }), "{name} {mib:?}: {differences:?}");
        }
    }
}

#[test]
fn a_name_alone_gives_no_memory_of_a_data_sheet() {
    for name in ["NVIDIA GB10", "NVIDIA Thor", "Orin (nvgpu)"] {
        let mut reading = super::reading(name);
        assert_eq!(DeviceFacts::from_reading(&reading, shipped(&reading).profile(), None), None, "{name}");
        (reading.memory_total, reading.memory_free) = (Some(Bytes::from_mib(62_841)), Some(Bytes::from_mib(20_000)));
        let facts = facts(&reading);
        assert_eq!((facts.memory_kind, facts.memory_available), (MemoryKind::Unified, Bytes::from_mib(20_000)));
    }
}

#[test]
fn a_fifth_of_unified_memory_stays_free_unless_more_is_requested() {
    let facts = facts(&reading("NVIDIA GB10", "12.1", Some(122_570)));
    assert_eq!(facts.memory_kind, MemoryKind::Unified);
    let workload = Transformer::new(6, 512, 8192, 256).workload();
    for (requested, share) in [(0.0, 0.2), (0.05, 0.2), (0.3, 0.3)] {
        let goal = Goal { memory_headroom: requested, ..Goal::default() };
        let plan = plan(&facts, &workload, &goal).expect("it fits");
        assert_eq!(plan.memory.headroom, facts.memory_available.scaled(share));
        assert!(plan.to_string().contains("note: unified memory: "), "{plan}");
    }
}

#[test]
fn a_board_with_the_capability_of_a_module_has_its_own_memory() {
    for name in ["NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 3099"] {
        for capability in ["8.7", "12.1"] {
            let reading = reading(name, capability, Some(24_000));
            assert_eq!(
                (facts(&reading).memory_kind, reading.has_unified_memory()),
                (MemoryKind::Dedicated, false),
                "{name}"
            );
        }
    }
}

#[test]
fn a_reported_sm_count_far_below_that_of_the_profile_counts() {
    let mut reading = reading("NVIDIA GeForce RTX 4090", "8.9", Some(24_564));
    reading.sm_count = Some(40);
    let whole = DeviceFacts::nominal(shipped(&reading).profile().expect("it has the name"));
    let facts = facts(&reading);
    let share = facts.fp32_tflops.zip(whole.fp32_tflops).map(|(part, whole)| part / whole);
    assert!(facts.sm_count == 40 && share.is_some_and(|share| (share - 40.0 / 128.0).abs() < 1e-9), "{share:?}");
}
