//! Lock after an interrupted measurement.

use std::{env, fs};

use burn::nn::LinearConfig;
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::measure::Subject;

use super::{Folder, MEASURE, WIDTH, mean, session};

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
        mean,
    );
    session().measure_if_asked("one-layer", &subject).expect("it is measured");
}

/// The modes that were measured on the CPU.
fn modes(folder: &Folder) -> Vec<String> {
    folder.on_cpu().mode.keys().map(ToString::to_string).collect()
}

const OLD: &str = "\"0.0.";

#[test]
fn a_mode_that_was_measured_is_kept_whatever_becomes_of_the_next() {
    let folder = Folder::new();
    assert!(!folder.run(program, &[MEASURE]).is_ok, "it should fail");
    assert_eq!(modes(&folder), ["f32"]);
    // The other mode comes besides.
    assert!(folder.run(super::program, &[MEASURE]).is_ok);
    assert_eq!(modes(&folder), ["f32", "f32-checkpointed"]);
}

#[test]
fn what_no_longer_holds_goes_and_is_told_unless_it_is_measured_anew() {
    let folder = Folder::new();
    assert!(folder.run(super::program, &[MEASURE]).is_ok);
    measures_anew(super::program, &folder, &["f32", "f32-checkpointed"]);
    measures_anew(program, &folder, &["f32"]);
}

/// Ages the lock, as if an older release of Burn had measured all of it, and measures; `left` modes are kept, and standard
/// error names each of the others.
fn measures_anew(program: impl Fn(), folder: &Folder, left: &[&str]) {
    let text = fs::read_to_string(folder.lock()).expect("a lock");
    let old = text.replace("\nburn = \"", &format!("\nburn = {OLD}"));
    assert_ne!(old, text);
    fs::write(folder.lock(), old).expect("it can be written");
    let stderr = folder.run(program, &[MEASURE]).stderr;
    assert_eq!(modes(folder), left, "{stderr}");
    let dropped: Vec<_> = stderr.lines().filter(|line| line.starts_with("  dropped ")).collect();
    let gone = ".mode.f32-checkpointed: measured on another device, or with other releases";
    assert_eq!(dropped.len(), 2 - left.len(), "{stderr}");
    assert!(dropped.iter().all(|line| line.contains(gone)), "{stderr}");
    assert!(!fs::read_to_string(folder.lock()).expect("a lock").contains(OLD));
}
