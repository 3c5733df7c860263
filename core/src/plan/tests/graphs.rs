//! Plans with CUDA graphs: the transformer of 27.3 M parameters on one H100, as it was measured.

use super::*;
use crate::Provenance;
use crate::device::DeviceKind;

/// Micro-batch, and without and with CUDA graphs milliseconds a step and MiB reserved.
const RUN: [(u64, [f64; 2], [u64; 2]); 2] = [(2, [26.3, 12.4], [780, 1171]), (8, [31.0, 14.9], [1531, 2854])];
/// MiB reserved in steps of four micro-batches of 4 samples.
const ACCUMULATING: (u64, [u64; 2]) = (4, [1095, 1706]);

const H100: &str = "h100-sxm5-80gb";

/// A measured micro-batch that reserves as much where it accumulates.
fn accumulating(mib: u64, ms: f64) -> MeasuredBatch {
    let point = MeasuredBatch { optimizer_ms: Some(0.1), ..point(mib, ms) };
    MeasuredBatch { reserved_accumulating_bytes: point.reserved_bytes, ..point }
}

/// Measurements without and with CUDA graphs. With graphs, steps take `factor` times as long.
fn measured(factor: f64) -> Workload {
    let point = |with: usize, (batch, ms, mib): (u64, [f64; 2], [u64; 2])| {
        let factor = if with == 1 { factor } else { 1.0 };
        (batch, accumulating(mib[with], ms[with] * factor))
    };
    let mode = |with| (f32(false).with_graphs(with == 1), dry_run(RUN.map(|run| point(with, run))));
    measured_on(H100, lm().workload(), [0, 1].map(mode))
}

/// The measurements with another micro-batch without graphs.
fn with_batch(mut workload: Workload, batch: u64, point: MeasuredBatch) -> Workload {
    let on = workload.measured.on.values_mut().next().expect("a device");
    let plain = on.mode.values_mut().next().expect("a mode");
    plain.batch.insert(batch, point);
    workload
}

fn goal(allow_cuda_graphs: impl Into<Option<bool>>) -> Goal {
    let pins = Pins { gradient_checkpointing: Some(false), prefetch_depth: Some(0), ..Pins::default() };
    Goal { allow_cuda_graphs: allow_cuda_graphs.into(), pins, ..global(8) }
}

#[test]
fn graphs_that_gain_enough_are_planned_with_their_speed_and_memory() {
    let explained = explain(&nominal(H100), &measured(1.0), &goal(true)).expect("it fits");
    let Outcome::Plan(plan) = &explained.outcome else { panic!("it fits") };
    assert_eq!((plan.settings.batch_size, plan.settings.cuda_graphs), (8, true), "{plan}");
    assert_eq!(pools(plan), Bytes::from_mib(2854), "{plan}");
    assert_eq!(plan.memory.cuda_graph, Bytes::from_mib(2854 - 1531));
    assert!((plan.samples_per_s - 8e3 / 15.0).abs() < 1e-6, "{plan}");
    let seconds: f64 = explained.time.iter().map(|term| term.seconds).sum();
    assert!((seconds - 0.015).abs() < 1e-9, "{explained:?}");
}

#[test]
fn graphs_are_planned_where_they_are_measured_allowed_faster_and_fit() {
    let mut pinned = goal(true);
    pinned.pins.batch_size = Some(4);
    let mut partial = with_batch(measured(1.0), 32, accumulating(4600, 120.0));
    for mode in partial.measured.on.values_mut().flat_map(|on| on.mode.values_mut()) {
        mode.is_partial = true;
    }
    let memory = planned(&nominal(H100), &measured(1.0), &goal(true)).memory;
    let needed = (memory.total().mib() / 0.9) as u64 + 1;
    let on = |free| with_free(H100, free);
    let free = Goal { pins: Pins::default(), ..goal(true) };
    let larger = Goal { global_batch: Some(64), ..goal(true) };
    let (measured, whole) = (measured(1.0), nominal(H100));
    let cpu = DeviceFacts { kind: DeviceKind::Cpu, ..whole.clone() };
    assert_plans(
        "graphs",
        vec![
            ("graphs gain enough", whole.clone(), measured.clone(), goal(true)),
            ("checkpointing was not timed with graphs", whole.clone(), measured.clone(), free),
            ("graphs are not allowed: advice", whole.clone(), measured.clone(), goal(None)),
            ("graphs are refused: no advice", whole.clone(), measured.clone(), goal(false)),
            ("graphs gain 4%", whole.clone(), self::measured(2.0), goal(true)),
            ("the memory is just enough for graphs", on(needed), measured.clone(), goal(true)),
            ("2 MiB less: one micro-batch of 8 without graphs", on(needed - 2), measured.clone(), goal(true)),
            ("no timed micro-batch fits", on(1600), measured.clone(), goal(true)),
            ("the pinned size was timed without graphs only", whole.clone(), measured.clone(), pinned),
            ("32 has no time with graphs, but is not too large", whole.clone(), partial, larger),
            ("another GPU was measured", nominal("h200"), measured.clone(), goal(true)),
            ("several ranks", whole, measured.clone(), Goal { world_size: 2, ..goal(true) }),
            ("a CPU", cpu, measured, goal(true)),
        ],
    );
}

#[test]
fn pinned_graphs_that_do_not_fit_are_explained_by_their_own_measurements() {
    let mut goal = goal(None);
    (goal.pins.batch_size, goal.pins.cuda_graphs) = (Some(8), Some(true));
    let explained = explain(&with_free(H100, 2500), &measured(1.0), &goal).expect("a misfit is explained");
    assert!(matches!(explained.outcome, Outcome::Misfit(_)), "{explained:?}");
    let item = explained.memory.iter().find(|item| item.name == "CUDA graph").expect("an item");
    assert_eq!(item.formula, "2854.0 MiB reserved with CUDA graphs - 1531.0 MiB without");
}

#[test]
fn the_memory_of_graphs_that_were_not_measured_is_an_upper_bound() {
    let (batch, reserved) = ACCUMULATING;
    let mut workload = with_batch(measured(1.0), batch, accumulating(reserved[0], 31.0));
    workload.measured.on.values_mut().for_each(|on| on.mode.retain(|mode, _| !mode.cuda_graphs));
    let single = RUN.map(|(batch, _, reserved)| (batch, batch, reserved[1]));
    for (batch, samples, reserved) in single.into_iter().chain([(batch, 4 * batch, reserved[1])]) {
        let mut goal = Goal { global_batch: Some(samples), ..goal(false) };
        (goal.pins.batch_size, goal.pins.cuda_graphs) = (Some(batch), Some(true));
        let plan = planned(&nominal(H100), &workload, &goal);
        let share = pools(&plan).mib() / reserved as f64;
        assert!((1.0..1.45).contains(&share), "{share} of the measured memory: {plan}");
        assert_eq!(plan.memory.provenance, Provenance::Estimated);
    }
}
