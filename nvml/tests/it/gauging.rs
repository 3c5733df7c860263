//! Repeated readings of one GPU.

use std::path::Path;

use fake_nvml::{Code, Scenario, play, play_file, scenario};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_nvml::{DriverError, Gauge, GaugeError, Load, Trouble, read};

/// Memory used and in all in MiB, and utilisation in percent.
fn figures(load: Load) -> (Option<u64>, Option<u64>, Option<u32>) {
    let mib = |bytes: Option<Bytes>| bytes.map(|bytes| bytes.0 >> 20);
    (mib(load.memory_used), mib(load.memory_total), load.utilisation_percent)
}

fn look(library: &Path, gpu: &GpuReading) -> Result<Load, GaugeError> {
    Ok(Gauge::open(Some(library), gpu)?.read()?)
}

/// Reads a GPU of a scenario, found by a reading that `forget` has reduced. `position` is NVML's order.
fn seen(name: &str, position: usize, forget: impl FnOnce(&mut GpuReading)) -> Result<Load, GaugeError> {
    play(name, |library| {
        let mut gpu = read(Some(library)).expect("a driver").gpus.swap_remove(position);
        forget(&mut gpu);
        look(library, &gpu)
    })
}

#[test]
fn a_gpu_is_found_by_any_of_its_identifiers() {
    let expected =
        [(Some(24576 - 315 - 24257), Some(24576), Some(3)), (Some(24564 - 450 - 24110), Some(24564), Some(97))];
    let all: [fn(&mut GpuReading); 4] = [
        |_| {},
        |gpu| gpu.uuid = None,
        |gpu| gpu.pci_address = None,
        // As CUDA spells it, with an index of CUDA's.
        |gpu| (gpu.uuid, gpu.index) = (gpu.uuid.as_deref().map(|uuid| uuid.replace("GPU-", "")), 1 - gpu.index),
    ];
    for (position, expected) in expected.into_iter().enumerate() {
        for (case, forget) in all.into_iter().enumerate() {
            assert_eq!(
                figures(seen("two-gpus", position, forget).expect("it is there")),
                expected,
                "{position}, {case}"
            );
        }
    }
}

#[test]
fn a_gpu_without_identifiers_matches_only_if_it_is_the_only_one() {
    let nothing: fn(&mut GpuReading) = |gpu| (gpu.uuid, gpu.pci_address) = (None, None);
    let error = seen("two-gpus", 1, nothing).expect_err("it could be either");
    assert!(matches!(&error, GaugeError::NoSuchGpu { name } if name == "NVIDIA GeForce RTX 4090"), "{error}");
    assert_eq!(figures(seen("h200", 0, nothing).expect("it is the only one")).1, Some(143_771));
    let elsewhere = seen("h200", 0, |gpu| (gpu.uuid, gpu.pci_address) = (None, "0000:01:00.0".parse().ok()));
    assert!(matches!(elsewhere, Err(GaugeError::NoSuchGpu { .. })), "{elsewhere:?}");
}

#[test]
fn a_slice_shows_its_own_memory_and_no_utilisation() {
    for (position, expected) in [(0, (16384 - 16371, 16384)), (1, (143_771 - 1123 - 142_644, 143_771))] {
        let (used, total, utilisation) = figures(seen("h200-mig-beside-whole", position, |_| {}).expect("it is there"));
        assert_eq!((used, total, utilisation), (Some(expected.0), Some(expected.1), None), "{position}");
    }
    // The two slices of one GPU share its address.
    for (position, total) in [(0, 9728), (1, 40448)] {
        let by_number = seen("a100-mig-slice", position, |gpu| gpu.uuid = None).expect("it has a number");
        assert_eq!(figures(by_number).1, Some(total), "{position}");
    }
}

#[test]
#[cfg(target_os = "linux")]
fn a_gpu_that_only_cuda_calls_integrated_shows_the_hosts_memory() {
    let own = seen("rtx4090", 0, |_| {}).expect("it is there");
    let shared = seen("rtx4090", 0, |gpu| gpu.unified_memory = true).expect("it is there");
    assert_eq!(own.memory_total, Some(Bytes::from_mib(24_564)));
    assert!(shared.memory_total.is_some() && shared.memory_total != own.memory_total, "{shared:?}");
}

#[test]
fn unavailable_figures_are_left_out() {
    assert_eq!(seen("name-only", 0, |_| {}).expect("it is there"), Load::default());
    let old = seen("old-driver-memory-v1", 0, |_| {}).expect("it is there");
    assert_eq!(figures(old), (Some(24576 - 24257), Some(24576), None));
}

#[test]
fn a_lost_gpu_and_a_missing_library_are_errors() {
    let mut machine = Scenario::load(&scenario("two-gpus")).expect("a scenario");
    machine.gpu[1].fails.insert(fake_nvml::Call::Utilisation, Code::GpuIsLost);
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("lost.toml");
    machine.save(&file).expect("it is written");
    let lost = play_file(&file, |library| {
        let gpu = read(Some(library)).expect("a driver").gpus.swap_remove(1);
        look(library, &gpu)
    });
    assert!(matches!(lost, Err(GaugeError::Trouble(Trouble::Lost))), "{lost:?}");
    let missing = look(&folder.path().join("libnvidia-ml.so.1"), &GpuReading::default());
    assert!(matches!(missing, Err(GaugeError::Driver(DriverError::NoLibrary { .. }))), "{missing:?}");
}

#[test]
fn a_driver_that_hangs_is_an_error_and_is_read_again() {
    play("watch/hangs", |library| {
        let gpu = read(Some(library)).expect("a driver").gpus.swap_remove(0);
        let mut gauge = Gauge::open(Some(library), &gpu).expect("it is there");
        let silent = (0..3).find_map(|_| gauge.read().err());
        assert_eq!(silent, Some(Trouble::Silent));
        assert_eq!(gauge.read().expect("it answers again").utilisation_percent, Some(0));
    });
}
