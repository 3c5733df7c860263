//! A program that measures itself, on the CPU.

#[cfg(feature = "train")]
mod burns_loop;
mod kept;
#[cfg(feature = "counting-allocator")]
mod replay;

use std::fs;
use std::path::Path;
use std::process::Output;

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::lock::{LockFile, LockedWorkload};
use gpu_tuned::measure::{MeasureError, Step, Subject, timed};
use gpu_tuned::{Options, Session, gpu_tuned};
use gpu_tuned_core::measured::{Measured, Mode};

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

/// Whose steps are others at every micro-batch: it multiplies once for each sample.
#[test]
#[ignore = "a program for the tests below"]
fn program_that_cannot_be_replayed() {
    let subject = Subject::new(
        |device: &Device| LinearConfig::new(WIDTH, WIDTH).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::<2>::ones([samples, WIDTH], device),
        |model: &Linear, batch| {
            let samples = batch.dims()[0];
            let product = (0..samples).fold(model.weight.val(), |product, _| product.matmul(model.weight.val()));
            product.mean() + model.forward(batch).mean()
        },
    );
    session().measure_if_asked("one-layer", &subject).expect("it is measured");
}

/// Program that does not call `measure_if_asked`: it trains.
#[test]
#[ignore = "a program for the tests below"]
fn program_that_only_trains() {
    let session = session();
    let model = LinearConfig::new(WIDTH, WIDTH).init(&session.device());
    let mut trainer = session.trainer(model, AdamWConfig::new().init()).expect("a trainer");
    let batch = Tensor::<2>::ones([7, WIDTH], &Device::flex());
    let step = trainer.step(1e-3, batch, |model: &Linear, batch| model.forward(batch).mean()).expect("a step");
    println!("went on, {} samples", step.samples);
}

fn run(lock: &Path, variables: &[(&str, &str)]) -> Output {
    run_program(program, lock, variables)
}

fn run_program(program: impl Fn(), lock: &Path, variables: &[(&str, &str)]) -> Output {
    let mut command = own_process::command(program);
    command.env("GPU_TUNED_LOCK", lock).envs(variables.iter().copied()).output().expect("it runs")
}

/// The workload that a program measured, and the program's standard error.
fn measured_by(program: impl Fn()) -> (LockedWorkload, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    let output = run_program(program, &lock, &[("GPU_TUNED_MEASURE", "1")]);
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut read = LockFile::new(&lock).read().expect("a lock").unwrap_or_else(|| panic!("nothing written: {stderr}"));
    (read.workload.remove("one-layer").expect("the workload"), stderr)
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
    let mut tries = 0;
    for mode in ["f32", "f32-checkpointed"] {
        let batches = &on.mode[&mode.parse().expect("a mode")].batch;
        // Up to the global batch of 7; a busy machine has no time for the larger ones.
        let sizes: Vec<_> = batches.keys().copied().collect();
        assert!(!sizes.is_empty() && [1, 2, 4, 7].starts_with(&sizes), "{sizes:?}");
        tries += sizes.len();
        for point in batches.values() {
            assert!(point.micro_step_ms.is_some_and(|ms| ms > 0.0) && point.optimizer_ms.is_some_and(|ms| ms > 0.0));
            assert_eq!(point.reserved_bytes.is_some(), cfg!(feature = "counting-allocator"));
        }
    }
    // The test harness writes the test's name before it.
    let line = stdout.lines().find_map(|line| line.find("{\"").map(|at| &line[at..])).expect("a line of JSON");
    let json: serde_json::Value = serde_json::from_str(line).expect("JSON");
    assert_eq!(json["measured"]["shape"], measured.shape.as_str());
    let reported: Vec<_> = stderr.lines().filter(|line| line.contains("micro-step")).collect();
    assert!(reported.len() == tries && reported.iter().all(|line| line.contains(" s of 50 s; f32")), "{stderr}");
}

#[test]
fn a_program_that_only_trains_is_measured_in_place_of_its_first_step() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    let trains = run_program(program_that_only_trains, &lock, &[]);
    assert!(String::from_utf8_lossy(&trains.stdout).contains("went on, 7 samples"), "{trains:?}");
    assert!(!lock.exists());

    let bundle = folder.path().join("bundle");
    let warms = run_program(program_that_only_trains, &lock, &[("GPU_TUNED_WARM", &bundle.to_string_lossy())]);
    let (stdout, stderr) = (String::from_utf8_lossy(&warms.stdout), String::from_utf8_lossy(&warms.stderr));
    assert!(!warms.status.success() && !stdout.contains("went on"), "{stdout}{stderr}");
    assert!(format!("{stdout}{stderr}").contains("Undescribed"), "{stdout}{stderr}");

    let measures = run_program(program_that_only_trains, &lock, &[("GPU_TUNED_MEASURE", "1")]);
    let (stdout, stderr) = (String::from_utf8_lossy(&measures.stdout), String::from_utf8_lossy(&measures.stderr));
    assert!(measures.status.success() && !stdout.contains("went on"), "{stdout}{stderr}");
    let found = LockFile::new(&lock).read().expect("a lock").expect("it was written").workload;
    let (name, found) = found.first_key_value().expect("a workload");
    // Test programs have a hash behind their name.
    assert!(name.starts_with("it-"), "{name}");
    let (stated, _) = measured_by(program);
    assert_eq!((&found.described, &found.goal), (&stated.described, &stated.goal));
    let (found, stated) = (&found.measured, &stated.measured);
    assert_eq!((found.parameters, &found.shape), (stated.parameters, &stated.shape));
    let modes = |measured: &Measured| -> Vec<(Mode, Vec<u64>)> {
        let on = measured.on.values().find(|on| on.device.starts_with("CPU")).expect("the CPU");
        on.mode.iter().map(|(mode, found)| (*mode, found.batch.keys().copied().collect())).collect()
    };
    assert_eq!(modes(found), modes(stated));
}

#[cfg(not(feature = "counting-allocator"))]
#[test]
fn without_the_allocator_that_counts_it_is_said_once_how_to_get_it() {
    for (workload, stderr) in [measured_by(program), measured_by(program_that_cannot_be_replayed)] {
        assert_eq!(workload.measured.on.len(), 1, "{stderr}");
        assert_eq!(stderr.lines().filter(|line| line.contains("counting-allocator")).count(), 1, "{stderr}");
    }
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
fn the_time_of_a_measurement_is_requested_in_seconds() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    let measure = |budget| {
        let output = run(&lock, &[("GPU_TUNED_MEASURE", "1"), ("GPU_TUNED_MEASURE_BUDGET", budget)]);
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    for refused in ["0", "2 min"] {
        let (is_measured, stderr) = measure(refused);
        let message = format!("`GPU_TUNED_MEASURE_BUDGET` is `{refused}`, expected whole seconds from 1 on");
        assert!(!is_measured && stderr.contains(&message) && !lock.exists(), "{stderr}");
    }
    let (is_measured, stderr) = measure("10");
    assert!(is_measured && stderr.contains(" s of 10 s; f32, batch 1: "), "{stderr}");
}

#[test]
fn a_damaged_lock_is_reported_before_anything_is_measured() {
    let folder = tempfile::tempdir().expect("a folder");
    let lock = folder.path().join("gpu-tuned.lock");
    fs::write(&lock, "format = 2\n[workload.one-layer\n").expect("a file");
    let output = run(&lock, &[("GPU_TUNED_MEASURE", "1")]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && stderr.contains("gpu-tuned.lock:2:"), "{stderr}");
    assert!(!stderr.contains("micro-step"), "{stderr}");
    assert_eq!(fs::read_to_string(&lock).expect("the file"), "format = 2\n[workload.one-layer\n");
}

#[test]
fn a_panic_of_the_model_is_an_error_that_names_the_step() {
    let broken = Subject::new(
        |device: &Device| LinearConfig::new(WIDTH, WIDTH).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::<2>::ones([samples, WIDTH + 1], device),
        |model: &Linear, batch| model.forward(batch).mean(),
    );
    let step = Step { batch: 3, micro_batches: 1, checkpointing: true, cuda_graphs: false };
    let error = timed(&Device::flex(), &broken, step, std::time::Duration::ZERO).expect_err("shapes that do not match");
    assert!(matches!(&error, MeasureError::Step { step: named, .. } if *named == step), "{error}");
    assert!(error.to_string().contains("batch 3, checkpointed"), "{error}");
}
