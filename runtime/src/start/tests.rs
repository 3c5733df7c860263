use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Bytes, Goal, Precision};

use super::library_speed_up;

/// Speed-up on an H200 where a micro-batch of 8 took so long with the library's kernels or without.
fn speed_up(measured: &[(bool, f64)]) -> Option<f64> {
    let facts = DeviceFacts::nominal(ProfileTable::builtin().get("h200").expect("a shipped profile"));
    let spec: WorkloadSpec = serde_json::from_str(r#"{"model": {"mlp": {"widths": [4, 4]}}}"#).expect("a workload");
    let mode = |&(library, ms): &(bool, f64)| {
        let figures = MeasuredBatch {
            reserved_bytes: Some(Bytes::from_mib(900)),
            micro_step_ms: Some(ms),
            optimizer_ms: Some(0.0),
            ..MeasuredBatch::default()
        };
        let method = MeasurementMethod::DryRun;
        let mode = MeasuredMode { method, is_partial: false, batch: [(8, figures)].into() };
        (Mode::new(Precision::F32, false).with_library(library), mode)
    };
    let on = MeasuredOn { mode: measured.iter().map(mode).collect(), ..facts.measured_on("0.22.1") };
    let workload = spec.workload();
    let parameters = workload.parameters.trained();
    let measured = Measured { parameters, on: [("h200".to_owned(), on)].into(), ..Measured::default() };
    let goal = Goal { global_batch: Some(8), ..Goal::default() };
    library_speed_up(&facts, &workload.with_measured(measured), &goal)
}

#[test]
fn the_speed_up_is_that_of_two_measurements() {
    let both = speed_up(&[(false, 30.0), (true, 10.0)]).expect("both are measured");
    assert!((both - 3.0).abs() < 0.01, "{both}");
    assert_eq!([&[(false, 30.0)][..], &[(true, 10.0)], &[]].map(speed_up), [None; 3]);
}
