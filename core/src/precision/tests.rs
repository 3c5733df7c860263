use super::*;

#[test]
fn every_precision_is_a_policy_by_its_own_name() {
    let names: Vec<_> = PrecisionPolicy::CHOICES.names.iter().map(|(name, _)| *name).collect();
    let all = Precision::ALL.map(PrecisionPolicy::Fixed);
    let policies: Vec<_> = core::iter::once(PrecisionPolicy::Auto).chain(all).collect();
    assert_eq!(names, policies.iter().map(ToString::to_string).collect::<Vec<_>>());
    for (policy, name) in policies.into_iter().zip(names) {
        assert_eq!(name.parse::<PrecisionPolicy>().expect("a policy"), policy);
    }
    let error = "bf16".parse::<PrecisionPolicy>().expect_err("no policy").to_string();
    let expected = "`bf16` is not a precision: expected auto, f32, mixed_bf16, mixed_f16 or bf16_params";
    assert_eq!(error, format!("{expected}; other frameworks' `bf16` is `mixed_bf16` here"));
}

#[test]
fn a_name_is_that_of_one_precision() {
    let all: Vec<_> = NAMES.iter().flat_map(|(_, names)| names.split(' ')).collect();
    for (index, name) in all.iter().enumerate() {
        assert!(!all[..index].contains(name), "{name} is there twice");
    }
    for precision in Precision::ALL {
        assert_eq!(Precision::spelled(precision.name()), Some(precision));
    }
}

#[test]
fn case_and_separators_do_not_matter() {
    for (text, precision) in [
        ("FP32", Precision::F32),
        ("bf16-mixed", Precision::MixedBf16),
        ("BFloat16", Precision::MixedBf16),
        ("16-mixed", Precision::MixedF16),
        ("MixedF16", Precision::MixedF16),
        ("bf16-true", Precision::Bf16Params),
    ] {
        assert_eq!(Precision::spelled(text), Some(precision), "{text}");
    }
    assert_eq!(Precision::spelled("int8"), None);
}

#[test]
fn the_name_of_another_framework_is_an_error_with_the_name_here() {
    let error = |text: &str| text.parse::<PrecisionPolicy>().expect_err(text).to_string();
    for (text, ours) in [("bf16-mixed", "mixed_bf16"), ("16-mixed", "mixed_f16"), ("bf16-true", "bf16_params")] {
        let hint = format!("; other frameworks' `{text}` is `{ours}` here");
        assert_eq!(PrecisionPolicy::CHOICES.suggest(text), hint);
        assert!(error(text).ends_with(&hint), "{}", error(text));
        assert!(text.parse::<Precision>().expect_err(text).to_string().ends_with(&hint));
    }
    assert_eq!(PrecisionPolicy::CHOICES.suggest("mixed_bf15"), "; did you mean `mixed_bf16`?");
    assert!(!error("int8").contains("other frameworks"));
}
