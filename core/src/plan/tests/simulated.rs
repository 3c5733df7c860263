//! Plans from simulated memory, and the errors of simulations.

use super::*;
use crate::Provenance;
use crate::plan::measured::{ACCUMULATING_CHECKPOINTED_ERROR, SIMULATION_ERRORS, simulation_margin};
use crate::workload::Family;

const BATCH: u64 = 32;

/// Pools of so many MiB at two micro-batches, of a GPU.
fn on(gpu: &str, method: MeasurementMethod, mib: u64) -> MeasuredOn {
    let is_run = method != MeasurementMethod::Simulated;
    let at = |batch: u64| {
        let ms = is_run.then_some(batch as f64);
        (batch, MeasuredBatch { optimizer_ms: is_run.then_some(1.0), ..point(mib * batch / BATCH, ms) })
    };
    let facts = nominal(gpu);
    MeasuredOn {
        device: if is_run { format!("NVIDIA {gpu}") } else { format!("{gpu} (simulated from steps of a CPU)") },
        fp32_tflops: facts.fp32_tflops.filter(|_| is_run),
        bandwidth_gb_s: facts.bandwidth_gb_s.filter(|_| is_run),
        context_bytes: is_run.then_some(Bytes::from_mib(537)),
        kernels_bytes: is_run.then_some(Bytes::from_mib(30)),
        mode: [(f32(false), MeasuredMode { method, ..dry_run([BATCH, 4 * BATCH].map(at)) })].into(),
        ..facts.measured_on("0.22.1")
    }
}

fn workload<const N: usize>(on: [(&str, MeasuredOn); N]) -> Workload {
    let on = on.map(|(name, on)| (name.to_owned(), on)).into();
    lm().workload().with_measured(Measured { on, ..Measured::default() })
}

fn on_gpu(gpu: &str, workload: &Workload) -> Plan {
    planned(&nominal(gpu), workload, &pinned(BATCH))
}

/// Planned bytes of the pools, without the margin and the micro-batches that wait on the device.
fn used(plan: &Plan) -> Bytes {
    pools(plan) - plan.memory.margin - Bytes(2 * BATCH * 256 * 2 * 8)
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
        let (plan, derived) = (on_gpu(gpu, &lock), on_gpu(gpu, &workload([])));
        assert_eq!((used(&plan), plan.memory.margin), (Bytes::from_mib(5000), margin(5000)), "{plan}");
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
    let (there, elsewhere) = (on_gpu("h200", &lock), on_gpu("rtx4090", &lock));
    assert_eq!((used(&there), used(&elsewhere)), (Bytes::from_mib(4000), Bytes::from_mib(4000)));
    assert_eq!((there.memory.provenance, there.memory.margin), (Provenance::Measured, Bytes::ZERO));
    assert_eq!(there.memory.context, Bytes::from_mib(537));
    assert_eq!(elsewhere.memory.provenance, Provenance::Transferred);
}

#[test]
fn a_simulation_is_never_taken_for_the_device_that_it_is_named_after() {
    let named = MeasuredOn { device: "NVIDIA H200".to_owned(), ..simulated("h200", 5000) };
    let plan = on_gpu("h200", &workload([("h200", named)]));
    assert_eq!((plan.memory.provenance, plan.memory.margin), (Provenance::Transferred, margin(5000)));
}

#[test]
fn the_simulation_with_the_most_similar_memory_is_used() {
    let lock =
        workload([("simulated-generic", simulated("generic", 5000)), ("simulated-h200", simulated("h200", 6000))]);
    let found = ["t4", "b200"].map(|gpu| used(&on_gpu(gpu, &lock)));
    assert_eq!(found, [Bytes::from_mib(5000), Bytes::from_mib(6000)]);
}

const REPORT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/REPLAYED.md"));

/// Family, precision, checkpointing and 95th percentile of each row of the report.
fn reported() -> Vec<(Family, Precision, bool, f64)> {
    let mut family = Family::Other;
    let cells = REPORT.lines().map(|line| line.split('|').map(str::trim).collect::<Vec<_>>());
    let rows = cells.filter(|cells| cells.len() == 8 && cells[5].ends_with('%'));
    rows.map(|cells| {
        family = match cells[1].split([',', ' ']).next() {
            Some("transformer") => Family::Transformer,
            Some("8" | "ResNet-18") => Family::Convnet,
            Some("LSTM") => Family::Recurrent,
            _ => family,
        };
        let precision = if cells[2] == "f32" { Precision::F32 } else { Precision::Bf16Params };
        let percent: f64 = cells[5].trim_end_matches('%').parse().expect("a percentage");
        (family, precision, cells[3] == "yes", percent / 100.0)
    })
    .collect()
}

#[test]
fn errors_are_those_of_the_report() {
    let reported = reported();
    for row in &reported {
        let is_same = |other: &&(Family, Precision, bool, f64)| (other.0, other.1, other.2) == (row.0, row.1, row.2);
        let worst = reported.iter().filter(is_same).map(|row| row.3).fold(row.3, f64::max);
        let known = SIMULATION_ERRORS.iter().find(is_same);
        assert!(known.is_some_and(|known| (known.3 - worst).abs() < 1e-9), "{row:?}");
    }
    assert!(reported.len() > SIMULATION_ERRORS.len(), "{reported:?}");
    assert!(REPORT.contains(&format!("{:.1}%", ACCUMULATING_CHECKPOINTED_ERROR * 100.0)));
}

#[test]
fn families_without_a_comparison_get_the_largest_error() {
    for (share, family, mode) in [
        (0.837, Family::Convnet, "f32"),
        (0.762, Family::Other, "f32"),
        (0.762, Family::Recurrent, "bf16_params"),
        (0.731, Family::Transformer, "f32-checkpointed"),
    ] {
        // That share of the real bytes, raised by this margin, is all of them.
        let margin = simulation_margin(family, mode.parse().expect("a mode"));
        assert!((share * (1.0 + margin) - 1.0).abs() < 1e-9, "{family:?} {mode}: {margin}");
    }
}
