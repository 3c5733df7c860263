//! Readings of GPUs without slices.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{GpuReading, Virtualization};

use super::reading;

fn only_gpu(scenario: &str) -> GpuReading {
    let mut found = reading(scenario);
    assert_eq!((found.trouble.len(), found.gpus.len()), (0, 1), "{scenario}");
    found.gpus.remove(0)
}

#[test]
fn identity_is_read() {
    // Names, PCI ids, capabilities and multiprocessors as the data sheet table has them.
    for (scenario, name, pci_id, capability, sm_count) in [
        ("rtx4090", "NVIDIA GeForce RTX 4090", "10de:2684", "8.9", 128),
        ("rtx4090-48gb", "NVIDIA GeForce RTX 4090", "10de:2684", "8.9", 128),
        ("rtx4090-d", "NVIDIA GeForce RTX 4090 D", "10de:2685", "8.9", 114),
        ("rtx4090-laptop", "NVIDIA GeForce RTX 4090 Laptop GPU", "10de:2717", "8.9", 76),
        ("old-driver-memory-v1", "NVIDIA GeForce RTX 3090", "10de:2204", "8.6", 82),
        ("h200", "NVIDIA H200", "10de:2335", "9.0", 132),
    ] {
        let gpu = only_gpu(scenario);
        assert_eq!(gpu.name.as_deref(), Some(name), "{scenario}");
        assert_eq!(gpu.pci_id.map(|id| id.to_string()).as_deref(), Some(pci_id), "{scenario}");
        assert_eq!(gpu.compute_capability.map(|it| it.to_string()).as_deref(), Some(capability), "{scenario}");
        assert_eq!(gpu.sm_count, Some(sm_count), "{scenario}");
        assert_eq!((gpu.mig, gpu.virtualization), (None, None), "{scenario}");
    }
}

#[test]
fn memory_is_read_in_bytes() {
    for (scenario, total, reserved, free) in [
        ("rtx4090", 24564, Some(450), 24110),
        ("rtx4090-48gb", 49140, Some(600), 48536),
        ("neighbour", 24564, Some(450), 9372),
        ("vgpu", 12288, Some(830), 11457),
        // Drivers before memory v2 do not report their reservation.
        ("old-driver-memory-v1", 24576, None, 24257),
    ] {
        let gpu = only_gpu(scenario);
        assert_eq!(gpu.memory_total, Some(Bytes(total << 20)), "{scenario}");
        assert_eq!(gpu.memory_reserved, reserved.map(|reserved: u64| Bytes(reserved << 20)), "{scenario}");
        assert_eq!(gpu.memory_free, Some(Bytes(free << 20)), "{scenario}");
    }
}

#[test]
fn the_board_is_read() {
    let gpu = only_gpu("rtx4090");
    assert_eq!(gpu.uuid.as_deref(), Some("GPU-40900000-0000-4000-8000-000000000001"));
    assert_eq!(gpu.pci_address.map(|address| address.to_string()).as_deref(), Some("00000000:01:00.0"));
    assert_eq!(gpu.pci_subsystem_id.map(|id| id.to_string()).as_deref(), Some("10de:16f4"));
    assert_eq!(gpu.memory_bus_bits, Some(384));
    assert_eq!((gpu.max_memory_clock_mhz, gpu.max_sm_clock_mhz), (Some(10501), Some(3105)));
}

#[test]
fn the_power_limit_in_force_is_read_where_the_settable_one_is_hidden() {
    let laptop = only_gpu("rtx4090-laptop");
    assert_eq!((laptop.power_limit_mw, laptop.default_power_limit_mw), (Some(120_000), Some(120_000)));
}

#[test]
fn the_drivers_version_is_read() {
    assert_eq!(reading("rtx4090").driver_version.as_deref(), Some("570.86.15"));
}

#[test]
fn other_processes_are_counted_without_this_one() {
    for (scenario, others) in [("rtx4090", Some(0)), ("neighbour", Some(1)), ("old-driver-memory-v1", None)] {
        assert_eq!(only_gpu(scenario).other_processes, others, "{scenario}");
    }
}

#[test]
fn a_vgpu_is_recognised_and_lacks_some_figures() {
    let gpu = only_gpu("vgpu");
    assert_eq!(gpu.virtualization, Some(Virtualization::Vgpu));
    assert_eq!(gpu.name.as_deref(), Some("NVIDIA A40-12Q"));
    assert_eq!((gpu.memory_bus_bits, gpu.power_limit_mw, gpu.max_sm_clock_mhz), (None, None, None));
}

#[test]
fn gpus_keep_nvmls_order() {
    let gpus = reading("two-gpus").gpus;
    let names: Vec<_> = gpus.iter().map(|gpu| (gpu.index, gpu.name.as_deref())).collect();
    assert_eq!(names, [(0, Some("NVIDIA GeForce RTX 3090")), (1, Some("NVIDIA GeForce RTX 4090"))]);
}

#[test]
fn a_name_that_is_no_utf8_is_left_out_alone() {
    let mut garbage = only_gpu("garbage-name");
    assert_eq!(garbage.name, None);
    let good = only_gpu("rtx4090");
    (garbage.name, garbage.uuid) = (good.name.clone(), good.uuid.clone());
    assert_eq!(garbage, good);
}

#[test]
fn failing_calls_cost_their_own_field_only() {
    let mut expected = GpuReading::default();
    expected.name = Some("NVIDIA GeForce RTX 4090".to_owned());
    assert_eq!(only_gpu("name-only"), expected);
}

#[test]
fn nonsense_is_left_out() {
    let mut expected = GpuReading::default();
    expected.memory_total = Some(Bytes(24564 << 20));
    expected.other_processes = Some(0);
    assert_eq!(only_gpu("nonsense"), expected);
}
