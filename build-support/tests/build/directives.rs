//! Directives for cargo.

use std::fs;
use std::time::{Duration, SystemTime};

use gpu_tuned_build::{Resolved, configure};
use gpu_tuned_project::workspace::normalized;
use tempfile::TempDir;

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
    let project = project.with_metadata("config-file = \"tuning.toml\"");
    assert_eq!(project.resolve().unwrap().goal.global_batch, Some(64));
    assert!(project.directives().contains(&"rerun-if-changed=tuning.toml".to_owned()));
}

/// A member of a workspace, with the workspace's `gpu-tuned.toml` if it has one.
fn member(of_workspace: Option<&str>) -> (TempDir, Project) {
    let workspace = tempfile::tempdir().unwrap();
    fs::write(workspace.path().join("Cargo.toml"), "[workspace]\nmembers = [\"crates/*\"]\n").unwrap();
    if let Some(text) = of_workspace {
        fs::write(workspace.path().join("gpu-tuned.toml"), text).unwrap();
    }
    fs::create_dir_all(workspace.path().join("crates")).unwrap();
    let project = Project::below(&workspace.path().join("crates"));
    (workspace, project)
}

#[test]
fn a_member_without_a_file_has_that_of_the_workspace() {
    let (workspace, project) = member(Some("[goal]\nglobal_batch = 48\n"));
    let resolved = project.resolve().unwrap();
    assert_eq!((resolved.goal.global_batch, resolved.file()), (Some(48), "../../gpu-tuned.toml"));
    assert!(project.directives().contains(&"rerun-if-changed=../../gpu-tuned.toml".to_owned()));
    // The member's own file replaces it.
    project.file("gpu-tuned.toml", "");
    let resolved = project.resolve().unwrap();
    assert_eq!((resolved.goal.global_batch, resolved.file()), (None, "gpu-tuned.toml"));
    fs::remove_file(project.path("gpu-tuned.toml")).unwrap();
    // A link to a missing file does not count as none.
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink("none", project.path("gpu-tuned.toml")).unwrap();
        assert!(project.report(&configure()).starts_with("error: cannot read `gpu-tuned.toml`: it is a link"));
        fs::remove_file(project.path("gpu-tuned.toml")).unwrap();
    }
    fs::write(workspace.path().join("gpu-tuned.toml"), "[gaol]\n").unwrap();
    let report = project.report(&configure());
    assert!(report.contains("--> ../../gpu-tuned.toml:1:2"), "{report}");
}

#[test]
fn the_file_of_a_workspace_beside_the_package_has_a_relative_path() {
    let folder = tempfile::tempdir().unwrap();
    let project = Project::below(folder.path());
    let workspace = folder.path().join("workspace");
    fs::create_dir(&workspace).unwrap();
    let member = project.path("");
    fs::write(workspace.join("Cargo.toml"), format!("[workspace]\nmembers = [{:?}]\n", member.display().to_string()))
        .unwrap();
    fs::write(workspace.join("gpu-tuned.toml"), "[goal]\nglobal_batch = 48\n").unwrap();
    project.file("Cargo.toml", "[package]\nname = \"user\"\nworkspace = \"../workspace\"\n");
    let resolved = project.resolve().unwrap();
    assert_eq!((resolved.goal.global_batch, resolved.file()), (Some(48), "../workspace/gpu-tuned.toml"));
}

#[test]
fn the_manifest_with_the_list_of_members_is_watched() {
    let (workspace, project) = member(Some("[goal]\nglobal_batch = 48\n"));
    let watched = "rerun-if-changed=../../Cargo.toml".to_owned();
    assert!(project.directives().contains(&watched));
    fs::write(workspace.path().join("Cargo.toml"), "[workspace]\n").unwrap();
    assert_eq!(project.resolve().unwrap().goal.global_batch, None);
    assert!(project.directives().contains(&watched));
}

#[cfg(unix)]
#[test]
fn a_file_that_the_workspace_may_get_is_watched() {
    let (_workspace, project) = member(None);
    assert_eq!(project.resolve().unwrap().file(), "gpu-tuned.toml");
    let folder = project.path("out/gpu-tuned.missing");
    let links: Vec<_> =
        fs::read_dir(&folder).unwrap().map(|link| fs::read_link(link.unwrap().path()).unwrap()).collect();
    let watched: Vec<_> = links.iter().map(|link| normalized(&folder.join(link))).collect();
    assert!(watched.contains(&normalized(&project.path("../../gpu-tuned.toml"))), "{watched:?}");
    // A project that is moved takes them along.
    assert!(links.iter().all(|link| link.is_relative()), "{links:?}");
}
