//! What fits by measurements that no costs would say.

use std::collections::BTreeMap;

use super::{Plan, plan};
use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::{Measured, MeasuredMode, MeasuredOn, Mode, Point, Way};
use crate::profile::ProfileTable;
use crate::workload::{Declared, Workload};
use crate::{Bytes, Goal, Precision, Provenance, Setting};

fn rtx4090() -> DeviceFacts {
    DeviceFacts::nominal(ProfileTable::builtin().get("rtx4090").expect("a shipped profile"))
}

fn point(mib: u64) -> Point {
    Point { reserved_bytes: Some(Bytes::from_mib(mib)), ..Point::default() }
}

fn mode(residual: f64, batch: impl IntoIterator<Item = (u64, Point)>) -> MeasuredMode {
    let batch = batch.into_iter().collect();
    MeasuredMode { way: Way::DryRun, residual: Some(residual), time_residual: None, batch }
}

/// Declared costs of which nobody said what checkpointing saves, with measurements on an RTX 4090.
fn measured(modes: impl IntoIterator<Item = (bool, MeasuredMode)>) -> Workload {
    let facts = rtx4090();
    let modes = modes.into_iter().map(|(checkpointing, mode)| (Mode::new(Precision::F32, checkpointing), mode));
    let on = MeasuredOn {
        device: "NVIDIA GeForce RTX 4090".to_owned(),
        kind: DeviceKind::Gpu,
        memory_bytes: facts.memory_total,
        sm_count: facts.sm_count,
        fp32_tflops: facts.fp32_tflops,
        bandwidth_gb_s: facts.bandwidth_gb_s,
        driver: None,
        burn: "0.22.1".to_owned(),
        cubecl: None,
        context_bytes: None,
        kernels_bytes: None,
        mode: modes.collect::<BTreeMap<_, _>>(),
    };
    let declared = Declared {
        parameters: 1_000_000,
        activation_bytes_per_sample: 1 << 20,
        flops_per_sample: 1e9,
        ..Declared::default()
    };
    let on = BTreeMap::from([("rtx4090".to_owned(), on)]);
    declared.workload().with_measured(Measured { on, ..Measured::default() })
}

fn global(samples: u64) -> Goal {
    Goal { global_batch: Some(samples), ..Goal::default() }
}

fn why_not_recomputed(plan: &Plan) -> (Provenance, &str) {
    let reason = plan.reasons.iter().find(|reason| reason.setting == Setting::GradientCheckpointing);
    reason.map(|reason| (reason.provenance, reason.why.as_str())).expect("a reason")
}

#[test]
fn checkpointing_is_planned_where_it_was_measured_though_nobody_declared_what_it_saves() {
    let (plain, recomputed) = (mode(0.0, [(1, point(23 << 10))]), mode(0.0, [(1, point(12 << 10))]));
    let workload = measured([(false, plain), (true, recomputed)]);
    let planned = plan(&rtx4090(), &workload, &global(1)).expect("it fits with checkpointing");
    assert!(planned.settings.gradient_checkpointing, "{planned}");
    assert_eq!(why_not_recomputed(&planned), (Provenance::Derived, "without it nothing as fast fits into the memory"));
    assert_eq!(planned.memory.provenance, Provenance::Measured);
    // On another GPU, by what was measured there.
    let other = DeviceFacts::nominal(ProfileTable::builtin().get("rtx3090").expect("a shipped profile"));
    assert!(plan(&other, &workload, &global(1)).expect("it fits too").settings.gradient_checkpointing);
}

#[test]
fn checkpointing_says_whether_what_it_saves_is_known() {
    let fits = |batch: u64| mode(0.0, [(batch, point(1 << 10))]);
    let planned = |workload: &Workload| plan(&rtx4090(), workload, &global(8)).expect("it fits");
    let unknown = planned(&measured([(false, fits(8))]));
    let neither = "what it would save is neither declared nor measured";
    assert_eq!(why_not_recomputed(&unknown), (Provenance::Derived, neither));
    let known = planned(&measured([(false, fits(8)), (true, fits(8))]));
    let (_, why) = why_not_recomputed(&known);
    assert!(why.starts_with("the activations fit; recomputing them would cost about"), "{why}");
    // Times alone say nothing of memory.
    let timed = Point { micro_step_ms: Some(1.0), ..Point::default() };
    let timed = planned(&measured([(false, fits(8)), (true, mode(0.0, [(8, timed)]))]));
    assert_eq!(why_not_recomputed(&timed), (Provenance::Derived, neither));
}
