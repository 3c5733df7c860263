//! GPUs that CUDA lists, beside those of NVML.

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{CudaDevice, DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Difference, Match, identify};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_nvml::{CudaError, DriverReading, VisibleGpus};

use super::{environment, reading};

fn confirmed(reading: &DriverReading, devices: &[CudaDevice]) -> VisibleGpus {
    let environment = environment(None);
    environment.confirm(environment.select(reading), &reading.gpus, Ok(devices.to_vec()))
}

fn in_cuda_order(reading: &DriverReading, devices: &[CudaDevice]) -> Vec<GpuReading> {
    confirmed(reading, devices).gpus
}

/// List of CUDA for these GPUs and this value of `CUDA_VISIBLE_DEVICES`.
fn shown(reading: &DriverReading, visible: Option<&str>) -> Vec<CudaDevice> {
    let gpus = environment(visible).select(reading).gpus;
    gpus.iter().enumerate().map(|(index, gpu)| of_cuda(index, gpu)).collect()
}

fn of_cuda(index: usize, gpu: &GpuReading) -> CudaDevice {
    let mut device = CudaDevice::default();
    device.index = index;
    device.name.clone_from(&gpu.name);
    device.pci_address = gpu.pci_address;
    device.uuid = gpu.uuid.as_deref().and_then(|uuid| uuid.split_once('-')).map(|(_, digits)| digits.to_owned());
    device.compute_capability = gpu.compute_capability;
    device.sm_count = gpu.sm_count;
    // CUDA's total is NVML's without what the driver keeps for itself.
    device.memory_total = gpu.memory_total.map(|total| total - gpu.memory_reserved.unwrap_or_default());
    device
}

fn uuids(gpus: &[GpuReading]) -> Vec<&str> {
    gpus.iter().map(|gpu| gpu.uuid.as_deref().expect("it was read")).collect()
}

#[test]
fn the_gpus_that_cuda_shows_are_in_its_order_with_figures_of_nvml() {
    let mig = ["MIG-10000000-0000-5000-8000-000000000001", "MIG-10000000-0000-5000-8000-000000000002"];
    for (scenario, visible, expected) in [
        // NVML lists the RTX 3090 first, the RTX 4090 second.
        ("two-gpus", None, &[1, 0][..]),
        ("two-gpus", Some("0"), &[1]),
        ("two-gpus", Some("1"), &[0]),
        ("two-gpus", Some("1,0"), &[0, 1]),
        ("two-gpus", Some("GPU-30900000,GPU-40900002"), &[0, 1]),
        ("two-gpus", Some("0,7,1"), &[1]),
        ("two-gpus", Some(""), &[]),
        // Eight of one name.
        ("eight-h100", Some("5,2,7"), &[5, 2, 7]),
        ("a16-board", None, &[0, 1, 2, 3]),
        // Equal names and addresses: only the UUID distinguishes MIG slices.
        ("h100-mig", Some(mig[1]), &[1]),
        ("h100-mig", Some(mig[0]), &[0]),
    ] {
        let read = reading(scenario);
        let found = in_cuda_order(&read, &shown(&read, visible));
        let expected: Vec<GpuReading> = expected.iter().map(|index: &usize| read.gpus[*index].clone()).collect();
        assert_eq!(uuids(&found), uuids(&expected), "{scenario}, {visible:?}");
        for (found, expected) in found.iter().zip(&expected) {
            assert_eq!(found.memory_free, expected.memory_free, "{scenario}, {visible:?}");
            assert_eq!((found.index, found.other_processes), (expected.index, expected.other_processes));
        }
    }
}

#[test]
fn without_uuids_and_addresses_equal_gpus_are_not_guessed() {
    let read = reading("two-equal");
    let mut devices = shown(&read, Some("1"));
    assert_eq!(in_cuda_order(&read, &devices)[0].memory_free, read.gpus[1].memory_free);
    (devices[0].uuid, devices[0].pci_address) = (None, None);
    let found = in_cuda_order(&read, &devices);
    // Free memory of one slice does not apply to the other.
    assert_eq!((found.len(), found[0].memory_free, found[0].memory_total), (1, None, devices[0].memory_total));
}

#[test]
fn slices_that_an_older_driver_names_by_their_gpu_are_distinguished_by_cuda_alone() {
    let mut read = reading("h100-mig");
    let devices = shown(&read, Some("MIG-10000000-0000-5000-8000-000000000002"));
    // Drivers before release 470 spell a slice as GPU, GPU instance and compute instance.
    for (slice, gpu_instance) in read.gpus.iter_mut().zip([9, 2]) {
        slice.uuid = Some(format!("MIG-GPU-1ad00000-0000-4000-8000-000000000001/{gpu_instance}/0"));
    }
    let found = in_cuda_order(&read, &devices);
    assert_eq!((found[0].sm_count, found[0].memory_free), (Some(60), None));
    let Match::Variant { profile, differences } = identify(&found[0], &ProfileTable::default()) else {
        panic!("{found:?}")
    };
    assert_eq!(profile.id.as_str(), "h100-sxm5-80gb");
    assert!(differences.contains(&Difference::MigSlice));
}

#[test]
fn a_gpu_that_only_cuda_lists_has_its_figures() {
    let devices = shown(&reading("rtx4090"), None);
    // WSL2 and Jetson without the management library.
    let found = in_cuda_order(&DriverReading::default(), &devices);
    assert_eq!(uuids(&found), ["40900000-0000-4000-8000-000000000001"]);
    assert_eq!((found[0].sm_count, found[0].memory_free), (Some(128), None));
    assert!(matches!(identify(&found[0], &ProfileTable::default()), Match::Exact { .. }));
}

#[test]
fn figures_that_nvml_does_not_report_are_those_of_cuda() {
    let read = reading("rtx3080-name-only");
    let mut device = of_cuda(0, &read.gpus[0]);
    (device.sm_count, device.memory_total) = (Some(60), Some(Bytes::from_mib(7620)));
    let found = in_cuda_order(&read, &[device]);
    let found_as = identify(&found[0], &ProfileTable::default());
    assert!(matches!(&found_as, Match::Variant { .. }), "{found_as:?}");
    let facts = DeviceFacts::from_reading(&found[0], found_as.profile(), None).expect("CUDA reports the memory");
    assert_eq!((facts.memory_total, facts.sm_count), (Bytes::from_mib(7620), 60));
}

#[test]
fn no_more_memory_is_free_than_cuda_shows_at_all() {
    let read = reading("eight-h100");
    let mut devices = shown(&read, Some("0"));
    devices[0].memory_total = Some(Bytes::from_mib(8192));
    assert_eq!(in_cuda_order(&read, &devices)[0].memory_free, Some(Bytes::from_mib(8192)));
}

#[test]
fn gpus_that_cuda_does_not_show_are_missed_with_the_reason() {
    let read = reading("two-gpus");
    for (devices, visible, why) in [
        (Ok(vec![]), Some("0"), "CUDA_VISIBLE_DEVICES is `0`"),
        (Err(CudaError::NoLibrary), Some("0"), "its library (libcuda) is not on this machine"),
        (Ok(vec![]), None, "does a container"),
    ] {
        let environment = environment(visible);
        let confirmed = environment.confirm(environment.select(&read), &read.gpus, devices);
        let [reason] = &confirmed.missing[..] else { panic!("{confirmed:?}") };
        assert!(
            reason.contains("NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 4090") && reason.contains(why),
            "{reason}"
        );
    }
}

#[test]
fn the_prediction_holds_if_cuda_fails() {
    let read = reading("two-gpus");
    let environment = environment(None);
    let predicted = environment.select(&read);
    let failure = CudaError::Call { call: "cuInit", message: "CUDA_ERROR_UNKNOWN (unknown error)".to_owned() };
    let confirmed = environment.confirm(predicted.clone(), &read.gpus, Err(failure));
    assert_eq!((confirmed.gpus, confirmed.missing), (predicted.gpus, vec![]));
    assert_eq!(confirmed.notes, ["the CUDA driver failed at cuInit: CUDA_ERROR_UNKNOWN (unknown error)"]);
}

#[test]
fn gpus_that_cuda_does_not_list_are_missing() {
    let read = reading("eight-h100");
    let mut devices = shown(&read, None);
    assert_eq!(confirmed(&read, &devices).missing, Vec::<String>::new());
    devices.remove(2);
    assert_eq!(confirmed(&read, &devices).missing, ["GPU 2: CUDA does not show it (NVIDIA H100 80GB HBM3)"]);
}

#[test]
fn gpus_that_cuda_shows_are_not_missing_without_the_management_library() {
    let all = shown(&reading("eight-h100"), None);
    let absent = DriverReading::default;
    let fewer = "CUDA shows 1 of the 4 GPUs that this process should have";
    let invalid = "CUDA_VISIBLE_DEVICES: no usable GPU is `9`, and CUDA ignores the rest of the list";
    for (read, visible, shows, count, reason) in [
        (absent(), "0,1", 2, 0, None),
        (absent(), "0,9,1,2", 1, 3, Some(fewer)),
        (absent(), "MIG-1,MIG-2", 1, 0, None),
        (reading("eight-h100"), "1,0", 2, 0, None),
        (reading("eight-h100"), "0,9,1,2", 1, 3, Some(invalid)),
    ] {
        let environment = environment(Some(visible));
        let confirmed = environment.confirm(environment.select(&read), &read.gpus, Ok(all[..shows].to_vec()));
        assert_eq!((confirmed.gpus.len(), confirmed.missing_count), (shows, count), "{visible}");
        assert_eq!(confirmed.missing, Vec::from_iter(reason), "{visible}");
    }
}
