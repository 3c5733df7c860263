//! What is in the lock when a measurement is cut short.

use std::path::Path;
use std::{env, fs, process};

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::lock::LockFile;
use gpu_tuned::measure::Subject;

use super::{WIDTH, run, run_program, session};

/// Which is gone at its first step after something was written.
#[test]
#[ignore = "a program for the test below"]
fn program() {
    let subject = Subject::new(
        |device: &Device| {
            if env::var_os("GPU_TUNED_LOCK").is_some_and(|lock| Path::new(&lock).exists()) {
                process::abort();
            }
            LinearConfig::new(WIDTH, WIDTH).init(device)
        },
        || AdamWConfig::new().init(),
        |samples, device| Tensor::<2>::ones([samples, WIDTH], device),
        |model: &Linear, batch| model.forward(batch).mean(),
    );
    session().measure_if_asked("one-layer", &subject).expect("it is measured");
}

/// The modes that were measured on the CPU.
fn modes(lock: &Path) -> Vec<String> {
    let mut read = LockFile::new(lock).read().expect("a lock").expect("it was written");
    let on = read.workload.remove("one-layer").expect("the workload").measured.on;
    let (_, cpu) = on.into_iter().find(|(_, on)| on.device.starts_with("CPU")).expect("the CPU");
    cpu.mode.keys().map(ToString::to_string).collect()
}

#[test]
fn a_mode_that_was_measured_is_kept_whatever_becomes_of_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    let measure = [("GPU_TUNED_MEASURE", "1")];
    assert!(!run_program("kept::program", &lock, &measure).status.success(), "it should be gone");
    assert_eq!(modes(&lock), ["f32"]);

    // The other mode comes besides.
    assert!(run(&lock, &measure).status.success());
    assert_eq!(modes(&lock), ["f32", "f32-checkpointed"]);

    // Of another release: nothing of that may stay, and nothing that is measured anew is missed.
    let text = fs::read_to_string(&lock).expect("a lock");
    let old = text.replace("\nburn = \"", "\nburn = \"0.0.");
    assert_ne!(old, text);
    fs::write(&lock, old).expect("it can be written");
    let again = run(&lock, &measure);
    let stderr = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.success() && !stderr.contains("dropped"), "{stderr}");
    assert_eq!(modes(&lock), ["f32", "f32-checkpointed"]);
    assert!(!fs::read_to_string(&lock).expect("a lock").contains("\nburn = \"0.0."));
}
