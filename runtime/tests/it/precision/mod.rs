//! Precisions that the planner chooses, on machines that a fake management library plays.

#[cfg(feature = "burn")]
mod burn;
mod fields;
#[cfg(unix)]
mod not_ready;

use gpu_tuned::{
    Built, Decision, Fallback, Options, Pins, PlanError, Precision, ResumeError, SavedRun, Setting, Settings,
    StartError, Tuned,
};
use tempfile::{TempDir, tempdir};

use crate::played::{decide, machine, on};

config! {
    ForRtx4090 { #[tuned] batch_size: usize, #[tuned] precision: Precision },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "rtx4090"
}

// The policy without a field.
config! {
    ForGtx1080, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 512, precision = "auto", target = "gtx1080"
}

config! {
    ForAnyGpu { #[tuned] precision: Precision },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "generic"
}

config! {
    PlannedAnywhere, transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256),
    global_batch = 512, precision = "auto", target = "generic"
}

// A build for an RTX 4090 and a T4, which both can train in fp16.
rebuilt! { ForTwo, PlannedAnywhere, Built {
    target: "rtx4090 + t4",
    targets: &["rtx4090", "t4"],
    settings: Settings { precision: Precision::MixedF16, ..PlannedAnywhere::BUILT.settings },
    ..PlannedAnywhere::BUILT
} }

fn why(decision: &Decision) -> &str {
    let reason = decision.plan.reasons.iter().find(|reason| reason.setting == Setting::Precision);
    &reason.expect("every setting has a reason").why
}

/// Devices in place of the RTX 4090 of the build, with the precision and its reason.
const ELSEWHERE: [(&str, Precision, &str); 4] = [
    ("t4", Precision::MixedF16, "more samples/s than f32"),
    ("titan-v", Precision::MixedF16, "more samples/s than f32"),
    ("gtx1080-old-driver", Precision::F32, "no 16-bit tensor cores"),
    ("no-gpu", Precision::F32, "a CPU has no tensor cores"),
];

#[test]
fn another_device_has_the_precision_of_its_own_and_the_report_calls_it_a_change_of_results() {
    let there = decide(&ForRtx4090::default(), "rtx4090");
    assert_eq!(there.plan.settings.precision, Precision::MixedBf16);
    assert!(there.selection.is_confirmed(), "{there}");
    for (scenario, used, reason) in ELSEWHERE {
        let decision = decide(&ForRtx4090::default(), scenario);
        assert_eq!(decision.plan.settings.precision, used, "{decision}");
        assert_eq!(decision.plan.schedule.global_batch, 512);
        assert!(why(&decision).ends_with(reason), "{decision}");
        let changes: Vec<_> =
            decision.selection.fallbacks.iter().filter(|fallback| fallback.changes_meaning()).collect();
        assert_eq!(changes, [&Fallback::Precision { asked: Precision::MixedBf16, used }], "{decision}");
        let report = decision.to_string();
        let line = format!("fallback: precision {used} in place of mixed_bf16, which changes the results");
        assert!(report.contains(&line), "{report}");
        assert!(report.contains(&format!("precision mixed_bf16 -> {used} (changes results)")), "{report}");
    }
}

#[test]
fn strict_mode_refuses_another_precision() {
    for (scenario, used, _) in ELSEWHERE {
        let refused = on(scenario).strict(true).decide(&ForRtx4090::default()).expect_err("it is another precision");
        let message = refused.to_string();
        assert!(message.contains(&format!("precision {used} in place of mixed_bf16")), "{scenario}: {message}");
    }
    assert!(on("rtx4090").strict(true).decide(&ForRtx4090::default()).is_ok());
}

#[test]
fn a_build_without_16_bits_gains_them_on_a_newer_gpu_with_a_warning() {
    let decision = decide(&ForGtx1080::default(), "rtx4090");
    assert_eq!(decision.plan.settings.precision, Precision::MixedBf16, "{decision}");
    let change = Fallback::Precision { asked: Precision::F32, used: Precision::MixedBf16 };
    assert!(decision.selection.fallbacks.contains(&change), "{decision}");
    // The report has the change without a field, too.
    assert!(decision.to_string().contains("precision f32 -> mixed_bf16 (changes results)"), "{decision}");
}

#[test]
fn a_build_for_no_gpu_is_planned_for_the_one_that_is_there() {
    for (scenario, used) in [("rtx4090", Precision::MixedBf16), ("t4", Precision::MixedF16), ("no-gpu", Precision::F32)]
    {
        let decision = decide(&ForAnyGpu::default(), scenario);
        assert_eq!(decision.plan.settings.precision, used, "{decision}");
        assert!(!decision.selection.fallbacks.iter().any(Fallback::changes_meaning), "{decision}");
        let change = format!("precision f32 -> {used} (changes results)");
        assert_eq!(decision.to_string().contains(&change), used != Precision::F32, "{decision}");
    }
}

#[test]
fn each_target_of_a_build_for_several_keeps_the_precision_that_all_can_do() {
    for scenario in ["rtx4090", "t4"] {
        let decision = decide(&ForTwo::default(), scenario);
        assert_eq!(decision.plan.settings.precision, Precision::MixedF16, "{decision}");
        assert!(why(&decision).starts_with("as built"), "{decision}");
        assert!(!decision.selection.fallbacks.iter().any(Fallback::changes_meaning), "{decision}");
    }
    let decision = decide(&ForTwo::default(), "h200");
    let change = Fallback::Precision { asked: Precision::MixedF16, used: Precision::MixedBf16 };
    assert_eq!(decision.selection.fallbacks, [change], "{decision}");
}

#[test]
fn less_free_memory_does_not_change_the_precision() {
    let needed = decide(&ForRtx4090::default(), "rtx4090").plan.memory.total();
    let mut machine = machine("rtx4090");
    machine.gpus[0].memory_free = Some(needed.scaled(0.9));
    let decision = Options::default().machine(machine).decide(&ForRtx4090::default()).expect("less fits");
    assert_eq!(decision.plan.settings.precision, Precision::MixedBf16, "{decision}");
    assert!(why(&decision).starts_with("as built"), "{decision}");
}

#[test]
fn pins_win_over_the_policy() {
    let set = |text: &str| text.parse::<Pins>().expect("it is a setting");
    let decision = on("rtx4090").set(set("precision=f32")).decide(&ForRtx4090::default()).expect("it fits");
    assert_eq!((decision.plan.settings.precision, why(&decision)), (Precision::F32, "set for this start"));
    assert!(decision.to_string().contains("precision mixed_bf16 -> f32 (set by you, changes results)"), "{decision}");
    let config = ForRtx4090 { precision: Precision::Bf16Params, ..ForRtx4090::default() };
    assert_eq!(decide(&config, "rtx4090").plan.settings.precision, Precision::Bf16Params);
    let refused = on("t4").decide(&config).expect_err("a T4 has no bf16");
    assert!(matches!(refused, StartError::Plan(PlanError::PrecisionUnsupported { .. })), "{refused}");
}

/// A directory with a run of the config, decided for the scenario.
fn saved<C: Tuned>(config: &C, scenario: &str) -> TempDir {
    let directory = tempdir().expect("a temporary directory");
    SavedRun::new(config, &decide(config, scenario)).save(&directory).expect("it is saved");
    directory
}

#[test]
fn a_resumed_run_keeps_its_precision() {
    for (from, to, kept) in [
        ("rtx4090", "h200", Precision::MixedBf16),
        ("t4", "rtx4090", Precision::MixedF16),
        ("gtx1080-old-driver", "rtx4090", Precision::F32),
        ("no-gpu", "t4", Precision::F32),
    ] {
        let directory = saved(&ForRtx4090::default(), from);
        let decision = on(to).resume(directory.path()).decide(&ForRtx4090::default()).expect("it can go on");
        assert_eq!(decision.plan.settings.precision, kept, "{from} to {to}: {decision}");
        assert_eq!(why(&decision), "as in the saved run", "{from} to {to}");
        let change = format!("precision mixed_bf16 -> {kept} (changes results)");
        assert_eq!(decision.to_string().contains(&change), kept != Precision::MixedBf16, "{decision}");
    }
}

#[test]
fn a_run_is_not_resumed_where_its_precision_is_not_supported() {
    let directory = saved(&ForRtx4090::default(), "rtx4090");
    for scenario in ["t4", "gtx1080-old-driver", "no-gpu"] {
        let refused = on(scenario).resume(directory.path()).decide(&ForRtx4090::default()).expect_err("no bf16");
        assert!(
            matches!(refused, StartError::Resume(ResumeError::PrecisionUnsupported { .. })),
            "{scenario}: {refused}"
        );
        assert!(refused.to_string().ends_with("; go on where it can"), "{scenario}: {refused}");
    }
}
