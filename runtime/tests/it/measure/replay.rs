//! Steps recorded on the CPU and simulated for a GPU.

use gpu_tuned::{Bytes, DeviceFacts, Provenance, Tuned};
use gpu_tuned_core::measured::MeasurementMethod;
use gpu_tuned_core::profile::ProfileTable;

use super::{Config, LockedWorkload, measured_by, program, program_that_cannot_be_replayed};

#[test]
fn without_a_gpu_steps_are_simulated_for_the_one_that_is_built_for() {
    let (LockedWorkload { described, measured, .. }, stderr) = measured_by(program);
    let simulated = &measured.on["simulated-generic"];
    let modes: Vec<_> = simulated.mode.keys().map(ToString::to_string).collect();
    assert_eq!(modes, ["f32", "f32-checkpointed", "bf16_params", "bf16_params-checkpointed"], "{stderr}");
    // The weights, two moments and a gradient, of which the first page holds more than there is.
    let parameters = 4 * measured.parameters;
    for (mode, found) in &simulated.mode {
        assert!((1..=12).contains(&found.batch.len()) && found.method == MeasurementMethod::Simulated, "{found:?}");
        let held = parameters * mode.precision.parameter_bytes();
        for point in found.batch.values() {
            let reserved = point.reserved_bytes.expect("it was simulated").0;
            assert!((held..held + (32 << 20)).contains(&reserved), "{mode}: {reserved} bytes for {held}");
            assert!(point.micro_step_ms.is_none());
        }
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
