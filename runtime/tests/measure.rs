//! A program that measures itself, on the CPU.

#![cfg(feature = "burn")]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::lock::LockFile;
use gpu_tuned::measure::{MeasureError, Step, Subject, timed};
use gpu_tuned::{Options, Session, gpu_tuned};

const WIDTH: usize = 512;

#[gpu_tuned(mlp(widths = [512, 512]), global_batch = 7, target = "generic")]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

fn subject() -> Subject<'static, Linear, Tensor<2>> {
    Subject::new(
        |device| LinearConfig::new(WIDTH, WIDTH).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::ones([samples, WIDTH], device),
        |model: &Linear, batch| model.forward(batch).mean(),
    )
    .host_batch(|samples| vec![1.0_f32; samples * WIDTH])
}

fn session() -> Session<Config> {
    Options::default().cpu().start(Config::default()).expect("there is a CPU")
}

/// Not a test of its own: what the others run.
#[test]
#[ignore = "a program for the tests below"]
fn program() {
    match session().measure_if_asked("one-layer", &subject()) {
        Ok(()) => println!("went on"),
        Err(error) => panic!("{error}"),
    }
}

fn run(lock: &Path, variables: &[(&str, &str)]) -> Output {
    let mut program = Command::new(std::env::current_exe().expect("this test"));
    program.args(["--ignored", "--exact", "program", "--nocapture"]).env("GPU_TUNED_LOCK", lock);
    program.envs(variables.iter().copied()).output().expect("it runs")
}

#[test]
fn a_program_that_is_asked_measures_itself_and_ends() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    let output = run(&lock, &[("GPU_TUNED_MEASURE", "1"), ("GPU_TUNED_MEASURE_JSON", "1")]);
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && !stdout.contains("went on"), "{stdout}{stderr}");

    let read = LockFile::new(&lock).read().expect("a lock").expect("it was written");
    let measured = &read.workload["one-layer"].measured;
    assert_eq!(measured.parameters, (WIDTH * WIDTH + WIDTH) as u64);
    assert!(measured.host_ms_per_sample.is_some_and(|ms| ms > 0.0));
    let on = measured.on.values().find(|on| on.device.starts_with("CPU")).expect("the CPU");
    for mode in ["f32", "f32-checkpointed"] {
        let batches = &on.mode[&mode.parse().expect("a mode")].batch;
        // Up to the global batch of 7.
        assert_eq!(batches.keys().copied().collect::<Vec<_>>(), [1, 4]);
        for point in batches.values() {
            assert!(point.micro_step_ms.is_some_and(|ms| ms > 0.0) && point.optimizer_ms.is_some_and(|ms| ms > 0.0));
            assert_eq!(point.reserved_bytes.is_some(), cfg!(feature = "counting-allocator"));
        }
    }
    let line = stdout.lines().find(|line| line.starts_with('{')).expect("a line of JSON");
    let json: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(json["measured"]["shape"], measured.shape.as_str());
    assert_eq!(stderr.lines().filter(|line| line.contains("micro-step")).count(), 4, "{stderr}");
}

#[test]
fn a_program_that_is_not_asked_goes_on() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    let output = run(&lock, &[("GPU_TUNED_MEASURE", "0")]);
    assert!(output.status.success() && String::from_utf8_lossy(&output.stdout).contains("went on"));
    assert!(!lock.exists());
}

#[test]
fn a_damaged_lock_is_reported_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    fs::write(&lock, "format = 1\n[workload.one-layer\n").expect("a file");
    let output = run(&lock, &[("GPU_TUNED_MEASURE", "1")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("gpu-tuned.lock:2:"), "{stderr}");
    assert!(!stderr.contains("micro-step"), "{stderr}");
    assert_eq!(fs::read_to_string(&lock).expect("the file"), "format = 1\n[workload.one-layer\n");
}

#[test]
fn a_panic_of_the_model_is_an_error_that_names_the_step() {
    let broken = Subject::new(
        |device: &Device| LinearConfig::new(WIDTH, WIDTH).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::<2>::ones([samples, WIDTH + 1], device),
        |model: &Linear, batch| model.forward(batch).mean(),
    );
    let step = Step { batch: 3, micro_batches: 1, checkpointing: true };
    let error = timed(&Device::flex(), &broken, step, std::time::Duration::ZERO).expect_err("shapes that do not match");
    assert!(matches!(&error, MeasureError::Step { step: named, .. } if *named == step), "{error}");
    assert!(error.to_string().contains("batch 3, checkpointed"), "{error}");
}
