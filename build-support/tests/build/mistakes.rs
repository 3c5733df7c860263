//! Messages of a build script that stops.

use gpu_tuned_build::{Config, configure};

use crate::project::Project;

fn report(project: &Project) -> String {
    project.report(&configure())
}

#[test]
fn every_mistake_of_the_config_file_is_shown_at_its_place() {
    let text = "[goal]\nmemory_headroom = 2\n\n[profil.mine]\n\n[workload.tiny]\n\tparameters = 0\n\
                activation_bytes_per_sample = 1\nflops_per_sample = 1.0\n";
    let expected = "\
error: memory_headroom = 2 is out of range, expected 0 to 0.9
 --> gpu-tuned.toml:2:19
  |
2 | memory_headroom = 2
  |                   ^

error: unknown section `profil`, expected profile, workload or goal; did you mean `profile`?
 --> gpu-tuned.toml:4:2
  |
4 | [profil.mine]
  |  ^

error: parameters = 0 is out of range, expected 1 to 2^50
 --> gpu-tuned.toml:7:15
  |
7 |  parameters = 0
  |               ^

";
    assert_eq!(report(&Project::enabling(&[]).with("gpu-tuned.toml", text)), expected);
}

#[test]
fn unknown_names_in_the_variable_are_all_named_with_what_was_meant() {
    let project = Project::enabling(&[]).set("GPU_TUNED_TARGET", "h200,rtx4900,rtx3080,voodoo");
    let expected = "\
error: GPU_TUNED_TARGET: there is no profile `rtx3080`; did you mean `rtx3080-10gb` or `rtx3080-12gb`?
error: GPU_TUNED_TARGET: there is no profile `rtx4900`; did you mean `rtx4090`?
error: GPU_TUNED_TARGET: there is no profile `voodoo`; gpu-tuned plans for NVIDIA GPUs: on a machine with this one, `cargo gpu-tuned targets --here --toml` prints its profile
";
    assert_eq!(report(&project), expected);
}

#[test]
fn generic_and_native_stand_alone() {
    for word in ["generic", "native"] {
        let report = report(&Project::enabling(&[]).set("GPU_TUNED_TARGET", format!("h200,{word}")));
        assert!(report.starts_with(&format!("error: GPU_TUNED_TARGET: `{word}` has to stand alone\n")), "{report}");
    }
}

#[test]
fn several_targets_are_listed_where_one_is_required() {
    let config: Config = configure().require_single_target();
    let expected = "\
error: several GPUs are selected, and build.rs asks for one: h200, rtx4090
  = help: enable one of them, or name one in GPU_TUNED_TARGET
";
    assert_eq!(Project::enabling(&["h200", "rtx4090"]).report(&config), expected);
    assert_eq!(Project::enabling(&[]).set("GPU_TUNED_TARGET", "rtx4090,h200").report(&config), expected);
}

#[test]
fn outside_cargo_the_missing_variable_is_named() {
    let expected = "error: `OUT_DIR` is not set: gpu-tuned-build works in a build script that cargo runs\n";
    assert_eq!(report(&Project::enabling(&[]).unset("OUT_DIR")), expected);
}

#[test]
fn a_file_of_the_metadata_has_to_exist() {
    let named = |line: &str| report(&Project::enabling(&[]).with_metadata(line));
    assert!(named("config-file = \"tuning.toml\"").starts_with("error: cannot read `tuning.toml`: "));
    let misspelt = named("config_files = \"tuning.toml\"");
    let expected = "error: unknown key `config_files`; did you mean `config-file`?; [package.metadata.gpu-tuned] takes \
                    config-file\n";
    assert!(misspelt.starts_with(expected), "{misspelt}");
    assert!(misspelt.contains("--> Cargo.toml:"), "{misspelt}");
}

#[test]
fn the_table_is_printed_on_request_and_the_build_stops() {
    let project = Project::enabling(&["h200"]).set("GPU_TUNED_PRINT", "1");
    let report = report(&project);
    assert!(report.starts_with("format = 1\npackage = \"user\"\ndeclared = [\"h200\", \"rtx4090\"]\n"), "{report}");
    let end = "error: the build stops here because GPU_TUNED_PRINT is set\n  = help: unset GPU_TUNED_PRINT to build\n";
    assert!(report.ends_with(end), "{report}");
    assert!(project.set("GPU_TUNED_PRINT", "0").resolve().is_ok());
}

#[cfg(not(feature = "native"))]
#[test]
fn native_without_the_crates_own_feature_says_what_to_add() {
    let expected = "\
error: `native` is selected, and gpu-tuned-build was compiled without its feature `native`
  = help: in Cargo.toml, write `native = [\"gpu-tuned-build/native\"]` under [features], or add features = [\"native\"] \
                    to gpu-tuned-build under [build-dependencies]
";
    assert_eq!(report(&Project::enabling(&["native"])), expected);
    assert_eq!(report(&Project::enabling(&[]).set("GPU_TUNED_TARGET", "native")), expected);
    // A feature of any name selects the GPU, under the name that the package gives this crate.
    let manifest = "[features]\nhere = [\"tb/native\"]\n\n[build-dependencies]\ntb.package = \"gpu-tuned-build\"\n";
    let renamed = Project::enabling(&["here"]).with("Cargo.toml", manifest);
    assert_eq!(report(&renamed), expected);
    let other = Project::enabling(&["here"]).with("Cargo.toml", &manifest.replace("tb/", "other/"));
    assert!(other.resolve().is_ok());
}

#[cfg(unix)]
#[test]
fn a_link_to_a_missing_file_is_a_mistake() {
    for (name, target) in
        [("gpu-tuned.toml", "none.toml"), ("gpu-tuned.lock", "none.lock"), ("gpu-tuned.toml", "gpu-tuned.toml")]
    {
        let project = Project::enabling(&["h200"]);
        std::os::unix::fs::symlink(target, project.path(name)).unwrap();
        let report = report(&project);
        assert!(report.starts_with(&format!("error: cannot read `{name}`: ")), "{report}");
        assert!(report.contains("\n  = help: "), "{report}");
    }
}

#[test]
fn a_target_of_commas_or_spaces_is_a_mistake() {
    for value in [",", " ", " , "] {
        let report = report(&Project::enabling(&["h200"]).set("GPU_TUNED_TARGET", value));
        assert!(report.starts_with(&format!("error: GPU_TUNED_TARGET: `{value}` names no profile\n")), "{report}");
    }
}

#[test]
fn a_merge_that_left_both_sides_is_named() {
    let text = "[goal]\n<<<<<<< HEAD\nglobal_batch = 64\n=======\nglobal_batch = 32\n>>>>>>> other\n";
    let report = report(&Project::enabling(&[]).with("gpu-tuned.toml", text));
    assert!(report.starts_with("error: a merge left both sides here: "), "{report}");
    assert!(report.contains("--> gpu-tuned.toml:2:1"), "{report}");
}
