use super::*;

#[test]
fn takes_only_what_can_be_a_feature_of_a_gpu() {
    for good in ["rtx4090", "a100-sxm4-80gb", "t4"] {
        assert!(good.parse::<ProfileId>().is_ok(), "{good}");
    }
    for bad in ["", "RTX4090", "4090", "rtx 4090", "rtx_4090", "h200-", "native", "cuda", "default", "cpu", "all"] {
        assert!(bad.parse::<ProfileId>().is_err(), "{bad}");
        assert!(ProfileId::of_user(bad).is_err(), "{bad}");
    }
    assert!("generic".parse::<ProfileId>().is_ok() && ProfileId::of_user("generic").is_err());
}

#[test]
fn suggestions_cover_spellings_versions_and_typing_errors() {
    let known = ProfileNames::new(&[]);
    for (name, hint) in [
        ("RTX-4090", "; did you mean `rtx4090`?"),
        ("rtx_a6000", "; did you mean `rtx-a6000`?"),
        ("rtx3080", "; did you mean `rtx3080-10gb` or `rtx3080-12gb`?"),
        ("rtx4060ti", "; did you mean `rtx4060-ti-16gb` or `rtx4060-ti-8gb`?"),
        (
            "v100",
            "; did you mean `v100-pcie-16gb`, `v100-pcie-32gb`, `v100-sxm2-16gb`, `v100-sxm2-32gb` or `v100-sxm3-32gb`?",
        ),
        ("rtx4900", "; did you mean `rtx4090`?"),
        ("voodoo2", ""),
    ] {
        assert_eq!(known.suggest(name).unwrap_or_default(), hint, "{name}");
    }
    assert!(known.suggest_or_advise("voodoo2").contains("targets --here --toml"));
}

#[test]
fn another_gpu_is_no_typing_error() {
    for (name, id) in [
        ("rtx3070", "rtx3090"),
        ("rtx5060", "rtx5070"),
        ("rtx5065", "rtx5060"),
        ("rtx4080-ti", "rtx4080"),
        ("l40g", "l40s"),
        ("a10m", "a10g"),
        ("p40", "l40"),
        ("h20", "h200"),
        ("t5", "t4"),
        ("titan-x", "titan-v"),
        ("rtx5090-dd", "rtx5090-d"),
    ] {
        assert!(!is_typo(name, id), "{name}, {id}");
    }
}

#[test]
fn exchanged_characters_and_misspelt_words_are() {
    for (name, id) in [
        ("rtx4900", "rtx4090"),
        ("RTX 4900", "rtx4090"),
        ("rtz4090", "rtx4090"),
        ("gtx4090", "rtx4090"),
        ("rtx4090-latop", "rtx4090-laptop"),
        ("a100-pice-80gb", "a100-pcie-80gb"),
        ("rtx4070-it", "rtx4070-ti"),
    ] {
        assert!(is_typo(name, id), "{name}, {id}");
    }
}
