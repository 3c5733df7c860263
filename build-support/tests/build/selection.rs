//! Profiles that a build is for.

use gpu_tuned_build::{Selected, configure};

use crate::project::Project;

fn targets(ids: &[&str]) -> Selected {
    Selected::Targets(ids.iter().map(|id| id.parse().unwrap()).collect())
}

#[test]
fn enabled_features_that_name_profiles_select_them() {
    for (enabled, selected) in [
        (&[][..], Selected::Generic),
        (&["default"], Selected::Generic),
        (&["h200"], targets(&["h200"])),
        (&["rtx4090", "default", "h200"], targets(&["h200", "rtx4090"])),
    ] {
        assert_eq!(Project::enabling(enabled).resolve().unwrap().selected, selected, "{enabled:?}");
    }
}

#[test]
fn without_any_feature_cargo_may_leave_the_variable_out() {
    let resolved = Project::enabling(&[]).unset("CARGO_CFG_FEATURE").resolve().unwrap();
    assert_eq!(resolved.selected, Selected::Generic);
}

#[test]
fn all_features_select_all_targets_and_say_that_native_has_no_say() {
    let project = Project::enabling(&["default", "h200", "rtx4090", "native"]);
    assert_eq!(project.resolve().unwrap().selected, targets(&["h200", "rtx4090"]));
    assert_eq!(project.warnings(), ["the feature `native` has no say, because others name a GPU: h200, rtx4090"]);
}

#[test]
fn a_feature_named_generic_gives_way_to_a_gpu() {
    let project = Project::declaring(&["generic", "h200"]);
    let alone = project.set("CARGO_CFG_FEATURE", "generic");
    assert_eq!(alone.resolve().unwrap().selected, Selected::Generic);
    assert_eq!(alone.set("CARGO_CFG_FEATURE", "generic,h200").resolve().unwrap().selected, targets(&["h200"]));
}

#[test]
fn the_variable_overrides_the_features() {
    for (asked, selected) in [
        ("rtx4090", targets(&["rtx4090"])),
        // It may name a GPU that is no feature of the package.
        (" t4, l4 ,t4", targets(&["l4", "t4"])),
        ("generic", targets(&["generic"])),
        ("", targets(&["h200"])),
    ] {
        let resolved = Project::enabling(&["h200"]).set("GPU_TUNED_TARGET", asked).resolve().unwrap();
        assert_eq!(resolved.selected, selected, "{asked:?}");
    }
}

#[test]
fn a_profile_of_the_users_own_is_selected_by_its_feature() {
    let project = Project::declaring(&["h200", "lab-box"])
        .with("gpu-tuned.toml", "[profile.lab-box]\nbase = \"rtx4090\"\nboard.tdp_w = 300.0\n")
        .set("CARGO_CFG_FEATURE", "lab-box");
    let resolved = project.resolve().unwrap();
    assert_eq!(resolved.selected, targets(&["lab-box"]));
    assert_eq!(resolved.profile.get("lab-box").unwrap().board.tdp_w, Some(300.0));
}

#[test]
fn the_table_holds_the_selected_profiles_and_no_others() {
    let resolved = Project::enabling(&["h200"]).set("GPU_TUNED_TARGET", "t4").resolve().unwrap();
    let ids = |ids: Vec<String>| ids.join(" ");
    assert_eq!(ids(resolved.declared.iter().map(ToString::to_string).collect()), "h200 rtx4090");
    assert_eq!(ids(resolved.profile.iter().map(|profile| profile.id.to_string()).collect()), "generic t4");
}

#[test]
fn one_target_is_enough_where_one_is_required() {
    for enabled in [&[][..], &["h200"]] {
        let project = Project::enabling(enabled);
        assert!(configure().require_single_target().run(&project, &mut Vec::new()).is_ok(), "{enabled:?}");
    }
}

#[test]
fn a_declared_feature_that_reads_like_a_gpu_is_warned_about() {
    let project = Project::declaring(&["default", "cuda", "h200", "rtx4900", "h100", "rtx_4090", "h264", "b10"])
        .with("gpu-tuned.toml", "");
    let unknown =
        |name: &str, hint: &str| format!("the feature `{name}` reads like a GPU, but no profile has this name{hint}");
    assert_eq!(
        project.warnings(),
        [
            unknown(
                "b10",
                "; gpu-tuned plans for NVIDIA GPUs: on a machine with this one, `cargo gpu-tuned targets --here --toml` prints its profile"
            ),
            unknown(
                "h100",
                "; did you mean `h100-nvl`, `h100-pcie`, `h100-sxm5-64gb`, `h100-sxm5-80gb` or `h100-sxm5-94gb`?"
            ),
            unknown("rtx4900", "; did you mean `rtx4090`?"),
            unknown("rtx_4090", "; did you mean `rtx4090`?"),
        ]
    );
}

#[test]
fn a_gpu_that_burn_cannot_train_on_is_warned_about() {
    let warnings = Project::enabling(&["k80", "h200"]).warnings();
    let reason = "CUDA 13 has dropped compute capability 3.7 (Kepler), and Burn needs 6.0 or later";
    assert_eq!(warnings, [format!("k80: {reason}")]);
}

#[test]
fn a_short_name_for_a_profile_is_not_warned_about() {
    let project = Project::declaring(&[]).with("Cargo.toml", "[features]\nh100-pcie = []\nh100 = [\"h100-pcie\"]\n");
    assert_eq!(project.warnings(), [""; 0]);
}
