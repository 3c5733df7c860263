use std::time::Duration;

use gpu_tuned_core::Bytes;
use gpu_tuned_core::measured::{MeasuredBatch, MeasuredMode, MeasurementMethod};

use super::{Work, beside, line, other_model, silence, summary};
use crate::measure::Step;

#[test]
fn silence_is_reported_with_the_work_and_its_counts() {
    let (quiet, work) = (Duration::from_secs(10), Work::Memory(Step::accumulating(8, false)));
    assert_eq!(
        silence(true, quiet, Some(work), Some("kernels compiled: 87, choices tuned: 12".to_owned())),
        "memory of batch 8, 2 micro-batches, no result for 10 s; kernels compiled: 87, choices tuned: 12"
    );
    let explained = silence(true, quiet, Some(Work::Time(Step::single(8, false))), None);
    assert!(explained.ends_with("; the first step with a batch compiles and autotunes its kernels"), "{explained}");
    assert_eq!(silence(false, quiet, None, None), "no result for 10 s");
}

#[test]
fn a_description_of_another_model_is_told() {
    assert_eq!(other_model(12_929, 12_929), None);
    assert_eq!(other_model(12_000, 12_929), None);
    let reported = other_model(37_800, 12_929).expect("another model");
    assert!(reported.starts_with("the description has 37,800 parameters, and the model 12,929:"), "{reported}");
    assert!(other_model(2_682, 531_178).is_some(), "layers are left out");
}

#[test]
fn others_on_the_gpu_are_told() {
    assert_eq!(beside(0), None);
    let reported = [1, 3].map(|others| beside(others).expect("somebody is there"));
    assert!(reported[0].starts_with("another process computes on this GPU: times will be"), "{}", reported[0]);
    assert!(reported[1].starts_with("3 other processes compute on this GPU: times will be"), "{}", reported[1]);
}

#[test]
fn a_point_is_one_line() {
    let dry = MeasuredBatch { reserved_bytes: Some(Bytes::from_mib(4738)), ..MeasuredBatch::default() };
    assert_eq!(line(32, &dry), "batch 32: 4.6 GiB reserved");
    let run = MeasuredBatch { micro_step_ms: Some(38.2), optimizer_ms: Some(1.0), spread: Some(0.004), ..dry };
    assert_eq!(line(32, &run), "batch 32: 4.6 GiB reserved, micro-step 38.200 ms, optimizer 1.000 ms (within 0.4%)");
}

#[test]
fn the_summary_has_the_fastest_batch() {
    let run = |ms| MeasuredBatch { micro_step_ms: Some(ms), ..MeasuredBatch::default() };
    let batch = [(1, run(2.0)), (8, run(10.0)), (64, run(90.0)), (128, MeasuredBatch::default())].into();
    let found = MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch };
    assert_eq!(summary(&found), "batches 1, 8, 64, 128; 800 samples/s at 8");
    let partial = summary(&MeasuredMode { is_partial: true, ..found });
    assert!(partial.ends_with("at 8; partial, as time ended: measure again for more sizes"), "{partial}");
}
