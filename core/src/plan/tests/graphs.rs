//! Plans with CUDA graphs: the transformer of 27.3 M parameters on one H100, as it was measured.

use std::collections::BTreeMap;

use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod, Mode};
use crate::plan::{Outcome, Plan, explain};
use crate::profile::ProfileTable;
use crate::workload::{Transformer, Workload};
use crate::{Bytes, Goal, Pins, Precision, Provenance, Setting, plan};

/// Micro-batch, and without and with CUDA graphs milliseconds a step and MiB reserved.
const RUN: [(u64, [f64; 2], [u64; 2]); 2] = [(2, [26.3, 12.4], [780, 1171]), (8, [31.0, 14.9], [1531, 2854])];
/// MiB reserved in steps of four micro-batches of 4 samples.
const ACCUMULATING: (u64, [u64; 2]) = (4, [1095, 1706]);

/// Measurements without and with CUDA graphs. With graphs, steps take `factor` times as long.
fn measured(factor: f64) -> Workload {
    let mode = |with: usize| {
        let point = |(batch, ms, reserved): (u64, [f64; 2], [u64; 2])| {
            let factor = if with == 1 { factor } else { 1.0 };
            let reserved = Some(Bytes::from_mib(reserved[with]));
            let point = MeasuredBatch {
                reserved_bytes: reserved,
                reserved_accumulating_bytes: reserved,
                micro_step_ms: Some(ms[with] * factor),
                optimizer_ms: Some(0.1),
                ..MeasuredBatch::default()
            };
            (batch, point)
        };
        let method = if with == 1 { MeasurementMethod::Executed } else { MeasurementMethod::DryRun };
        let measured = MeasuredMode { method, is_partial: false, batch: RUN.into_iter().map(point).collect() };
        (Mode::new(Precision::F32, false).with_graphs(with == 1), measured)
    };
    let on = MeasuredOn { mode: [0, 1].map(mode).into(), ..h100().measured_on("0.22.1") };
    let on = BTreeMap::from([("h100-sxm5-80gb".to_owned(), on)]);
    let model = Transformer { heads: Some(8), ..Transformer::new(6, 512, 8192, 256) };
    model.workload().with_measured(Measured { parameters: 27_300_000, on, ..Measured::default() })
}

fn h100() -> DeviceFacts {
    DeviceFacts::nominal(&ProfileTable::builtin_profile("h100-sxm5-80gb").expect("a shipped profile"))
}

fn goal(allow_cuda_graphs: impl Into<Option<bool>>) -> Goal {
    let pins = Pins { gradient_checkpointing: Some(false), prefetch_depth: Some(0), ..Pins::default() };
    Goal { global_batch: Some(8), allow_cuda_graphs: allow_cuda_graphs.into(), pins, ..Goal::default() }
}

fn reason(plan: &Plan) -> &str {
    reason_of(Setting::CudaGraphs, plan)
}

fn reason_of(setting: Setting, plan: &Plan) -> &str {
    let reason = plan.reasons.iter().find(|reason| reason.setting == setting);
    &reason.expect("each setting has a reason").why
}

/// Bytes of the memory pools.
fn pools(plan: &Plan) -> Bytes {
    plan.memory.total() - plan.memory.context - plan.memory.kernels
}

#[test]
fn graphs_that_gain_enough_are_planned_with_their_speed_and_memory() {
    let plan = plan(&h100(), &measured(1.0), &goal(true)).expect("it fits");
    assert!(plan.settings.cuda_graphs, "{plan}");
    assert_eq!(plan.settings.batch_size, 8, "{plan}");
    assert_eq!(reason(&plan), "107% more samples/s");
    assert_eq!(pools(&plan), Bytes::from_mib(2854), "{plan}");
    assert_eq!(plan.memory.cuda_graph, Bytes::from_mib(2854 - 1531));
    assert!((plan.samples_per_s - 8e3 / 15.0).abs() < 1e-6, "{plan}");
    assert_eq!(plan.samples_per_s_provenance, Provenance::Measured);
    assert!(plan.advice.is_empty(), "{plan}");
    let explained = explain(&h100(), &measured(1.0), &goal(true)).expect("it fits");
    let item = explained.memory.iter().find(|item| item.name == "CUDA graph").expect("an item");
    assert_eq!(item.formula, "2854.0 MiB reserved with CUDA graphs - 1531.0 MiB without");
    assert!(explained.considered.iter().all(|considered| considered.cuda_graphs), "{explained:?}");
    let seconds: f64 = explained.time.iter().map(|term| term.seconds).sum();
    assert!((seconds - 0.015).abs() < 1e-9, "{explained:?}");
}

#[test]
fn checkpointing_that_was_not_timed_with_graphs_is_no_fault_of_dropout() {
    let free = Goal { pins: Pins::default(), ..goal(true) };
    let plan = plan(&h100(), &measured(1.0), &free).expect("it fits");
    assert!(plan.settings.cuda_graphs, "{plan}");
    let why = reason_of(Setting::GradientCheckpointing, &plan);
    assert_eq!(why, "the activations fit; recomputing was not timed with CUDA graphs", "{plan}");
}

#[test]
fn graphs_that_are_not_allowed_are_advised() {
    let plan = plan(&h100(), &measured(1.0), &goal(None)).expect("it fits");
    assert!(!plan.settings.cuda_graphs && plan.memory.cuda_graph == Bytes::ZERO, "{plan}");
    assert_eq!(reason(&plan), "107% more samples/s, but are not allowed");
    assert!(plan.advice.iter().any(|advice| advice.starts_with("CUDA graphs would run 2.1x as many")), "{plan}");
    // A refusal needs no advice.
    let refused = self::plan(&h100(), &measured(1.0), &goal(false)).expect("it fits");
    assert_eq!((refused.settings.cuda_graphs, refused.advice), (false, Vec::new()));
}

#[test]
fn pinned_graphs_that_do_not_fit_are_explained_by_their_own_measurements() {
    let mut goal = goal(None);
    (goal.pins.batch_size, goal.pins.cuda_graphs) = (Some(8), Some(true));
    let device = DeviceFacts { memory_available: Bytes::from_mib(2500), ..h100() };
    let explained = explain(&device, &measured(1.0), &goal).expect("a misfit is explained");
    assert!(matches!(explained.outcome, Outcome::Misfit(_)), "{explained:?}");
    let item = explained.memory.iter().find(|item| item.name == "CUDA graph").expect("an item");
    assert_eq!(item.formula, "2854.0 MiB reserved with CUDA graphs - 1531.0 MiB without");
}

#[test]
fn graphs_that_gain_little_are_not_planned() {
    let plan = plan(&h100(), &measured(2.0), &goal(true)).expect("it fits");
    assert!(!plan.settings.cuda_graphs && plan.advice.is_empty(), "{plan}");
    assert_eq!(reason(&plan), "they gain only 4.0%, less than 5%");
}

#[test]
fn graphs_that_do_not_fit_are_not_planned() {
    let planned = |free| {
        let device = DeviceFacts { memory_available: Bytes::from_mib(free), ..h100() };
        plan(&device, &measured(1.0), &goal(true)).expect("it fits").settings
    };
    let memory = plan(&h100(), &measured(1.0), &goal(true)).expect("it fits").memory;
    let needed = (memory.total().0 as f64 / 0.9 / f64::from(1 << 20)) as u64 + 1;
    let settings = planned(needed);
    assert_eq!((settings.batch_size, settings.cuda_graphs), (8, true));
    // Four micro-batches of 2 with graphs would fit, and take longer than one of 8 without.
    let settings = planned(needed - 2);
    assert_eq!((settings.batch_size, settings.cuda_graphs), (8, false));
    let device = DeviceFacts { memory_available: Bytes::from_mib(1600), ..h100() };
    let tight = plan(&device, &measured(1.0), &goal(true)).expect("it fits");
    let why = "no timed micro-batch fits memory and goal";
    assert_eq!((tight.settings.cuda_graphs, reason(&tight)), (false, why), "{tight}");
    // A pinned size that was timed without graphs only.
    let mut pinned = goal(true);
    pinned.pins.batch_size = Some(4);
    let pinned = plan(&h100(), &measured(1.0), &pinned).expect("it fits");
    assert_eq!((pinned.settings.cuda_graphs, reason(&pinned)), (false, why), "{pinned}");
}

#[test]
fn sizes_without_times_with_graphs_are_not_reported_as_too_large() {
    let Workload { mut measured, .. } = measured(1.0);
    let on = measured.on.values_mut().next().expect("a device");
    on.mode.values_mut().for_each(|mode| mode.is_partial = true);
    let plain = on.mode.values_mut().next().expect("a mode");
    let larger = Some(Bytes::from_mib(4600));
    let point = MeasuredBatch {
        reserved_bytes: larger,
        reserved_accumulating_bytes: larger,
        micro_step_ms: Some(120.0),
        ..plain.batch[&8]
    };
    plain.batch.insert(32, point);
    let workload = self::measured(1.0).with_measured(measured);
    let plan = plan(&h100(), &workload, &Goal { global_batch: Some(64), ..goal(true) }).expect("it fits");
    assert_eq!((plan.settings.batch_size, plan.settings.cuda_graphs), (8, true), "{plan}");
    let reason = plan.reasons.iter().find(|reason| reason.setting == Setting::BatchSize).expect("a reason");
    assert!(!reason.why.contains("does not fit"), "{}", reason.why);
}

#[test]
fn a_device_that_was_not_measured_and_ranks_have_no_graphs() {
    let h200 = DeviceFacts::nominal(&ProfileTable::builtin_profile("h200").expect("a shipped profile"));
    let elsewhere = plan(&h200, &measured(1.0), &goal(true)).expect("it fits");
    assert!(!elsewhere.settings.cuda_graphs, "{elsewhere}");
    assert!(reason(&elsewhere).starts_with("not timed here"), "{elsewhere}");
    let ranks = Goal { world_size: 2, ..goal(true) };
    let ranks = plan(&h100(), &measured(1.0), &ranks).expect("it fits");
    assert_eq!((ranks.settings.cuda_graphs, reason(&ranks)), (false, "they do not work with several ranks"));
    let cpu = DeviceFacts { kind: DeviceKind::Cpu, ..h100() };
    assert_eq!(reason(&plan(&cpu, &measured(1.0), &goal(true)).expect("it fits")), "a CPU has none");
}

#[test]
fn the_memory_of_graphs_that_were_not_measured_is_an_upper_bound() {
    let Workload { mut measured, .. } = measured(1.0);
    let on = measured.on.values_mut().next().expect("a device");
    on.mode.retain(|mode, _| !mode.cuda_graphs);
    let plain = on.mode.values_mut().next().expect("a mode");
    let (batch, reserved) = ACCUMULATING;
    let accumulating = Some(Bytes::from_mib(reserved[0]));
    let point =
        MeasuredBatch { reserved_bytes: accumulating, reserved_accumulating_bytes: accumulating, ..plain.batch[&8] };
    plain.batch.insert(batch, point);
    let workload = self::measured(1.0).with_measured(measured);
    let single = RUN.map(|(batch, _, reserved)| (batch, batch, reserved[1]));
    for (batch, global, reserved) in single.into_iter().chain([(batch, 4 * batch, reserved[1])]) {
        let mut goal = Goal { global_batch: Some(global), ..goal(false) };
        (goal.pins.batch_size, goal.pins.cuda_graphs) = (Some(batch), Some(true));
        let plan = plan(&h100(), &workload, &goal).expect("it fits");
        let share = pools(&plan).mib() / reserved as f64;
        assert!((1.0..1.45).contains(&share), "{share} of the measured memory: {plan}");
        assert_eq!(plan.memory.provenance, Provenance::Estimated);
    }
}
