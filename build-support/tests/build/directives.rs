//! Directives for cargo.

use std::fs;
use std::time::{Duration, SystemTime};

use gpu_tuned_build::{Resolved, configure};

use crate::project::Project;

const TABLE: &str = "out/gpu-tuned.resolved.toml";

#[test]
fn cargo_learns_of_the_table_the_files_and_the_variables() {
    let project = Project::enabling(&["h200"])
        .with("gpu-tuned.toml", "")
        .with("gpu-tuned.lock", "format = 2\n\n# end of gpu-tuned.lock\n");
    assert_eq!(
        project.directives(),
        [
            "rerun-if-changed=Cargo.toml",
            "rerun-if-changed=gpu-tuned.toml",
            "rerun-if-changed=gpu-tuned.lock",
            "rerun-if-env-changed=GPU_TUNED_TARGET",
            "rerun-if-env-changed=GPU_TUNED_PRINT",
            "rustc-env=GPU_TUNED_TABLE=ROOT/out/gpu-tuned.resolved.toml",
            "rustc-env=GPU_TUNED_RUNTIME_TABLE=ROOT/out/gpu-tuned.runtime.toml",
        ]
    );
}

#[cfg(unix)]
#[test]
fn missing_files_are_watched_through_a_folder_that_is_not_younger_than_the_manifest() {
    let project = Project::enabling(&[]);
    let watched = |project: &Project| {
        let lines = project.directives();
        lines.into_iter().filter(|line| line.starts_with("rerun-if-changed")).collect::<Vec<_>>()
    };
    let folder = "rerun-if-changed=ROOT/out/gpu-tuned.missing";
    assert_eq!(watched(&project), ["rerun-if-changed=Cargo.toml", folder]);
    let time = |name: &str| fs::metadata(project.path(name)).unwrap().modified().unwrap();
    assert_eq!(time("out/gpu-tuned.missing"), time("Cargo.toml"));
    let project = project.with("gpu-tuned.toml", "");
    assert_eq!(watched(&project), ["rerun-if-changed=Cargo.toml", "rerun-if-changed=gpu-tuned.toml", folder]);
}

#[test]
fn the_table_reads_back_as_what_was_resolved() {
    let project = Project::enabling(&["h200", "rtx4090"]);
    let resolved = project.resolve().unwrap();
    let text = fs::read_to_string(project.path(TABLE)).unwrap();
    assert_eq!(Resolved::from_toml(&text).unwrap(), resolved);
}

#[test]
fn the_table_is_written_again_only_when_it_changed() {
    let project = Project::enabling(&["h200"]);
    project.resolve().unwrap();
    let long_ago = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    fs::File::options().write(true).open(project.path(TABLE)).unwrap().set_modified(long_ago).unwrap();
    let time = || fs::metadata(project.path(TABLE)).unwrap().modified().unwrap();
    project.resolve().unwrap();
    assert_eq!(time(), long_ago);
    project.file("gpu-tuned.toml", "[goal]\nglobal_batch = 64\n");
    project.resolve().unwrap();
    assert_ne!(time(), long_ago);
}

#[test]
fn another_config_file_is_watched_and_read() {
    let project = Project::enabling(&[]).with("tuning.toml", "[goal]\nglobal_batch = 64\n");
    let mut out = Vec::new();
    let resolved = configure().config_file("tuning.toml").run(&project, &mut out).unwrap();
    assert_eq!(resolved.goal.global_batch, Some(64));
    assert!(String::from_utf8(out).unwrap().contains("cargo::rerun-if-changed=tuning.toml\n"));
}
