//! Errors of an unusable driver, or of one unusable GPU.

use std::path::Path;

use fake_nvml::{SCENARIO_VARIABLE, play};
use gpu_tuned_nvml::{DriverError, LIBRARY_VARIABLE, Trouble, read};

use super::reading;

#[test]
fn a_driver_that_does_not_start_is_a_typed_error_with_a_remedy() {
    for (scenario, expected) in [
        ("library-mismatch", DriverError::LibraryMismatch),
        ("no-permission", DriverError::NoPermission),
        ("driver-not-loaded", DriverError::DriverNotLoaded),
        ("unknown-at-init", DriverError::UnknownAtInit),
    ] {
        let error = play(scenario, |library| read(Some(library))).expect_err(scenario);
        let message = error.to_string();
        assert_eq!(error, expected, "{scenario}");
        assert!(message.starts_with(char::is_lowercase), "{message}");
        assert!(["reboot", "check", "load", "restart"].iter().any(|verb| message.contains(verb)), "{message}");
    }
}

#[test]
fn a_missing_library_is_named() {
    let path = Path::new("no-such-folder/libnvidia-ml.so.1");
    let Err(DriverError::NoLibrary { tried, .. }) = read(Some(path)) else { panic!("there is no such library") };
    assert_eq!(tried, [path]);
}

#[test]
fn a_file_that_is_no_library_is_not_opened() {
    let text = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let Err(error @ DriverError::NoLibrary { .. }) = read(Some(&text)) else { panic!("a text is no library") };
    assert!(error.to_string().contains("Cargo.toml"), "{error}");
}

#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn another_library_is_not_taken_for_nvml() {
    let result = read(Some(Path::new("libc.so.6")));
    assert!(matches!(result, Err(DriverError::NotNvml { .. })), "{result:?}");
}

#[test]
fn a_driver_without_gpus_gives_an_empty_reading() {
    let found = reading("no-gpu");
    assert_eq!((found.gpus, found.trouble), (vec![], vec![]));
}

#[test]
fn a_gpu_in_trouble_does_not_hide_the_other() {
    for (scenario, what) in [("gpu-lost", Trouble::Lost), ("gpu-denied", Trouble::Denied)] {
        let found = reading(scenario);
        let trouble: Vec<_> = found.trouble.iter().map(|trouble| (trouble.index, &trouble.what)).collect();
        assert_eq!(trouble, [(0, &what)], "{scenario}");
        let gpus: Vec<_> = found.gpus.iter().map(|gpu| (gpu.index, gpu.name.as_deref())).collect();
        assert_eq!(gpus, [(1, Some("NVIDIA GeForce RTX 4090"))], "{scenario}");
    }
}

#[test]
fn absent_gpus_in_the_count_are_queried_once() {
    for scenario in ["count-lies", "count-lies-much"] {
        let found = reading(scenario);
        let trouble: Vec<_> = found.trouble.iter().map(|trouble| trouble.index).collect();
        assert_eq!((found.gpus.len(), trouble), (1, vec![1]), "{scenario}");
    }
}

#[test]
fn a_driver_that_cannot_count_is_a_typed_error() {
    let error = play("count-fails", |library| read(Some(library))).expect_err("counting fails");
    assert!(matches!(&error, DriverError::Other { call, .. } if call == "counting the GPUs"), "{error:?}");
}

#[test]
#[ignore = "started by the test below"]
fn reads_the_library_of_the_environment() {
    own_process::give(read(None).expect("a library that works").gpus[0].name.as_deref().unwrap_or_default());
}

#[test]
fn the_environment_names_the_library() {
    let mut command = own_process::command(reads_the_library_of_the_environment);
    command.env(SCENARIO_VARIABLE, fake_nvml::scenario("h200")).env(LIBRARY_VARIABLE, fake_nvml::library());
    assert_eq!(own_process::result(&mut command), "NVIDIA H200");
}
