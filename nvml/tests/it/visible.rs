//! GPUs that a process can use, by the environment.

use gpu_tuned_core::Bytes;
use gpu_tuned_nvml::{CudaEnvironment, VisibleGpus};

use super::{environment, reading};

fn selected(scenario: &str, visible_devices: &str) -> VisibleGpus {
    environment(Some(visible_devices)).select(&reading(scenario))
}

/// Indices of the driver.
fn indices(visible: &VisibleGpus) -> Vec<u32> {
    visible.gpus.iter().map(|gpu| gpu.index).collect()
}

#[test]
fn the_driver_and_cuda_number_gpus_differently() {
    // NVML lists the RTX 3090 first, the RTX 4090 second.
    let by_default = CudaEnvironment::default().select(&reading("two-gpus"));
    assert_eq!(indices(&by_default), [1, 0]);
    assert_eq!((by_default.missing, by_default.notes), (vec![], vec![]));
    let mut by_address = environment(Some("0"));
    by_address.device_order = Some("PCI_BUS_ID".to_owned());
    assert_eq!(indices(&by_address.select(&reading("two-gpus"))), [0]);
}

#[test]
fn a_list_is_read_as_cuda_reads_it() {
    for (scenario, list, expected) in [
        ("two-gpus", "0", &[1][..]),
        ("two-gpus", "1", &[0]),
        ("two-gpus", "1,0", &[0, 1]),
        ("two-gpus", " 1 , 0 ", &[0, 1]),
        ("two-gpus", "+1", &[0]),
        // C's `strtoul` stops at the first other character.
        ("two-gpus", "1gpu,0x", &[0, 1]),
        ("two-gpus", "", &[]),
        ("two-gpus", "-1", &[]),
        ("two-gpus", "0,-1,1", &[1]),
        ("two-gpus", "0,", &[1]),
        ("two-gpus", "NoDevFiles", &[]),
        // Unknown entries end the list.
        ("two-gpus", "0,7,1", &[1]),
        ("two-gpus", "7", &[]),
        ("two-gpus", "99999999999999999999999", &[]),
        // A repeated entry empties it.
        ("two-gpus", "0,0", &[]),
        ("two-gpus", "1,0,1", &[]),
        ("two-gpus", "GPU-30900000-0000-4000-8000-000000000001", &[0]),
        ("two-gpus", "GPU-30900000,GPU-40900002", &[0, 1]),
        ("two-gpus", "GPU-3", &[0]),
        ("two-gpus", "GPU-309,GPU-3090", &[]),
        // Entries of another kind are unknown.
        ("two-gpus", "GPU-3,0", &[0]),
        ("two-gpus", "0,GPU-3", &[1]),
        ("two-gpus", "GPU-5", &[]),
        // Both UUIDs begin so.
        ("unequal-pair", "GPU-40900003", &[]),
        ("unequal-pair", "GPU-40900003-0000-4000-8000-000000000002", &[1]),
        ("unequal-pair", "gpu-40900003-0000-4000-8000-000000000002", &[]),
        ("eight-h100", "5,2,7", &[5, 2, 7]),
        // The lost GPU has no number.
        ("gpu-lost", "0", &[1]),
    ] {
        assert_eq!(indices(&selected(scenario, list)), expected, "{scenario}, {list:?}");
    }
}

#[test]
fn a_process_can_use_one_mig_slice() {
    let uuid = |visible: &VisibleGpus| {
        let [slice] = &visible.gpus[..] else { panic!("{visible:?}") };
        slice.uuid.clone().expect("slices have UUIDs")
    };
    let slices = ["MIG-10000000-0000-5000-8000-000000000001", "MIG-10000000-0000-5000-8000-000000000002"];
    for (list, expected) in [
        (slices[0], 0),
        (slices[1], 1),
        ("MIG-10000000-0000-5000-8000-000000000002,MIG-10000000-0000-5000-8000-000000000001", 1),
        // Indices and UUIDs of the whole GPU stand for its first slice.
        ("0", 0),
        ("GPU-1ad0039d", 0),
        ("MIG-GPU-1ad0039d-0000-4000-8000-00000000002d/2/0", 1),
    ] {
        assert_eq!(uuid(&selected("h100-mig", list)), slices[expected], "{list}");
    }
    assert_eq!(selected("h100-mig", "MIG-2").gpus, []);
    assert_eq!(selected("h100-mig", "MIG-1").gpus, [], "both begin so");
    let all = CudaEnvironment::default().select(&reading("h100-mig"));
    assert_eq!(uuid(&all), slices[0]);
    let note = "a process can use one MIG slice and no other GPU: NVIDIA H100 80GB HBM3 MIG 1g.10gb \
                (MIG-10000000-0000-5000-8000-000000000001); name another slice in CUDA_VISIBLE_DEVICES";
    assert_eq!((all.missing, all.notes), (vec![], vec![note.to_owned()]));
    // No whole GPU is beside a slice, but a list may name it alone.
    let beside = "h200-mig-beside-whole";
    assert_eq!(uuid(&CudaEnvironment::default().select(&reading(beside))), "MIG-42000000-0000-5000-8000-000000000001");
    assert_eq!(uuid(&selected(beside, "GPU-1ad003af")), "GPU-1ad003af-0000-4000-8000-00000000002f");
}

#[test]
fn a_gpu_that_the_process_should_have_is_missed_with_the_reason() {
    for (scenario, list, missing) in [
        (
            "two-gpus",
            Some("0,7,1"),
            "CUDA_VISIBLE_DEVICES: no usable GPU is `7`, and CUDA ignores the rest of the list",
        ),
        ("unequal-pair", Some("GPU-4"), "CUDA_VISIBLE_DEVICES: several GPUs are `GPU-4`, and CUDA ignores the rest"),
        ("two-gpus", Some("0,0"), "CUDA_VISIBLE_DEVICES names a GPU twice (`0`), and CUDA shows no GPU then"),
        ("gpu-lost", Some("0,1"), "CUDA_VISIBLE_DEVICES: no usable GPU is `1`"),
        ("gpu-lost", None, "GPU 0: the GPU is lost"),
        ("gpu-denied", None, "GPU 0: no access to the GPU"),
    ] {
        let environment = environment(list);
        let visible = environment.select(&reading(scenario));
        let [found] = &visible.missing[..] else { panic!("{scenario}, {list:?}: {visible:?}") };
        assert!(found.starts_with(missing), "{scenario}, {list:?}: {found}");
    }
}

#[test]
fn every_lost_entry_of_a_list_counts() {
    for (scenario, list, count) in [
        ("eight-h100", "0,9,1,2", 3),
        ("eight-h100", "0,9,1,-1,2", 2),
        ("eight-h100", "0,1,0", 2),
        ("eight-h100", "0,1", 0),
        ("h100-mig", "MIG-1,MIG-2", 1),
        ("gpu-lost", "0", 0),
    ] {
        let visible = selected(scenario, list);
        assert_eq!(visible.missing_count, count, "{scenario}, {list:?}: {visible:?}");
    }
    assert_eq!(CudaEnvironment::default().select(&reading("gpu-lost")).missing_count, 1);
}

#[test]
fn a_gpu_that_is_left_out_on_purpose_is_not_missed() {
    for (scenario, list) in [("two-gpus", "1"), ("two-gpus", "0,-1"), ("eight-h100", "5")] {
        let visible = selected(scenario, list);
        assert_eq!((visible.missing, visible.notes), (vec![], vec![]), "{scenario}, {list:?}");
    }
    let lost = selected("gpu-lost", "0");
    assert_eq!((lost.missing, lost.notes.len()), (vec![], 1));
    for list in ["", "-1"] {
        let visible = selected("two-gpus", list);
        let note = format!(
            "CUDA shows none of the driver's GPUs (NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 4090): \
             CUDA_VISIBLE_DEVICES is `{list}`"
        );
        assert_eq!((visible.gpus, visible.missing, visible.notes), (vec![], vec![], vec![note]));
    }
}

#[test]
fn a_container_without_gpus_is_explained() {
    for (devices, is_explained) in [("none", true), ("void", true), ("", true), ("all", false), ("0,1", false)] {
        let mut environment = CudaEnvironment::default();
        environment.container_devices = Some(devices.to_owned());
        let notes = environment.select(&reading("no-gpu")).notes;
        assert_eq!(notes.len(), usize::from(is_explained), "{devices}: {notes:?}");
        // The container runtime has applied the list: what is there may be used.
        assert_eq!(environment.select(&reading("two-gpus")).gpus.len(), 2, "{devices}");
    }
}

#[test]
fn memory_limits_count_gpus_as_the_process_does() {
    let mut environment = environment(Some("1"));
    environment.mps_memory_limit = Some("0=4G".to_owned());
    let mut visible = environment.select(&reading("two-gpus"));
    let notes = environment.limit(&mut visible.gpus);
    assert_eq!((visible.gpus[0].index, visible.gpus[0].memory_free), (0, Some(Bytes(4 << 30))));
    assert_eq!(notes, ["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT limits this process to 4.0 GiB of GPU 0"]);
}
