//! Predicted bytes of memory pools against bytes that an H200 reserved.

use std::collections::BTreeMap;

use crate::device::DeviceFacts;
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::plan::calibration::{ACCUMULATION_EXCESS, SMALL_PAGES};
use crate::plan::explain;
use crate::profile::ProfileTable;
use crate::workload::{Transformer, Workload};
use crate::{Bytes, Goal, Pins, Precision, plan};

/// Micro-batches of a transformer of 27 M parameters in f32 on an H200: bytes reserved by steps of one micro-batch, and by
/// steps that accumulate gradients.
const MEASURED: [(u64, u64, u64); 4] = [
    (16, 3_081_957_376, 2_812_473_344),
    (18, 3_148_017_664, 3_148_017_664),
    (25, 3_901_943_808, 4_322_422_784),
    (256, 34_485_760_000, 34_485_760_000),
];

fn transformer() -> Workload {
    measured(&MEASURED, Some)
}

/// The workload, measured at some sizes, with the bytes of accumulating steps that `keep` returns.
fn measured(sizes: &[(u64, u64, u64)], keep: fn(u64) -> Option<u64>) -> Workload {
    let workload = Transformer { heads: Some(8), ..Transformer::new(6, 512, 8192, 256) }.workload();
    let batch = sizes.iter().map(|&(size, reserved, accumulating)| {
        let measured = MeasuredBatch {
            reserved_bytes: Some(Bytes(reserved)),
            reserved_accumulating_bytes: keep(accumulating).map(Bytes),
            ..MeasuredBatch::default()
        };
        (size, measured)
    });
    let mode = MeasuredMode { method: MeasurementMethod::DryRun, is_partial: false, batch: batch.collect() };
    let on =
        MeasuredOn { mode: BTreeMap::from([(Mode::new(Precision::F32, false), mode)]), ..h200().measured_on("0.22.1") };
    let parameters = workload.parameters.trained();
    workload.with_measured(Measured { parameters, on: [("h200".to_owned(), on)].into(), ..Measured::default() })
}

fn h200() -> DeviceFacts {
    DeviceFacts::nominal(&ProfileTable::builtin_profile("h200").expect("a shipped profile"))
}

fn pinned(batch: u64, micro_batches: u64) -> Goal {
    let pins = Pins {
        batch_size: Some(batch),
        gradient_accumulation: Some(micro_batches),
        gradient_checkpointing: Some(false),
        ..Pins::default()
    };
    Goal { pins, ..Goal::default() }
}

/// Predicted bytes of the memory pools and their upper bound, without batches that are prepared ahead.
fn predicted(batch: u64, micro_batches: u64) -> (Bytes, Bytes) {
    predicted_of(&transformer(), batch, micro_batches)
}

fn predicted_of(workload: &Workload, batch: u64, micro_batches: u64) -> (Bytes, Bytes) {
    let memory = plan(&h200(), workload, &pinned(batch, micro_batches)).expect("it fits").memory;
    let queue = memory.inputs - workload.sample.input.unwrap_or_default().times(batch);
    let bound = memory.total() - memory.context - memory.kernels - queue;
    (bound - memory.margin, bound)
}

#[test]
fn measured_sizes_reserve_what_was_measured() {
    for (batch, single, accumulating) in MEASURED {
        for (micro_batches, bytes) in [(1, single), (4, accumulating)] {
            assert_eq!(predicted(batch, micro_batches), (Bytes(bytes), Bytes(bytes)), "{batch}");
        }
    }
}

#[test]
fn a_size_that_was_measured_without_accumulation_gets_the_margin_of_accumulation() {
    // Interpolations between two sizes have a larger margin.
    let sizes = &MEASURED[2..];
    let workload = measured(sizes, |_| None);
    for &(batch, single, accumulating) in sizes {
        assert_eq!(predicted_of(&workload, batch, 1), (Bytes(single), Bytes(single)));
        let estimate = Bytes(single + workload.parameters.trained() * 4);
        let (predicted, bound) = predicted_of(&workload, batch, 4);
        let margin = estimate.scaled(ACCUMULATION_EXCESS) + SMALL_PAGES;
        assert!(predicted == estimate && (bound - estimate).0.abs_diff(margin.0) <= 1, "{batch}: {bound:?}");
        assert!(bound >= Bytes(accumulating), "{batch}");
    }
}

#[test]
fn an_interrupted_measurement_does_not_limit_the_sizes() {
    let sizes = &MEASURED[..3];
    let mut workload = measured(sizes, Some);
    let batch = |workload: &Workload| {
        let goal = Goal { global_batch: Some(512), ..Goal::default() };
        plan(&h200(), workload, &goal).expect("it fits").settings.batch_size
    };
    let is_measured = |batch: u64| sizes.iter().any(|(size, ..)| *size == batch);
    assert!(is_measured(batch(&workload)));
    for mode in workload.measured.on.values_mut().flat_map(|on| on.mode.values_mut()) {
        mode.is_partial = true;
    }
    assert!(!is_measured(batch(&workload)), "{}", batch(&workload));
}

#[test]
fn other_sizes_stay_below_the_bound() {
    // Micro-batches, how many, and MiB that the pools reserved in training.
    for (batch, micro_batches, reserved) in
        [(24, 1, 3962.2), (32, 16, 4729.2), (40, 2, 5881.2), (64, 8, 9337.2), (80, 1, 11_641.2), (320, 2, 41_080.2)]
    {
        let (pools, bound) = predicted(batch, micro_batches);
        let figures = format!("{micro_batches} x {batch}: {:.1} of at most {:.1} MiB", pools.mib(), bound.mib());
        assert!((pools.mib() / reserved - 1.0).abs() < 0.1, "{figures}");
        assert!(bound.mib() >= reserved, "{figures}");
    }
}

#[test]
fn the_margin_is_explained() {
    let explanation = explain(&h200(), &transformer(), &pinned(64, 8)).expect("it fits");
    let item = explanation.memory.into_iter().find(|item| item.name == "margin").expect("an estimate has a margin");
    assert!(
        item.formula.contains("on h200, interpolated between measured micro-batches + 24.0 MiB"),
        "{}",
        item.formula
    );
}
