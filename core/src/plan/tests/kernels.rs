//! Plans with kernels of the library: asked for, or chosen where they were measured to be faster.

use super::*;
use crate::Kernels;
use crate::device::DeviceKind;

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
fn kernels_follow_the_goal_the_measurements_and_the_device() {
    use Kernels::{Burn, Library};

    let h200 = || nominal(H200);
    let both = measured(&[false, true]);
    let deterministic = |kernels| Goal { deterministic: true, ..goal(None, Some(kernels)) };
    let with_words = lm().workload();
    let mut without_words = with_words.clone();
    without_words.sample.words = 0;
    let cpu = DeviceFacts { kind: DeviceKind::Cpu, ..h200() };
    assert_plans(
        "kernels",
        vec![
            ("both were timed", h200(), both.clone(), goal(None, None)),
            ("Burn's are asked for", h200(), both.clone(), goal(None, Some(Burn))),
            ("the library's are asked for", h200(), both.clone(), goal(None, Some(Library))),
            ("the library's are pinned", h200(), both.clone(), goal(Some(Library), None)),
            ("a pin goes before the attribute", h200(), both.clone(), goal(Some(Burn), Some(Library))),
            ("Burn's were timed, the library's are pinned", h200(), measured(&[false]), goal(Some(Library), None)),
            ("the library's were timed, Burn's are pinned", h200(), measured(&[true]), goal(Some(Burn), None)),
            ("the library is 1.3% faster", h200(), measured_in(&[false, true], 29.6), goal(None, None)),
            ("the library is slower", h200(), measured_in(&[false, true], 40.0), goal(None, None)),
            ("the library's alone were timed", h200(), measured(&[true]), goal(None, None)),
            ("Burn's alone were timed", h200(), measured(&[false]), goal(None, None)),
            ("another GPU was timed", nominal("h100-sxm5-80gb"), both, goal(None, None)),
            ("only the library's fit", with_free(H200, 1700), measured_in(&[false, true], 40.0), goal(None, None)),
            ("determinism has its price", h200(), with_words.clone(), deterministic(Library)),
            ("determinism is free with Burn's", h200(), with_words.clone(), deterministic(Burn)),
            ("determinism is free without words", h200(), without_words, deterministic(Library)),
            ("a CPU", cpu, with_words, goal(None, Some(Library))),
        ],
    );
}

#[test]
fn curves_are_of_the_kernels_of_the_plan() {
    for (device, library_ms) in [(nominal(H200), 10.0), (nominal(H200), 29.6), (with_free(H200, 1700), 40.0)] {
        let (workload, goal) = (measured_in(&[false, true], library_ms), goal(None, None));
        let plan = planned(&device, &workload, &goal);
        assert!(crate::plan::fits(&device, &workload, &goal));
        let curve = crate::plan::curve(&device, &workload, &goal).expect("a goal");
        let at_8 = curve.iter().find(|expected| expected.batch == 8).expect("it is on record");
        assert!((at_8.samples_per_s - plan.samples_per_s).abs() < 1e-9, "{plan}");
    }
}

#[test]
fn explanations_show_the_kernels_of_each_candidate() {
    let explained = explain(&nominal(H200), &measured(&[false, true]), &goal(None, None)).expect("it fits");
    let shown: Vec<_> = explained.considered.iter().map(|one| (one.kernels, one.verdict.to_string())).collect();
    let burn = (Kernels::Burn, "64.5% slower than the fastest".to_owned());
    assert_eq!(shown, [burn, (Kernels::Library, "taken".to_owned())]);
}
