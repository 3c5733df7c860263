use proptest::prelude::*;
use toml::{Table, Value};

use super::{OnResume, Pins, Setting, SettingKind, SettingRow, SettingValue, Settings};
use crate::device::DeviceFacts;
use crate::profile::ProfileTable;
use crate::workload::Transformer;
use crate::{Goal, Kernels, Precision, Provenance, plan};

/// A value that differs from the default.
fn other(setting: Setting) -> SettingValue {
    match Settings::DEFAULT.get(setting) {
        SettingValue::Count(count) => SettingValue::Count(count + 1),
        SettingValue::Flag(flag) => SettingValue::Flag(!flag),
        SettingValue::Precision(_) => SettingValue::Precision(Precision::MixedBf16),
        SettingValue::Kernels(_) => SettingValue::Kernels(Kernels::Library),
    }
}

/// Pins of one setting, parsed from text.
fn pinned(setting: Setting) -> Pins {
    format!("{setting}={}", other(setting)).parse().expect("a pin")
}

#[test]
fn every_setting_is_parsed_and_printed_as_a_pin() {
    for setting in Setting::ALL {
        let pins = pinned(setting);
        assert_eq!(pins.iter().collect::<Vec<_>>(), [(setting, other(setting))]);
        assert_eq!(pins.to_string(), format!("{setting}={}", other(setting)));
        assert_eq!(Setting::named(setting.name()), Some(setting));
        assert!(pins.has(setting) && !pins.is_empty());
        assert!(setting.row().meaning.ends_with('.'), "{setting}");
        assert_eq!(setting.row().unit.is_some(), setting.kind() == SettingKind::Count, "{setting}");
    }
}

#[test]
fn counts_are_those_in_the_range_of_their_setting() {
    for setting in Setting::ALL.into_iter().filter(|setting| setting.kind() == SettingKind::Count) {
        let SettingRow { least, most, .. } = *setting.row();
        assert!(most.is_power_of_two(), "{setting}");
        let exponent = most.ilog2();
        let set = |count: i128| Pins::default().set(setting, &count.to_string()).map_err(|error| error.to_string());
        for count in [least, most] {
            assert_eq!(set(count.into()), Ok(()));
        }
        for count in [i128::from(least) - 1, i128::from(most) + 1, i64::MAX.into()] {
            let message =
                format!("{setting} cannot be `{count}`: expected a whole number from {least} to 2^{exponent}");
            assert_eq!(set(count), Err(message));
        }
    }
}

#[test]
fn every_setting_survives_a_file_and_older_files_get_its_default() {
    for setting in Setting::ALL {
        let mut settings = Settings::DEFAULT;
        pinned(setting).over(&mut settings);
        for one in Setting::ALL {
            let expected = if one == setting { other(one) } else { Settings::DEFAULT.get(one) };
            assert_eq!(settings.get(one), expected);
        }
        let mut file = Table::try_from(settings).expect("a table");
        assert_eq!(file[setting.name()], Value::try_from(other(setting)).expect("a value"));
        assert_eq!(file.clone().try_into::<Settings>().expect("settings"), settings);
        file.remove(setting.name());
        assert_eq!(file.try_into::<Settings>().expect("an older file"), Settings::DEFAULT);
        let file = Table::try_from(pinned(setting)).expect("a table");
        assert_eq!(file.try_into::<Pins>().expect("pins"), pinned(setting));
        assert_eq!(Value::try_from(setting).expect("a name"), Value::from(setting.name()));
        assert_eq!(Pins::from(&settings).keep(|one| one == setting), pinned(setting));
    }
}

#[test]
fn every_setting_is_planned_and_pinned_with_a_reason_in_the_report() {
    let device = DeviceFacts::nominal(ProfileTable::builtin().get("rtx4090").expect("it is shipped"));
    let workload = Transformer::new(2, 64, 256, 64).workload();
    let planned = plan(&device, &workload, &Goal::default()).expect("it fits");
    for setting in Setting::ALL {
        let reason = planned.reasons.iter().find(|reason| reason.setting == setting).expect("a reason");
        assert!(!reason.why.is_empty());
        let plan = plan(&device, &workload, &Goal { pins: pinned(setting), ..Goal::default() }).expect("it fits");
        assert_eq!(plan.settings.get(setting), other(setting));
        let reason = plan.reasons.iter().find(|reason| reason.setting == setting).expect("a reason");
        assert_eq!((reason.provenance, reason.why.as_str()), (Provenance::Declared, "set in the config"));
        assert!(reason.why.split_whitespace().count() <= 12, "{}", reason.why);
        let line = format!("  {:<22} {:>9}  {} (declared)\n", setting, other(setting), reason.why);
        assert!(plan.to_string().contains(&line), "{plan}");
    }
}

#[test]
fn a_step_is_cut_by_the_pins_of_one_source() {
    let cuts: Vec<_> = Setting::ALL.into_iter().filter(|setting| setting.row().cuts_step).collect();
    for setting in Setting::ALL {
        for second in Setting::ALL {
            let both = pinned(setting).or(&pinned(second));
            let is_dropped = setting != second && cuts.contains(&setting) && cuts.contains(&second);
            assert_eq!(both.has(second), !is_dropped, "{setting}, {second}");
        }
        assert_eq!(Pins::default().or(&pinned(setting)), pinned(setting));
    }
    // The micro-batch of a saved run is kept, and the number of micro-batches follows.
    assert_eq!(cuts.iter().filter(|setting| setting.row().on_resume == OnResume::Keep).count(), 1);
}

#[test]
fn a_mistake_is_reported_with_a_correction() {
    let names = Setting::ALL.map(Setting::name).join(", ");
    for (text, message) in [
        ("batch_size", "`batch_size` has no value: write it as batch_size=VALUE; values are separated by commas"),
        ("batch_sise=4", &format!("there is no setting `batch_sise`; did you mean `batch_size`?; there are {names}")),
        (
            "batch_size=64 num_workers=2",
            "batch_size cannot be `64 num_workers=2`: expected a whole number from 1 to 2^30; settings are separated by commas",
        ),
        ("allow_tf32=on", "allow_tf32 cannot be `on`: expected true or false"),
        (
            "precision=mixed_bf1",
            "precision cannot be `mixed_bf1`: expected f32, mixed_bf16, mixed_f16, bf16_params; did you mean \
             `mixed_bf16`?",
        ),
        ("kernels=librari", "kernels cannot be `librari`: expected burn or library; did you mean `library`?"),
        ("num_workers=1,num_workers=2", "num_workers is given twice: keep one of them"),
    ] {
        assert_eq!(text.parse::<Pins>().unwrap_err().to_string(), message, "{text}");
    }
    assert_eq!(" num_workers = 4 , ".parse::<Pins>().unwrap().to_string(), "num_workers=4");
    assert_eq!("".parse::<Pins>().unwrap(), Pins::default());
}

proptest! {
    #[test]
    fn pins_never_panic_and_survive_their_text(text in "[a-z_=,0-9 -]{0,40}") {
        if let Ok(pins) = text.parse::<Pins>() {
            prop_assert_eq!(pins.to_string().parse::<Pins>(), Ok(pins));
        }
    }
}
