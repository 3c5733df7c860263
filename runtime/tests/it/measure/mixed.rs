//! A program that measures itself in 16 bits, on the CPU.

use std::env;

use burn::tensor::DType;
use gpu_tuned::mixed::{Half, in_f32};
use gpu_tuned::{Options, Precision};

use super::{Ended, Folder, MEASURE, one_layer};

const WIDTH: usize = 256;
/// Environment variable with the precision of the subject.
const HALF: &str = "TEST_HALF";

config! { Config, mlp(widths = [256, 256]), global_batch = 1, target = "generic" }

/// Not a test of its own: what the others run.
#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let session = Options::default().cpu().start(Config::default()).expect("there is a CPU");
    let float = if session.plan().settings.precision == Precision::F32 { DType::F32 } else { DType::F16 };
    let subject = one_layer(WIDTH, move |model, batch| {
        assert_eq!((batch.dtype(), model.weight.dtype()), (float, float));
        in_f32(model.forward(batch)).mean()
    });
    let subject = match env::var(HALF).as_deref() {
        Ok("f16") => subject.mixed(Half::F16),
        Ok("bf16") => subject.mixed(Half::Bf16),
        _ => subject,
    };
    if let Err(error) = session.measure_if_asked("one-layer", &subject) {
        panic!("{error}");
    }
}

/// Runs the program, which is asked to measure.
fn run(precision: Precision, variables: &[(&str, &str)]) -> (Folder, Ended) {
    let (folder, set) = (Folder::new(), format!("precision={precision}"));
    let ended = folder.run(program, &[&[MEASURE, (Options::SET_VARIABLE, &set)], variables].concat());
    (folder, ended)
}

/// Largest bytes of a step for each parameter, without and with accumulation, in each mode of a precision.
#[cfg(feature = "counting-allocator")]
fn bytes_per_parameter(precision: Precision) -> Vec<[f64; 2]> {
    let (folder, ended) = run(precision, &[]);
    let (_, gpu_tuned::lock::LockedWorkload { measured, .. }) =
        folder.measured().unwrap_or_else(|| panic!("{}", ended.stderr));
    let on = super::on_cpu(&measured);
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
    let (folder, Ended { stderr, .. }) = run(Precision::MixedF16, &[]);
    let (_, found) = folder.measured().unwrap_or_else(|| panic!("{stderr}"));
    assert_eq!(found.measured.on.len(), 1, "{:?}", found.measured.on);
    let why = if cfg!(feature = "counting-allocator") {
        "not replayed for GPUs: mixed_f16 "
    } else {
        "feature `counting-allocator`"
    };
    assert_eq!(stderr.lines().filter(|line| line.contains(why)).count(), 1, "{stderr}");
}

#[test]
fn a_subject_that_is_mixed_is_measured_in_a_session_that_is_and_in_no_other() {
    let (folder, Ended { is_ok, stderr, .. }) = run(Precision::MixedF16, &[(HALF, "f16")]);
    assert!(is_ok && folder.measured().is_some(), "{stderr}");
    for (precision, half, mixed) in [
        (Precision::F32, "f16", "mixed_f16"),
        (Precision::F32, "bf16", "mixed_bf16"),
        (Precision::MixedF16, "bf16", "mixed_bf16"),
    ] {
        let (folder, Ended { is_ok, stderr, .. }) = run(precision, &[(HALF, half)]);
        assert!(!is_ok && folder.measured().is_none(), "{stderr}");
        let reported = format!("`Subject::mixed` says that steps are in {mixed}, and the session's are in {precision}");
        assert!(stderr.contains(&reported), "{stderr}");
    }
}
