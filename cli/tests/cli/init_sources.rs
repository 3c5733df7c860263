//! Sources that `init` does not read or write.

use std::fs;

use crate::project::Project;

#[test]
fn code_that_is_nested_too_deeply_is_skipped_with_its_line() {
    let project = Project::new("measured");
    project.write("src/deep.rs", &format!("\nfn f() {{ {}1{}; }}\n", "(".repeat(20_000), ")".repeat(20_000)));
    project.write("src/main.rs", "mod deep;\nfn main() {}\n");
    let said = project.run(&["init", "--dry-run"]);
    let skipped = "src/deep.rs:2: code is nested or chained too deeply, and is not read; this file was skipped";
    assert!(said.stderr.contains(skipped), "{}", said.stderr);
    said.ended(0);
}

#[cfg(unix)]
#[test]
fn files_outside_of_the_workspace_are_left_alone() {
    let project = Project::new("bare");
    let outside = project.path("../elsewhere.rs");
    fs::write(&outside, "fn main() {}\n").expect("a file");
    project.replace("Cargo.toml", "[package]\n", "[package]\nbuild = \"../elsewhere.rs\"\n");
    let said = project.run(&["init", "h200", "--yes", "--force"]);
    assert!(said.stdout.contains("elsewhere.rs, which is outside of the package or workspace:"), "{}", said.stdout);
    assert!(said.stdout.contains("+    gpu_tuned_build::configure().emit();"), "{}", said.stdout);
    assert_eq!(fs::read_to_string(&outside).expect("a file"), "fn main() {}\n");

    // A build script without its dependency does not compile.
    let project = Project::new("bare");
    let manifest = project.path("../elsewhere.toml");
    fs::rename(project.path("Cargo.toml"), &manifest).expect("a file");
    std::os::unix::fs::symlink(&manifest, project.path("Cargo.toml")).expect("a link");
    let said = project.run(&["init", "h200", "--yes", "--force"]);
    let (outside, script) =
        ("Cargo.toml, which is outside of the package or workspace:", "build.rs, which needs the edit of Cargo.toml:");
    assert!(said.stdout.contains(outside) && said.stdout.contains(script), "{}", said.stdout);
    assert!(!project.path("build.rs").exists());

    let project = Project::new("bare");
    std::os::unix::fs::symlink("nowhere/build.rs", project.path("build.rs")).expect("a link");
    let refused = project.run(&["init", "h200", "--yes", "--force"]).refused(2);
    assert!(refused.contains("it is a link to a file that is not there"), "{refused}");
    assert!(project.path("build.rs").is_symlink());
}
