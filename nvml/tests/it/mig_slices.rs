//! Readings of GPUs with MIG enabled.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::MigSlice;
use gpu_tuned_nvml::Trouble;

use super::reading;

#[test]
fn slices_replace_their_gpu() {
    let gpus = reading("a100-mig-slice").gpus;
    let figures: Vec<_> =
        gpus.iter().map(|gpu| (gpu.name.as_deref(), gpu.mig, gpu.sm_count, gpu.memory_free)).collect();
    let slice = |gpu_instance| Some(MigSlice { gpu_instance, compute_instance: 0 });
    assert_eq!(
        figures,
        [
            (Some("NVIDIA A100 80GB PCIe MIG 1g.10gb"), slice(9), Some(14), Some(Bytes(9715 << 20))),
            (Some("NVIDIA A100 80GB PCIe MIG 3g.40gb"), slice(2), Some(42), Some(Bytes(40411 << 20))),
        ]
    );
}

#[test]
fn a_slice_has_the_identity_and_power_limit_of_its_gpu_and_not_the_memory() {
    for slice in reading("a100-mig-slice").gpus {
        assert_eq!((slice.memory_bus_bits, slice.power_limit_mw), (None, Some(300_000)));
        assert!(slice.memory_total < Some(Bytes::from_mib(81920)));
        assert_eq!(slice.pci_id.map(|id| id.to_string()).as_deref(), Some("10de:20b5"));
        assert_eq!(slice.pci_address.map(|address| address.to_string()).as_deref(), Some("00000000:41:00.0"));
        assert_eq!(slice.compute_capability.map(|it| it.to_string()).as_deref(), Some("8.0"));
        assert!(slice.uuid.is_some_and(|uuid| uuid.starts_with("MIG-")));
    }
}

#[test]
fn processes_are_counted_per_slice() {
    let counts: Vec<_> = reading("a100-mig-slice").gpus.iter().map(|slice| slice.other_processes).collect();
    assert_eq!(counts, [Some(0), Some(1)]);
}

#[test]
fn mig_without_slices_is_trouble() {
    let found = reading("mig-without-slices");
    assert_eq!((found.gpus, &found.trouble[0].what), (vec![], &Trouble::NoMigSlice));
}
