//! Fields that have the precision as a switch, a text or a user's enum.

use gpu_tuned::{Precision, Tuned};

use super::{decide, on, saved};

config! {
    Switched { #[tuned(setting = precision)] amp: bool },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "rtx4090"
}

config! {
    SwitchedOff { #[tuned(setting = precision)] amp: bool },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "gtx1080"
}

config! {
    Named { #[tuned] precision: String },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "rtx4090"
}

/// Formats of numbers, not all of which are trained in.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Numbers {
    Int8,
    Fp32,
    BF16,
    Float16,
}

config! {
    WithEnum { #[tuned(setting = precision)] numbers: Numbers },
    transformer(layers = 6, d_model = 512, vocab = 8192, seq = 256), global_batch = 512, target = "rtx4090"
}

/// The config after a start on the scenario.
fn applied<C: Tuned + Clone>(config: &C, scenario: &str) -> C {
    let mut config = config.clone();
    let settings = decide(&config, scenario).plan.settings;
    config.apply(&settings);
    config
}

#[test]
fn a_switch_follows_the_device() {
    assert!(Switched::default().amp && !SwitchedOff::default().amp);
    for (scenario, is_on) in [("rtx4090", true), ("t4", true), ("gtx1080-old-driver", false), ("no-gpu", false)] {
        assert_eq!(applied(&Switched::default(), scenario).amp, is_on, "{scenario}");
        assert_eq!(applied(&SwitchedOff::default(), scenario).amp, is_on, "{scenario}");
    }
}

#[test]
fn a_switch_that_the_user_turns_is_kept() {
    let off = Switched { amp: false };
    let decision = decide(&off, "rtx4090");
    assert_eq!(decision.plan.settings.precision, Precision::F32, "{decision}");
    assert!(decision.to_string().contains("precision mixed_bf16 -> f32 (set by you, changes results)"), "{decision}");
    let on_ = SwitchedOff { amp: true };
    for (scenario, precision) in [("rtx4090", Precision::MixedBf16), ("t4", Precision::MixedF16)] {
        let decision = decide(&on_, scenario);
        assert_eq!(decision.plan.settings.precision, precision, "{decision}");
        assert!(decision.selection.changes.iter().all(|change| change.by_user), "{decision}");
    }
    let refused = on("gtx1080-old-driver").decide(&on_).expect_err("no 16-bit tensor cores");
    assert!(refused.to_string().ends_with("; use f32"), "{refused}");
    // A saved run decides which 16 bits the switch means.
    let directory = saved(&on_, "t4");
    let resumed = on("rtx4090").resume(directory.path()).decide(&on_).expect("it can go on");
    assert_eq!(resumed.plan.settings.precision, Precision::MixedF16, "{resumed}");
}

#[test]
fn a_text_is_read_by_its_usual_names_and_stays_as_written() {
    assert_eq!(Named::default().precision, "mixed_bf16");
    assert_eq!(applied(&Named::default(), "t4").precision, "mixed_f16");
    for (text, precision) in [("bf16-mixed", Precision::MixedBf16), ("float32", Precision::F32)] {
        let config = Named { precision: text.to_owned() };
        assert_eq!(decide(&config, "rtx4090").plan.settings.precision, precision, "{text}");
        assert_eq!(applied(&config, "rtx4090").precision, text);
    }
    let refused = on("rtx4090").decide(&Named { precision: "int8".to_owned() }).expect_err("no precision");
    let expected = "the config's `precision` names no precision: expected f32, mixed_bf16, mixed_f16, bf16_params, or \
                    a usual name of one, such as bf16";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn an_enum_gets_the_variant_of_the_plan() {
    assert_eq!(WithEnum::default().numbers, Numbers::BF16);
    for (scenario, numbers) in
        [("rtx4090", Numbers::BF16), ("t4", Numbers::Float16), ("gtx1080-old-driver", Numbers::Fp32)]
    {
        assert_eq!(applied(&WithEnum::default(), scenario).numbers, numbers, "{scenario}");
    }
    let fixed = decide(&WithEnum { numbers: Numbers::Fp32 }, "rtx4090");
    assert_eq!(fixed.plan.settings.precision, Precision::F32, "{fixed}");
    let refused = on("rtx4090").decide(&WithEnum { numbers: Numbers::Int8 }).expect_err("nothing trains in int8");
    assert!(refused.to_string().starts_with("the config's `numbers` names no precision"), "{refused}");
}

#[test]
fn variants_are_found_by_their_usual_names() {
    assert_eq!(gpu_tuned::__precision_variant!(Numbers, F32), Numbers::Fp32);
    assert_eq!(gpu_tuned::__precision_of!(Numbers, Numbers::Int8), None);
    for precision in Precision::ALL {
        let (mut numbers, mut own) = (Numbers::Int8, Precision::F32);
        gpu_tuned::__set_precision!(Numbers, numbers, precision);
        gpu_tuned::__set_precision!(Precision, own, precision);
        // The enum has no variant for pure bf16, and keeps its value.
        let written = Some(precision).filter(|precision| *precision != Precision::Bf16Params);
        assert_eq!(gpu_tuned::__precision_of!(Numbers, numbers), written, "{precision}");
        assert_eq!(gpu_tuned::__precision_of!(Precision, own), Some(precision));
    }
}
