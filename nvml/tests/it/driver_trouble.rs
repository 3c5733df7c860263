//! Errors of an unusable driver, or of one unusable GPU.

use std::path::Path;

use fake_nvml::SCENARIO_VARIABLE;
use gpu_tuned_nvml::{DriverError, LIBRARY_VARIABLE, read};

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
