//! Lock after an interrupted measurement.

use std::path::Path;
use std::{env, fs};

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::lock::LockFile;
use gpu_tuned::measure::Subject;

use super::{WIDTH, run, run_program, session};

/// Whose models cannot be made any more once its measurements of this device are in the lock, and no older ones.
#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let is_measured = || {
        let lock = env::var_os("GPU_TUNED_LOCK").and_then(|lock| fs::read_to_string(lock).ok()).unwrap_or_default();
        lock.contains(".on.cpu-") && !lock.contains(OLD)
    };
    let subject = Subject::new(
        |device: &Device| {
            assert!(!is_measured(), "no more models");
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

/// As if an older release of Burn had measured all of it.
fn grow_old(lock: &Path) {
    let text = fs::read_to_string(lock).expect("a lock");
    let old = text.replace("\nburn = \"", &format!("\nburn = {OLD}"));
    assert_ne!(old, text);
    fs::write(lock, old).expect("it can be written");
}

const OLD: &str = "\"0.0.";
const MEASURE: [(&str, &str); 1] = [("GPU_TUNED_MEASURE", "1")];

#[test]
fn a_mode_that_was_measured_is_kept_whatever_becomes_of_the_next() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    assert!(!run_program(program, &lock, &MEASURE).status.success(), "it should fail");
    assert_eq!(modes(&lock), ["f32"]);
    // The other mode comes besides.
    assert!(run(&lock, &MEASURE).status.success());
    assert_eq!(modes(&lock), ["f32", "f32-checkpointed"]);
}

#[test]
fn what_no_longer_holds_goes_and_is_told_unless_it_is_measured_anew() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    assert!(run(&lock, &MEASURE).status.success());
    measures_anew(super::program, &lock, &["f32", "f32-checkpointed"]);
    measures_anew(program, &lock, &["f32"]);
}

/// Ages the lock and measures; `left` modes are kept, and standard error names each of the others.
fn measures_anew(program: impl Fn(), lock: &Path, left: &[&str]) {
    grow_old(lock);
    let measured = run_program(program, lock, &MEASURE);
    let stderr = String::from_utf8_lossy(&measured.stderr);
    assert_eq!(modes(lock), left, "{stderr}");
    let dropped: Vec<_> = stderr.lines().filter(|line| line.starts_with("  dropped ")).collect();
    let gone = ".mode.f32-checkpointed: measured on another device, or with other releases";
    assert_eq!(dropped.len(), 2 - left.len(), "{stderr}");
    assert!(dropped.iter().all(|line| line.contains(gone)), "{stderr}");
    assert!(!fs::read_to_string(lock).expect("a lock").contains(OLD));
}
