//! Programs that measure themselves, on the CPU.

mod bench;
#[cfg(feature = "train")]
mod burns_loop;
mod kept;
mod mixed;
#[cfg(feature = "counting-allocator")]
mod replay;

use std::fs;
use std::path::PathBuf;

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::lock::{LockFile, LockedWorkload};
use gpu_tuned::measure::{MeasureError, Step, Subject, timed};
use gpu_tuned::{Options, Session};
use gpu_tuned_core::measured::{Measured, MeasuredOn, Mode};
use tempfile::TempDir;

const WIDTH: usize = 512;
const MEASURE: (&str, &str) = ("GPU_TUNED_MEASURE", "1");

config! { Config, mlp(widths = [512, 512]), global_batch = 7, target = "generic" }

/// One layer over samples of ones.
fn one_layer<'s>(
    width: usize,
    loss: impl Fn(&Linear, Tensor<2>) -> Tensor<1> + Send + Sync + 's,
) -> Subject<'s, Linear, Tensor<2>> {
    Subject::new(
        move |device| LinearConfig::new(width, width).init(device),
        || AdamWConfig::new().init(),
        move |samples, device| Tensor::ones([samples, width], device),
        loss,
    )
    .host_batch(move |samples| vec![1.0_f32; samples * width])
}

fn mean(model: &Linear, batch: Tensor<2>) -> Tensor<1> {
    model.forward(batch).mean()
}

fn session() -> Session<Config> {
    Options::default().cpu().start(Config::default()).expect("there is a CPU")
}

/// Not a test of its own: what the others run.
#[test]
#[ignore = "a program for the tests below"]
fn program() {
    match session().measure_if_asked("one-layer", &one_layer(WIDTH, mean)) {
        Ok(()) => println!("went on"),
        Err(error) => panic!("{error}"),
    }
}

/// Whose steps are others at every micro-batch: it multiplies once for each sample.
#[test]
#[ignore = "a program for the tests below"]
fn program_that_cannot_be_replayed() {
    let subject = one_layer(WIDTH, |model, batch| {
        let samples = batch.dims()[0];
        let product = (0..samples).fold(model.weight.val(), |product, _| product.matmul(model.weight.val()));
        product.mean() + model.forward(batch).mean()
    });
    session().measure_if_asked("one-layer", &subject).expect("it is measured");
}

/// Program that does not call `measure_if_asked`: it trains.
#[test]
#[ignore = "a program for the tests below"]
fn program_that_only_trains() {
    let session = session();
    let model = LinearConfig::new(WIDTH, WIDTH).init(&session.device());
    let mut trainer = session.trainer(model, AdamWConfig::new().init()).expect("a trainer");
    let step = trainer.step(1e-3, Tensor::<2>::ones([7, WIDTH], &Device::flex()), mean).expect("a step");
    println!("went on, {} samples", step.samples);
}

/// A folder for what programs write.
struct Folder(TempDir);

/// End of a program.
struct Ended {
    is_ok: bool,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// Returns true if the program trained.
    fn went_on(&self) -> bool {
        self.stdout.contains("went on")
    }
}

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn lock(&self) -> PathBuf {
        self.0.path().join("gpu-tuned.lock")
    }

    fn run(&self, program: impl Fn(), variables: &[(&str, &str)]) -> Ended {
        let mut command = own_process::command(program);
        let output = command.env("GPU_TUNED_LOCK", self.lock()).envs(variables.iter().copied()).output();
        let output = output.expect("it runs");
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        Ended { is_ok: output.status.success(), stdout, stderr }
    }

    /// The first workload in the lock, with its name.
    fn measured(&self) -> Option<(String, LockedWorkload)> {
        LockFile::new(self.lock()).read().expect("a lock")?.workload.into_iter().next()
    }

    /// What was measured on the CPU.
    fn on_cpu(&self) -> MeasuredOn {
        on_cpu(&self.measured().expect("it was written").1.measured).clone()
    }
}

fn on_cpu(measured: &Measured) -> &MeasuredOn {
    measured.on.values().find(|on| on.device.starts_with("CPU")).expect("the CPU")
}

/// The workload that a program measured, and the program's standard error.
fn measured_by(program: impl Fn()) -> (LockedWorkload, String) {
    let folder = Folder::new();
    let Ended { stderr, .. } = folder.run(program, &[MEASURE]);
    let (_, measured) = folder.measured().unwrap_or_else(|| panic!("nothing written: {stderr}"));
    (measured, stderr)
}

#[test]
fn a_program_that_is_asked_measures_itself_and_ends() {
    let folder = Folder::new();
    let ended = folder.run(program, &[MEASURE, ("GPU_TUNED_MEASURE_JSON", "1")]);
    let Ended { stdout, stderr, .. } = &ended;
    assert!(ended.is_ok && !ended.went_on(), "{stdout}{stderr}");

    let (name, LockedWorkload { measured, .. }) = folder.measured().expect("it was written");
    assert_eq!((name.as_str(), measured.parameters), ("one-layer", (WIDTH * WIDTH + WIDTH) as u64));
    assert!(measured.host_ms_per_sample.is_some_and(|ms| ms > 0.0));
    let mut tries = 0;
    for mode in ["f32", "f32-checkpointed"] {
        let batches = &on_cpu(&measured).mode[&mode.parse().expect("a mode")].batch;
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
    // A CPU has one precision and Burn's kernels.
    assert_eq!(json["other_settings"], serde_json::json!([]));
    let reported: Vec<_> = stderr.lines().filter(|line| line.contains("micro-step")).collect();
    assert!(reported.len() == tries && reported.iter().all(|line| line.contains(" s of 50 s; f32")), "{stderr}");
}

#[test]
fn a_program_that_only_trains_is_measured_in_place_of_its_first_step() {
    let folder = Folder::new();
    let trains = folder.run(program_that_only_trains, &[]);
    assert!(trains.stdout.contains("went on, 7 samples") && !folder.lock().exists(), "{}", trains.stderr);

    let bundle = folder.0.path().join("bundle");
    let warms = folder.run(program_that_only_trains, &[("GPU_TUNED_WARM", &bundle.to_string_lossy())]);
    let text = format!("{}{}", warms.stdout, warms.stderr);
    assert!(!warms.is_ok && !warms.went_on() && text.contains("Undescribed"), "{text}");

    let measures = folder.run(program_that_only_trains, &[MEASURE]);
    assert!(measures.is_ok && !measures.went_on(), "{}{}", measures.stdout, measures.stderr);
    let (name, found) = folder.measured().expect("it was written");
    // Test programs have a hash behind their name.
    assert!(name.starts_with("it-"), "{name}");
    let (stated, _) = measured_by(program);
    assert_eq!((&found.described, &found.goal), (&stated.described, &stated.goal));
    let (found, stated) = (&found.measured, &stated.measured);
    assert_eq!((found.parameters, &found.shape), (stated.parameters, &stated.shape));
    let modes = |measured: &Measured| -> Vec<(Mode, Vec<u64>)> {
        on_cpu(measured).mode.iter().map(|(mode, found)| (*mode, found.batch.keys().copied().collect())).collect()
    };
    let (found, stated) = (modes(found), modes(stated));
    assert_eq!(found.len(), stated.len(), "{found:?}, {stated:?}");
    for ((mode, sizes), (expected, others)) in found.iter().zip(&stated) {
        // A busy machine has no time for the larger ones.
        let is_alike = sizes.starts_with(others) || others.starts_with(sizes);
        assert!(mode == expected && is_alike, "{mode}: {sizes:?}, {others:?}");
    }
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
    let folder = Folder::new();
    let ended = folder.run(program, &[("GPU_TUNED_MEASURE", "0")]);
    assert!(ended.is_ok && ended.went_on() && !folder.lock().exists());
}

#[test]
fn the_time_of_a_measurement_is_requested_in_seconds() {
    let folder = Folder::new();
    let measure = |budget| folder.run(program, &[MEASURE, ("GPU_TUNED_MEASURE_BUDGET", budget)]);
    for refused in ["0", "2 min"] {
        let Ended { is_ok, stderr, .. } = measure(refused);
        let message = format!("`GPU_TUNED_MEASURE_BUDGET` is `{refused}`, expected whole seconds from 1 on");
        assert!(!is_ok && stderr.contains(&message) && !folder.lock().exists(), "{stderr}");
    }
    let Ended { is_ok, stderr, .. } = measure("10");
    assert!(is_ok && stderr.contains(" s of 10 s; f32, batch 1: "), "{stderr}");
}

#[test]
fn a_damaged_lock_is_reported_before_anything_is_measured() {
    let (folder, damaged) = (Folder::new(), "format = 2\n[workload.one-layer\n");
    fs::write(folder.lock(), damaged).expect("a file");
    let Ended { is_ok, stderr, .. } = folder.run(program, &[MEASURE]);
    assert!(!is_ok && stderr.contains("gpu-tuned.lock:2:") && !stderr.contains("micro-step"), "{stderr}");
    assert_eq!(fs::read_to_string(folder.lock()).expect("the file"), damaged);
}

#[test]
fn a_panic_of_the_model_is_an_error_that_names_the_step() {
    let broken = one_layer(WIDTH, |model, batch| model.forward(batch.narrow(1, 0, 1)).mean());
    let step = Step { batch: 3, micro_batches: 1, checkpointing: true, cuda_graphs: false };
    let error = timed(&Device::flex(), &broken, step, std::time::Duration::ZERO).expect_err("shapes that do not match");
    assert!(matches!(&error, MeasureError::Step { step: named, .. } if *named == step), "{error}");
    assert!(error.to_string().contains("batch 3, checkpointed"), "{error}");
}
