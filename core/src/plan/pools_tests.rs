//! What is predicted of gradients that are added up, against what two H200s held.

use std::collections::BTreeMap;

use crate::device::DeviceFacts;
use crate::measured::{Measured, MeasuredMode, MeasuredOn, Mode, Point, Way};
use crate::plan::explain::explain;
use crate::profile::ProfileTable;
use crate::workload::{Block, Convnet, Stage, Transformer, Workload};
use crate::{Bytes, Goal, Pins, Precision, plan};

/// Micro-batch, the first of its line, bytes reserved, the same where gradients are added up, bytes of each sample more, residual.
type Figures = (u64, Option<u64>, u64, u64, u64, f64);

/// The transformer of 27 M parameters in f32.
const TRANSFORMER: [Figures; 4] = [
    (16, Some(1), 3_081_957_376, 2_812_473_344, 168_127_262, 0.0437),
    (18, None, 3_148_017_664, 3_148_017_664, 167_772_160, 0.0083),
    (25, None, 3_901_943_808, 4_322_422_784, 150_994_944, 0.0082),
    (256, Some(136), 34_485_760_000, 34_485_760_000, 134_217_728, 0.002),
];

/// The ResNet-18 in bf16.
const RESNET: [Figures; 4] = [
    (4, Some(3), 186_693_120, 211_858_944, 10_745_111, 0.0103),
    (64, None, 778_089_984, 778_089_984, 11_146_070, 0.0467),
    (256, Some(238), 2_469_443_072, 2_873_144_832, 9_262_422, 0.016),
    (512, None, 4_862_293_504, 4_862_293_504, 9_496_667, 0.002),
];

fn measured(workload: Workload, precision: Precision, points: &[Figures]) -> Workload {
    let point = |&(batch, from, reserved, accumulating, each, residual): &Figures| {
        let point = Point {
            reserved_bytes: Some(Bytes(reserved)),
            reserved_accumulating_bytes: Some(Bytes(accumulating)),
            reserved_bytes_per_sample: Some(Bytes(each)),
            reserved_from: from,
            residual: Some(residual),
            ..Point::default()
        };
        (batch, point)
    };
    let batch = points.iter().map(point).collect();
    let mode = MeasuredMode { way: Way::DryRun, residual: None, time_residual: None, pages: BTreeMap::new(), batch };
    let on = MeasuredOn {
        mode: BTreeMap::from([(Mode::new(precision, false), mode)]),
        ..MeasuredOn::new(&h200(), "0.22.1")
    };
    let parameters = workload.parameters.trained();
    workload.with_measured(Measured { parameters, on: [("h200".to_owned(), on)].into(), ..Measured::default() })
}

fn transformer() -> Workload {
    let transformer = Transformer { heads: Some(8), ..Transformer::new(6, 512, 8192, 256) }.workload();
    measured(transformer, Precision::F32, &TRANSFORMER)
}

fn h200() -> DeviceFacts {
    DeviceFacts::nominal(&ProfileTable::builtin_profile("h200").expect("a shipped profile"))
}

fn pinned(precision: Precision, batch: u64, micro_batches: u64) -> Goal {
    let pins = Pins {
        batch_size: Some(batch),
        gradient_accumulation: Some(micro_batches),
        gradient_checkpointing: Some(false),
        ..Pins::default()
    };
    Goal { precision: Some(precision), pins, ..Goal::default() }
}

/// Bytes in memory pools as they are predicted, and the most that they may be, with nothing prepared ahead.
fn predicted(workload: &Workload, precision: Precision, batch: u64, micro_batches: u64) -> (Bytes, Bytes) {
    let goal = pinned(precision, batch, micro_batches);
    let memory = plan(&h200(), workload, &goal).expect("it fits").memory;
    let queue = memory.inputs - workload.sample.input.unwrap_or_default().times(batch);
    let bound = memory.total() - memory.context - memory.kernels - queue;
    (bound - memory.margin, bound)
}

#[test]
fn a_page_more_at_a_point_is_no_page_more_beside_it() {
    let stages = [64, 128, 256, 512].map(|channels| Stage { channels, blocks: 2 }).to_vec();
    let resnet = Convnet { image: 32, classes: 10, block: Block::Basic, stages, ..Convnet::default() }.workload();
    let resnet = measured(resnet, Precision::Bf16Params, &RESNET);
    // Micro-batch, how many, MiB that pools held in training.
    let transformer =
        (transformer(), Precision::F32, vec![(32, 16, 4737.2), (40, 2, 5889.2), (64, 8, 9345.2), (320, 2, 41080.2)]);
    let resnet = (resnet, Precision::Bf16Params, vec![(320, 2, 2923.0)]);
    for (workload, precision, steps) in [transformer, resnet] {
        for (batch, micro_batches, held) in steps {
            let (pools, bound) = predicted(&workload, precision, batch, micro_batches);
            let what =
                format!("{micro_batches} x {batch}: {:.1} MiB, at most {:.1}, held {held}", pools.mib(), bound.mib());
            assert!((pools.mib() / held - 1.0).abs() < 0.01, "{what}");
            assert!(bound.mib() >= held, "{what}");
        }
    }
}

#[test]
fn at_a_point_gradients_take_what_they_took_there() {
    let transformer = transformer();
    for (batch, _, single, accumulating, ..) in TRANSFORMER {
        for (micro_batches, bytes) in [(1, single), (4, accumulating)] {
            assert_eq!(
                predicted(&transformer, Precision::F32, batch, micro_batches),
                (Bytes(bytes), Bytes(bytes)),
                "{batch}"
            );
        }
    }
}

#[test]
fn the_bound_covers_what_gradients_took_more_at_either_point() {
    let transformer = transformer();
    let more = Bytes(4_322_422_784 - 3_901_943_808);
    for batch in [19, 24, 26, 135] {
        let [(single, single_bound), (pools, bound)] =
            [1, 2].map(|times| predicted(&transformer, Precision::F32, batch, times));
        assert_eq!((pools, bound), (single, single_bound + more), "{batch}");
    }
    // Neither a page less than usual nor what is far away counts.
    for batch in [8, 17, 200, 300] {
        let [single, several] = [1, 2].map(|times| predicted(&transformer, Precision::F32, batch, times));
        assert_eq!(several, single, "{batch}");
    }
}

#[test]
fn the_margin_says_what_gradients_took_more_at_the_points_beside() {
    let margin = |batch| {
        let explanation = explain(&h200(), &transformer(), &pinned(Precision::F32, batch, 2)).expect("it fits");
        let item = explanation.memory.into_iter().find(|item| item.name == "margin").expect("it is between points");
        item.formula
    };
    let more = " + 401.0 MiB more where gradients were added up at the points beside";
    assert!(margin(24).contains(more), "{}", margin(24));
    assert!(!margin(17).contains("more"), "{}", margin(17));
}
