//! A program that measures itself in 16 bits, on the CPU.

use std::env;
use std::process::Output;

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{DType, Tensor};
use gpu_tuned::lock::{LockFile, LockedWorkload};
use gpu_tuned::measure::Subject;
use gpu_tuned::mixed::{Half, in_f32};
use gpu_tuned::{Options, Precision, gpu_tuned};
use tempfile::TempDir;

const WIDTH: usize = 256;
/// Environment variable with the precision of the subject.
const HALF: &str = "TEST_HALF";

#[gpu_tuned(mlp(widths = [256, 256]), global_batch = 1, target = "generic")]
#[derive(Clone, Debug)]
struct Config {
    #[tuned]
    batch_size: usize,
}

/// Not a test of its own: what the others run.
#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let session = Options::default().cpu().start(Config::default()).expect("there is a CPU");
    let float = if session.plan().settings.precision == Precision::F32 { DType::F32 } else { DType::F16 };
    let subject = Subject::new(
        |device| LinearConfig::new(WIDTH, WIDTH).init(device),
        || AdamWConfig::new().init(),
        |samples, device| Tensor::ones([samples, WIDTH], device),
        move |model: &Linear, batch: Tensor<2>| {
            assert_eq!((batch.dtype(), model.weight.dtype()), (float, float));
            in_f32(model.forward(batch)).mean()
        },
    );
    let subject = match env::var(HALF).as_deref() {
        Ok("f16") => subject.mixed(Half::F16),
        Ok("bf16") => subject.mixed(Half::Bf16),
        _ => subject,
    };
    if let Err(error) = session.measure_if_asked("one-layer", &subject) {
        panic!("{error}");
    }
}

/// A run of the program that is asked to measure.
struct Run {
    folder: TempDir,
    output: Output,
}

impl Run {
    fn of(precision: Precision, variables: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let mut command = own_process::command(program);
        command.env("GPU_TUNED_MEASURE", "1").env("GPU_TUNED_LOCK", folder.path().join("gpu-tuned.lock"));
        command.env(Options::SET_VARIABLE, format!("precision={precision}")).envs(variables.iter().copied());
        Self { output: command.output().expect("it runs"), folder }
    }

    fn message(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }

    /// The written lock, if any.
    fn measured(&self) -> Option<LockedWorkload> {
        LockFile::new(self.folder.path().join("gpu-tuned.lock")).read().expect("a lock")?.workload.remove("one-layer")
    }
}

/// Largest bytes of a step for each parameter, without and with accumulation, in each mode of a precision.
#[cfg(feature = "counting-allocator")]
fn bytes_per_parameter(precision: Precision) -> Vec<[f64; 2]> {
    let run = Run::of(precision, &[]);
    let measured = run.measured().unwrap_or_else(|| panic!("{}", run.message())).measured;
    let on = measured.on.values().find(|on| on.device.starts_with("CPU")).expect("the CPU");
    assert!(on.mode.len() == 2 && on.mode.keys().all(|mode| mode.precision == precision), "{:?}", on.mode);
    let each = |bytes: Option<gpu_tuned::Bytes>| bytes.expect("it is counted").0 as f64 / measured.parameters as f64;
    let points = on.mode.values().flat_map(|mode| mode.batch.values());
    points.map(|point| [point.reserved_bytes, point.reserved_accumulating_bytes].map(each)).collect()
}

#[cfg(feature = "counting-allocator")]
#[test]
fn what_is_measured_in_mixed_precision_holds_weights_in_f32_and_their_copies() {
    for precision in [Precision::F32, Precision::MixedF16] {
        // Weights, gradients and two moments in f32, and more while the optimizer computes. In 16 bits it were half of it.
        for bytes in bytes_per_parameter(precision).concat() {
            assert!((18.0..26.0).contains(&bytes), "{precision}: {bytes}");
        }
    }
}

#[test]
fn steps_in_mixed_precision_are_not_replayed_and_it_is_said() {
    let run = Run::of(Precision::MixedF16, &[]);
    let measured = run.measured().unwrap_or_else(|| panic!("{}", run.message())).measured;
    assert_eq!(measured.on.len(), 1, "{:?}", measured.on);
    let why = if cfg!(feature = "counting-allocator") {
        "not replayed for GPUs: mixed_f16 "
    } else {
        "feature `counting-allocator`"
    };
    assert_eq!(run.message().lines().filter(|line| line.contains(why)).count(), 1, "{}", run.message());
}

#[test]
fn a_subject_that_is_mixed_is_measured_in_a_session_that_is_and_in_no_other() {
    let run = Run::of(Precision::MixedF16, &[(HALF, "f16")]);
    assert!(run.output.status.success() && run.measured().is_some(), "{}", run.message());
    for (precision, half, mixed) in [
        (Precision::F32, "f16", "mixed_f16"),
        (Precision::F32, "bf16", "mixed_bf16"),
        (Precision::MixedF16, "bf16", "mixed_bf16"),
    ] {
        let run = Run::of(precision, &[(HALF, half)]);
        let message = run.message();
        assert!(!run.output.status.success() && run.measured().is_none(), "{message}");
        let reported = format!("`Subject::mixed` says that steps are in {mixed}, and the session's are in {precision}");
        assert!(message.contains(&reported), "{message}");
    }
}
