//! Steps recorded on the CPU and simulated for a GPU.

use gpu_tuned::{Bytes, DeviceFacts, Provenance, Tuned};
use gpu_tuned_core::measured::Way;
use gpu_tuned_core::profile::ProfileTable;

use super::{Config, LockedWorkload, measured_by, program, program_that_cannot_be_replayed};

#[test]
fn without_a_gpu_steps_are_replayed_for_the_one_that_is_built_for() {
    let (LockedWorkload { described, measured, .. }, stderr) = measured_by(program);
    let replayed = &measured.on["replayed-generic"];
    let modes: Vec<_> = replayed.mode.keys().map(ToString::to_string).collect();
    assert_eq!(modes, ["f32", "f32-checkpointed", "bf16_params", "bf16_params-checkpointed"], "{stderr}");
    // The weights, two moments and a gradient, of which the first page holds more than there is.
    let parameters = 4 * measured.parameters;
    for (mode, found) in &replayed.mode {
        assert!((1..=4).contains(&found.batch.len()) && found.way == Way::Replayed, "{found:?}");
        let held = parameters * mode.precision.parameter_bytes();
        for point in found.batch.values() {
            let reserved = point.reserved_bytes.expect("it was replayed").0;
            assert!((held..held + (32 << 20)).contains(&reserved), "{mode}: {reserved} bytes for {held}");
            assert!(point.micro_step_ms.is_none());
        }
        // Whichever of points and pages tell, each knows what replaying misses.
        let points = found.batch.values().filter_map(|point| point.residual);
        let residuals: Vec<f64> =
            points.chain(found.pages.values().map(|told| told.residual)).chain(found.residual).collect();
        assert!(residuals.len() > 1 && residuals.iter().all(|residual| *residual >= 0.05), "{mode}: {residuals:?}");
    }
    let generic = DeviceFacts::nominal(&ProfileTable::builtin_profile("generic").expect("it is shipped"));
    let workload = described.expect("a description").workload().with_measured(measured);
    let memory = gpu_tuned_core::plan(&generic, &workload, &Config::goal()).expect("it fits").memory;
    assert_eq!(memory.provenance, Provenance::Transferred);
    assert!(memory.margin > Bytes::ZERO, "{memory:?}");
}

#[test]
fn what_cannot_be_replayed_is_measured_on_the_cpu_alone() {
    let (workload, stderr) = measured_by(program_that_cannot_be_replayed);
    assert_eq!(workload.measured.on.len(), 1, "{stderr}");
    assert_eq!(stderr.lines().filter(|line| line.contains("not replayed for GPUs: ")).count(), 2, "{stderr}");
}
