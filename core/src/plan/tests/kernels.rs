//! Plans with kernels of the library: never chosen, and planned from their own measurements once they are asked for.

use super::*;
use crate::device::DeviceKind;
use crate::{Kernels, Provenance};

const H200: &str = "h200";

/// A micro-batch of 8 that was measured with Burn's kernels, the library's, or both.
fn measured(with: &[bool]) -> Workload {
    let figures = |library| {
        let (mib, ms) = if library { (900, 10.0) } else { (1200, 30.0) };
        MeasuredBatch { optimizer_ms: Some(1.0), ..point(mib, ms) }
    };
    let mode = |&library: &bool| (f32(false).with_library(library), dry_run([(8, figures(library))]));
    measured_on(H200, lm().workload(), with.iter().map(mode))
}

/// The goal with pinned kernels, and with those that the attribute asks for.
fn goal(pinned: Option<Kernels>, asked: Option<Kernels>) -> Goal {
    let checkpointing = Some(false);
    let pins = Pins { kernels: pinned, gradient_checkpointing: checkpointing, batch_size: Some(8), ..Pins::default() };
    Goal { kernels: asked, pins, ..global(8) }
}

#[test]
fn kernels_are_planned_as_asked_for_from_their_own_measurements() {
    use Kernels::{Burn, Library};

    let both = measured(&[false, true]);
    for (pinned, asked, kernels, ms) in [
        (None, None, Burn, 30.0),
        (None, Some(Library), Library, 10.0),
        (Some(Library), None, Library, 10.0),
        (Some(Burn), Some(Library), Burn, 30.0),
    ] {
        let plan = planned(&nominal(H200), &both, &goal(pinned, asked));
        assert_eq!(plan.settings.kernels, kernels);
        assert_eq!(
            (plan.samples_per_s_provenance, plan.memory.provenance),
            (Provenance::Measured, Provenance::Measured)
        );
        assert!((plan.samples_per_s * (ms + 1.0) / 8e3 - 1.0).abs() < 0.01, "{plan}");
    }
    for (pinned, others) in [(Library, [false]), (Burn, [true])] {
        let plan = planned(&nominal(H200), &measured(&others), &goal(Some(pinned), None));
        let of_workload = planned(&nominal(H200), &lm().workload(), &goal(Some(pinned), None));
        assert_eq!((plan.samples_per_s_provenance, plan.memory.provenance), (Provenance::Derived, Provenance::Derived));
        assert!((plan.samples_per_s - of_workload.samples_per_s).abs() < 1e-9, "{plan}");
    }
}

#[test]
fn a_cpu_computes_with_burns_kernels() {
    let cpu = DeviceFacts { kind: DeviceKind::Cpu, ..nominal(H200) };
    let plan = planned(&cpu, &lm().workload(), &goal(None, Some(Kernels::Library)));
    assert_eq!(plan.settings.kernels, Kernels::Burn);
    assert_eq!(reason(&plan, Setting::Kernels).why, "a CPU has no cuBLASLt");
}
