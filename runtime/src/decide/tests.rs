use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::WorkloadSpec;
use gpu_tuned_core::{Goal, Kernels, Pins, Provenance, Setting, SettingValue, Settings};

use super::{Decision, DecisionContext};
use crate::{Built, Change, Fallback, Options, Tuned};

/// A config with a field for TF32, built where TF32 was allowed or not.
struct Config<const BUILT_WITH: bool> {
    allow_tf32: bool,
}

impl<const BUILT_WITH: bool> Tuned for Config<BUILT_WITH> {
    const BUILT: Built = Built {
        settings: Settings {
            batch_size: 8,
            allow_tf32: BUILT_WITH,
            prefetch_depth: 0,
            num_workers: 0,
            eval_batch_size: 8,
            ..Settings::DEFAULT
        },
        ..Built::GENERIC
    };

    fn goal() -> Goal {
        Goal::default()
    }

    fn workload(&self) -> WorkloadSpec {
        serde_json::from_str(r#"{"model": {"mlp": {"widths": [4, 4]}}}"#).expect("a workload")
    }

    fn tuned(&self) -> Pins {
        let mut pins = Pins::default();
        pins.allow_tf32 = Some(self.allow_tf32);
        pins
    }

    fn apply(&mut self, settings: &Settings) {
        self.allow_tf32 = settings.allow_tf32;
    }
}

/// Decision where TF32 cannot be as requested, and the reported changes.
fn forced<const BUILT_WITH: bool>(allow_tf32: bool, tell: impl Fn(&mut Decision)) -> (Decision, Vec<Change>) {
    let mut set = Pins::default();
    set.allow_tf32 = Some(allow_tf32);
    let config = Config::<BUILT_WITH> { allow_tf32: !allow_tf32 };
    let mut decision = Options::default().cpu().set(set).decide(&config).expect("it fits");
    tell(&mut decision);
    let changes = decision.selection.changes.iter().filter(|change| change.setting == Setting::AllowTf32).copied();
    let changes = changes.collect();
    (decision, changes)
}

fn why(decision: &Decision) -> (Provenance, &str) {
    let reason = decision.plan.reasons.iter().find(|reason| reason.setting == Setting::AllowTf32).expect("a reason");
    (reason.provenance, reason.why.as_str())
}

#[test]
fn tf32_that_stays_on_is_a_fallback_and_no_wish_of_the_user() {
    let stays = |decision: &mut Decision| decision.tf32_stays("it was used before".to_owned());
    let (decision, changes) = forced::<true>(true, stays);
    assert!(changes.is_empty(), "{changes:?}");
    let mut config = Config::<true> { allow_tf32: false };
    config.apply(&decision.plan.settings);
    assert!(config.allow_tf32);
    assert_eq!(why(&decision), (Provenance::Derived, "could not be switched off"));
    let fallback = decision.selection.fallbacks.last().expect("a fallback");
    assert_eq!(fallback.to_string(), "TF32 stays on, which changes the results: it was used before");
    assert!(matches!(fallback, Fallback::Tf32 { .. }) && fallback.changes_meaning());
    // A build without has it as a change.
    let (_, changes) = forced::<false>(true, stays);
    let (built, used) = (SettingValue::Flag(false), SettingValue::Flag(true));
    assert_eq!(changes, [Change { setting: Setting::AllowTf32, built, used, by_user: false }]);
}

#[test]
fn tf32_that_is_off_already_is_a_change_and_no_wish_of_the_user() {
    let (decision, changes) = forced::<true>(false, Decision::tf32_is_off);
    let (built, used) = (SettingValue::Flag(true), SettingValue::Flag(false));
    assert_eq!(changes, [Change { setting: Setting::AllowTf32, built, used, by_user: false }]);
    assert_eq!(why(&decision), (Provenance::Derived, "switched off in this process before"));
    assert!(decision.selection.fallbacks.iter().all(|fallback| !matches!(fallback, Fallback::Tf32 { .. })));
}

/// As where the lock has measurements of both kernels, and the library of the machine is another one.
#[test]
fn a_planned_library_that_cannot_be_used_gives_way_to_burns_kernels() {
    let facts = DeviceFacts::nominal(ProfileTable::builtin().get("rtx4090").expect("a shipped profile"));
    let (machine, set) = (crate::detect(), Pins::default());
    let context = DecisionContext::first(&machine, &set);
    assert_eq!(super::without_library(Goal::default(), context, &facts), (Goal::default(), None));
    let context = DecisionContext { no_library: Some("it is too old"), ..context };
    for asked in [None, Some(Kernels::Library)] {
        let goal = Goal { kernels: asked, ..Goal::default() };
        let (goal, because) = super::without_library(goal, context, &facts);
        assert_eq!((goal.kernels, because), (Some(Kernels::Burn), Some("it is too old")));
    }
}
