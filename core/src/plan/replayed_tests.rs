//! Plans by steps that were replayed for a GPU, beside measurements and without any.

use super::{Plan, plan};
use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::{Measured, MeasuredMode, MeasuredOn, Point, Way};
use crate::profile::ProfileTable;
use crate::workload::{Transformer, Workload};
use crate::{Bytes, Goal, Pins, Provenance};

const BATCH: u64 = 32;

fn nominal(id: &str) -> DeviceFacts {
    DeviceFacts::nominal(&ProfileTable::builtin_profile(id).expect("a shipped profile"))
}

/// Pools of so many MiB at two micro-batches, of a GPU.
fn on(gpu: &str, way: Way, mib: u64, residual: f64) -> MeasuredOn {
    let facts = nominal(gpu);
    let is_run = way != Way::Replayed;
    let point = |batch: u64| Point {
        reserved_bytes: Some(Bytes::from_mib(mib * batch / BATCH)),
        micro_step_ms: is_run.then_some(batch as f64),
        optimizer_ms: is_run.then_some(1.0),
        ..Point::default()
    };
    let batch = [(BATCH, point(BATCH)), (4 * BATCH, point(4 * BATCH))].into();
    MeasuredOn {
        device: if is_run { format!("NVIDIA {gpu}") } else { format!("{gpu} (steps of a CPU, replayed)") },
        kind: DeviceKind::Gpu,
        memory_bytes: facts.memory_total,
        sm_count: facts.sm_count,
        fp32_tflops: facts.fp32_tflops.filter(|_| is_run),
        bandwidth_gb_s: facts.bandwidth_gb_s.filter(|_| is_run),
        driver: None,
        burn: "0.22.1".to_owned(),
        cubecl: Some("0.11.3".to_owned()),
        context_bytes: is_run.then_some(Bytes::from_mib(537)),
        kernels_bytes: is_run.then_some(Bytes::from_mib(30)),
        mode: [(
            "f32".parse().expect("a mode"),
            MeasuredMode { way, residual: Some(residual), time_residual: None, pages: [].into(), batch },
        )]
        .into(),
    }
}

fn workload<const N: usize>(on: [(&str, MeasuredOn); N]) -> Workload {
    let on = on.map(|(name, on)| (name.to_owned(), on)).into();
    Transformer { heads: Some(8), ..Transformer::new(6, 512, 8192, 256) }
        .workload()
        .with_measured(Measured { on, ..Measured::default() })
}

fn planned(gpu: &str, workload: &Workload) -> Plan {
    let pins = Pins { batch_size: Some(BATCH), gradient_checkpointing: Some(false), ..Pins::default() };
    plan(&nominal(gpu), workload, &Goal { pins, ..Goal::default() }).expect("it fits")
}

/// What the pools are planned to hold, without the micro-batches that wait on the device.
fn pools(plan: &Plan) -> Bytes {
    let memory = &plan.memory;
    let queue = Bytes(2 * BATCH * 256 * 2 * 8);
    memory.total() - memory.context - memory.kernels - memory.margin - queue
}

fn replayed(gpu: &str, mib: u64) -> MeasuredOn {
    on(gpu, Way::Replayed, mib, 0.25)
}

#[test]
fn a_gpu_that_nobody_measured_gets_the_memory_that_was_replayed_and_nothing_else() {
    let lock = workload([("replayed-rtx4090", replayed("rtx4090", 5000))]);
    for gpu in ["rtx4090", "l4"] {
        let (plan, derived) = (planned(gpu, &lock), planned(gpu, &workload([])));
        assert_eq!(pools(&plan), Bytes::from_mib(5000), "{plan}");
        assert_eq!(plan.memory.margin, Bytes::from_mib(1250 + 24), "{plan}");
        assert_eq!(plan.memory.provenance, Provenance::Transferred);
        let others = |plan: &Plan| (plan.memory.context, plan.memory.kernels, plan.samples_per_s);
        assert_eq!(others(&plan), others(&derived));
        assert_eq!(plan.samples_per_s_provenance, Provenance::Derived);
    }
}

#[test]
fn a_measurement_of_any_gpu_goes_before_what_was_replayed() {
    let lock = workload([
        ("h200", on("h200", Way::DryRun, 4000, 0.01)),
        ("replayed-h200", replayed("h200", 5000)),
        ("replayed-rtx4090", replayed("rtx4090", 6000)),
    ]);
    let (there, elsewhere) = (planned("h200", &lock), planned("rtx4090", &lock));
    assert_eq!((pools(&there), pools(&elsewhere)), (Bytes::from_mib(4000), Bytes::from_mib(4000)));
    assert_eq!((there.memory.provenance, there.memory.margin), (Provenance::Measured, Bytes::ZERO));
    assert_eq!(there.memory.context, Bytes::from_mib(537));
    assert_eq!(elsewhere.memory.provenance, Provenance::Transferred);
}

#[test]
fn what_was_replayed_is_of_no_device_whatever_it_is_called() {
    let named = MeasuredOn { device: "NVIDIA H200".to_owned(), ..replayed("h200", 5000) };
    let plan = planned("h200", &workload([("h200", named)]));
    assert_eq!(plan.memory.provenance, Provenance::Transferred);
    assert_eq!(plan.memory.margin, Bytes::from_mib(1250 + 24));
}

#[test]
fn of_several_the_one_for_about_as_much_memory_counts() {
    let lock = workload([("replayed-generic", replayed("generic", 5000)), ("replayed-h200", replayed("h200", 6000))]);
    let found = ["t4", "b200"].map(|gpu| pools(&planned(gpu, &lock)));
    assert_eq!(found, [Bytes::from_mib(5000), Bytes::from_mib(6000)]);
}
