//! Plans with kernels of the library: asked for, or chosen where they were measured to be faster.

use super::*;
use crate::device::DeviceKind;
use crate::{Kernels, Provenance};

const H200: &str = "h200";

/// A micro-batch of 8 that was measured with Burn's kernels in 30 ms, the library's in 10, or both.
fn measured(with: &[bool]) -> Workload {
    measured_in(with, 10.0)
}

/// The same, with a time of the library in milliseconds.
fn measured_in(with: &[bool], library_ms: f64) -> Workload {
    let figures = |library| {
        let (mib, ms) = if library { (900, library_ms) } else { (1200, 30.0) };
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
        (None, None, Library, 10.0),
        (None, Some(Burn), Burn, 30.0),
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
fn open_kernels_are_the_faster_of_those_that_were_timed_here() {
    use Kernels::{Burn, Library};

    let h100 = || nominal("h100-sxm5-80gb");
    let small = || with_free(H200, 1700);
    for (device, with, library_ms, kernels, why) in [
        (nominal(H200), &[false, true][..], 10.0, Library, "2.8 times as fast as `burn`"),
        (nominal(H200), &[false, true], 29.6, Burn, "`library` is only 1.3% faster"),
        (nominal(H200), &[false, true], 40.0, Burn, "`library` is no faster"),
        (nominal(H200), &[true], 10.0, Library, "the only ones that were timed here and fit"),
        (nominal(H200), &[false], 10.0, Burn, "the default; `library` was not timed here by `cargo gpu-tuned measure`"),
        (h100(), &[false, true], 10.0, Burn, "the default; `library` was not timed here by `cargo gpu-tuned measure`"),
        (small(), &[false, true], 40.0, Library, "the only ones that were timed here and fit"),
    ] {
        let (workload, goal) = (measured_in(with, library_ms), goal(None, None));
        let plan = planned(&device, &workload, &goal);
        assert_eq!((plan.settings.kernels, &*reason(&plan, Setting::Kernels).why), (kernels, why), "{plan}");
        assert!(crate::plan::fits(&device, &workload, &goal));
        let curve = crate::plan::curve(&device, &workload, &goal).expect("a goal");
        let at_8 = curve.iter().find(|expected| expected.batch == 8).expect("it is on record");
        assert_eq!(at_8.provenance, Some(plan.samples_per_s_provenance), "{plan}");
    }
}

#[test]
fn determinism_has_its_price_where_the_library_computes() {
    let why = |workload: &Workload, kernels, deterministic| {
        let plan = planned(&nominal(H200), workload, &Goal { deterministic, ..goal(None, Some(kernels)) });
        reason(&plan, Setting::Kernels).why.clone()
    };
    let price = "; `deterministic` leaves embeddings to Burn, whose gradients take 10 times as long";
    let with_words = lm().workload();
    assert_eq!(why(&with_words, Kernels::Library, true), format!("asked for{price}"));
    let mut without_words = with_words.clone();
    without_words.sample.words = 0;
    let free = [
        why(&with_words, Kernels::Library, false),
        why(&with_words, Kernels::Burn, true),
        why(&without_words, Kernels::Library, true),
    ];
    assert_eq!(free, ["asked for"; 3]);
}

#[test]
fn explanations_show_the_kernels_of_each_candidate() {
    let explained = explain(&nominal(H200), &measured(&[false, true]), &goal(None, None)).expect("it fits");
    let shown: Vec<_> = explained.considered.iter().map(|one| (one.kernels, one.verdict.to_string())).collect();
    let burn = (Kernels::Burn, "64.5% slower than the fastest".to_owned());
    assert_eq!(shown, [burn, (Kernels::Library, "taken".to_owned())]);
}

#[test]
fn a_cpu_computes_with_burns_kernels() {
    let cpu = DeviceFacts { kind: DeviceKind::Cpu, ..nominal(H200) };
    let plan = planned(&cpu, &lm().workload(), &goal(None, Some(Kernels::Library)));
    assert_eq!(plan.settings.kernels, Kernels::Burn);
    assert_eq!(reason(&plan, Setting::Kernels).why, "a CPU has no cuBLASLt");
}
