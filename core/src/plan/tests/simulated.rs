//! Plans from simulated memory, with measurements and without.

use crate::device::{DeviceFacts, DeviceKind};
use crate::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod};
use crate::plan::{Plan, plan};
use crate::profile::ProfileTable;
use crate::workload::{Transformer, Workload};
use crate::{Bytes, Goal, Pins, Provenance};

const BATCH: u64 = 32;

fn nominal(id: &str) -> DeviceFacts {
    DeviceFacts::nominal(&ProfileTable::builtin_profile(id).expect("a shipped profile"))
}

/// Pools of so many MiB at two micro-batches, of a GPU.
fn on(gpu: &str, method: MeasurementMethod, mib: u64) -> MeasuredOn {
    let facts = nominal(gpu);
    let is_run = method != MeasurementMethod::Simulated;
    let point = |batch: u64| MeasuredBatch {
        reserved_bytes: Some(Bytes::from_mib(mib * batch / BATCH)),
        micro_step_ms: is_run.then_some(batch as f64),
        optimizer_ms: is_run.then_some(1.0),
        ..MeasuredBatch::default()
    };
    let batch = [(BATCH, point(BATCH)), (4 * BATCH, point(4 * BATCH))].into();
    MeasuredOn {
        device: if is_run { format!("NVIDIA {gpu}") } else { format!("{gpu} (simulated from steps of a CPU)") },
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
        mode: [("f32".parse().expect("a mode"), MeasuredMode { method, is_partial: false, batch })].into(),
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

/// Planned bytes of the pools, without the micro-batches that wait on the device.
fn pools(plan: &Plan) -> Bytes {
    let memory = &plan.memory;
    let queue = Bytes(2 * BATCH * 256 * 2 * 8);
    memory.total() - memory.context - memory.kernels - memory.margin - queue
}

/// Margin of a transformer's simulated memory with two sizes: 25% for interpolation, and 11% of error of the simulation.
fn margin(mib: u64) -> Bytes {
    Bytes::from_mib(mib).scaled(1.25 * (1.0 + 0.11 / 0.89) - 1.0) + Bytes::from_mib(24)
}

fn simulated(gpu: &str, mib: u64) -> MeasuredOn {
    on(gpu, MeasurementMethod::Simulated, mib)
}

#[test]
fn an_unmeasured_gpu_gets_simulated_memory_and_nothing_else() {
    let lock = workload([("simulated-rtx4090", simulated("rtx4090", 5000))]);
    for gpu in ["rtx4090", "l4"] {
        let (plan, derived) = (planned(gpu, &lock), planned(gpu, &workload([])));
        assert_eq!(pools(&plan), Bytes::from_mib(5000), "{plan}");
        assert_eq!(plan.memory.margin, margin(5000), "{plan}");
        assert_eq!(plan.memory.provenance, Provenance::Transferred);
        let others = |plan: &Plan| (plan.memory.context, plan.memory.kernels, plan.samples_per_s);
        assert_eq!(others(&plan), others(&derived));
        assert_eq!(plan.samples_per_s_provenance, Provenance::Derived);
    }
}

#[test]
fn a_measurement_of_any_gpu_is_preferred_to_a_simulation() {
    let lock = workload([
        ("h200", on("h200", MeasurementMethod::DryRun, 4000)),
        ("simulated-h200", simulated("h200", 5000)),
        ("simulated-rtx4090", simulated("rtx4090", 6000)),
    ]);
    let (there, elsewhere) = (planned("h200", &lock), planned("rtx4090", &lock));
    assert_eq!((pools(&there), pools(&elsewhere)), (Bytes::from_mib(4000), Bytes::from_mib(4000)));
    assert_eq!((there.memory.provenance, there.memory.margin), (Provenance::Measured, Bytes::ZERO));
    assert_eq!(there.memory.context, Bytes::from_mib(537));
    assert_eq!(elsewhere.memory.provenance, Provenance::Transferred);
}

#[test]
fn a_simulation_is_never_taken_for_the_device_that_it_is_named_after() {
    let named = MeasuredOn { device: "NVIDIA H200".to_owned(), ..simulated("h200", 5000) };
    let plan = planned("h200", &workload([("h200", named)]));
    assert_eq!(plan.memory.provenance, Provenance::Transferred);
    assert_eq!(plan.memory.margin, margin(5000));
}

#[test]
fn the_simulation_with_the_most_similar_memory_is_used() {
    let lock =
        workload([("simulated-generic", simulated("generic", 5000)), ("simulated-h200", simulated("h200", 6000))]);
    let found = ["t4", "b200"].map(|gpu| pools(&planned(gpu, &lock)));
    assert_eq!(found, [Bytes::from_mib(5000), Bytes::from_mib(6000)]);
}
