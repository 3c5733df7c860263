//! Every setting of the table, pinned, saved and restored.

use gpu_tuned::{
    Built, Goal, Kernels, OnResume, Options, Pins, Precision, SavedRun, Setting, SettingValue, Settings, Tuned,
    WorkloadSpec,
};

use super::{Lm, edit, machine, resume, saved};

/// A config with a field for every setting.
struct Every(Pins);

impl Tuned for Every {
    const BUILT: Built = Lm::BUILT;

    fn goal() -> Goal {
        Lm::goal()
    }

    fn workload(&self) -> WorkloadSpec {
        Lm::default().workload()
    }

    fn tuned(&self) -> Pins {
        self.0.clone()
    }

    fn apply(&mut self, settings: &Settings) {
        self.0 = settings.into();
    }
}

/// Pins of a value that the build does not have.
fn pin(setting: Setting) -> (Pins, SettingValue) {
    let value = match Every::BUILT.settings.get(setting) {
        SettingValue::Count(count) => SettingValue::Count(count + 2),
        SettingValue::Flag(flag) => SettingValue::Flag(!flag),
        SettingValue::Precision(_) => SettingValue::Precision(Precision::MixedBf16),
        SettingValue::Kernels(_) => SettingValue::Kernels(Kernels::Library),
    };
    (format!("{setting}={value}").parse().expect("a pin"), value)
}

#[test]
fn every_setting_is_pinned_saved_and_restored() {
    let config = || Every(Pins::from(&Every::BUILT.settings));
    for setting in Setting::ALL {
        let (pins, value) = pin(setting);
        let decision = Options::default().machine(machine("rtx4090")).set(pins).decide(&config()).expect("it fits");
        assert_eq!(decision.plan.settings.get(setting), value);
        let changed = decision.selection.changes.iter().find(|change| change.setting == setting).expect("a change");
        assert!(changed.by_user && changed.used == value, "{changed}");
        let line = format!("{setting:<22} {value:>9}  set for this start");
        assert!(decision.to_string().contains(&line), "{decision}");

        let directory = saved(&config(), &decision);
        let loaded = SavedRun::load(directory.path()).expect("it can be read").expect("it was saved");
        assert_eq!(loaded.settings.get(setting), value);
        let resumed = resume(&config(), "rtx4090", &directory).expect("it fits");
        let now = resumed.plan.settings.get(setting);
        let changes = &resumed.selection.resumed.as_ref().expect("it is resumed").changes;
        let change = changes.iter().find(|change| change.setting == setting);
        if setting.row().on_resume == OnResume::Replan {
            assert_eq!(change.map(|change| (change.then, change.now)), (now != value).then_some((value, now)));
        } else {
            let reason = resumed.plan.reasons.iter().find(|reason| reason.setting == setting).expect("a reason");
            assert_eq!((now, change, reason.why.as_str()), (value, None, "as in the saved run"));
        }

        edit(&directory, |run| {
            run["settings"].as_object_mut().expect("a table").remove(setting.name());
        });
        // A file from before the setting existed. The settings that cut a step are checked against the schedule.
        let older = SavedRun::load(directory.path()).map(|run| run.expect("it is there").settings.get(setting));
        assert_eq!(older.ok(), (!setting.row().cuts_step).then(|| Settings::DEFAULT.get(setting)), "{setting}");
    }
}
