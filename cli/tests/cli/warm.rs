use crate::project::Project;

/// Program that follows its arguments.
fn project() -> Project {
    Project::new("measuring").beside("runtime")
}

#[test]
fn the_bundle_that_the_program_made_is_told() {
    let project = project();
    let ran = project.run(&["warm", "--", "warm"]);
    // It is built as it will run: with the features asked for, and no other.
    assert!(ran.stderr.contains("counts: false, loud: true, quiet: false"), "{}", ran.stderr);
    let said = ran.ended(0);
    let line = "lm: gpu-tuned.warm/gpu-tuned-nvidia-h200.bundle, 412 entries, 25.0 MiB, micro-batches of 256, 128\n  SHA-256 9f86d081\n";
    assert!(said.starts_with(line) && said.ends_with(" s, building included\n"), "{said}");
    assert_eq!(project.read("gpu-tuned.warm/gpu-tuned-nvidia-h200.bundle"), "bundle");
    assert_eq!(project.read("gpu-tuned.warm/.gitignore"), "*\n");

    // Whoever wants bundles in version control says so once.
    project.write("gpu-tuned.warm/.gitignore", "");
    let report = project.run(&["warm", "--json", "--", "warm"]).json(0);
    assert_eq!(report["warmed"][0]["workload"], "lm");
    assert_eq!(report["warmed"][0]["bundle"]["entries"], 412);
    assert_eq!(project.read("gpu-tuned.warm/.gitignore"), "");
}

#[test]
fn a_program_that_fails_or_makes_no_bundle_is_told() {
    let project = project();
    let failed = project.run(&["warm", "--", "fail"]).refused(3);
    assert!(failed.contains("error: the program failed: exit status 7\n"), "{failed}");
    assert!(failed.ends_with("its messages are above; archives are unchanged\n"), "{failed}");
    let never = project.run(&["warm"]).refused(3);
    assert!(never.contains("error: the program of `measuring` ended without making an archive\n  help: "), "{never}");
    assert!(!project.path("gpu-tuned.warm").exists(), "an empty folder is left");
}
