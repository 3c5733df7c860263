//! Selection of the package, and errors in it.

use crate::project::Project;

/// A workspace of packages, each with or without a file of its own.
fn workspace(members: &[(&str, bool)]) -> Project {
    let project = Project::new("bare");
    let names: Vec<_> = members.iter().map(|(name, _)| format!("{name:?}")).collect();
    project.write("Cargo.toml", &format!("[workspace]\nresolver = \"3\"\nmembers = [{}]\n", names.join(", ")));
    for (name, is_tuned) in members {
        std::fs::create_dir_all(project.path(name).join("src")).expect("a folder can be made");
        let manifest =
            format!("[package]\nname = {name:?}\nversion = \"0.1.0\"\nedition = \"2024\"\n[features]\nh200 = []\n");
        project.write(&format!("{name}/Cargo.toml"), &manifest);
        project.write(&format!("{name}/src/lib.rs"), "");
        if *is_tuned {
            let file = format!("{name}/gpu-tuned.toml");
            project.write(&file, &format!("[workload.of-{name}.mlp]\nwidths = [784, 512, 10]\n"));
        }
    }
    project
}

#[test]
fn the_only_member_with_workloads_is_meant() {
    let project = workspace(&[("one", false), ("two", true)]);
    assert!(project.run(&["plan"]).ended(0).starts_with("of-two: "));
}

#[test]
fn several_members_are_told_apart_by_name_by_manifest_or_by_where_one_stands() {
    let project = workspace(&[("one", true), ("two", true), ("three", false)]);
    let said = project.run(&["plan"]).refused(2);
    assert_eq!(said, "error: the workspace has several packages\n  help: name one with -p: one, two\n");
    assert!(project.run(&["plan", "-p", "one"]).ended(0).starts_with("of-one: "));
    assert!(project.run(&["plan", "--manifest-path", "two/Cargo.toml"]).ended(0).starts_with("of-two: "));
    let mut inside = project.command(&["plan"]);
    inside.current_dir(project.path("two/src"));
    assert!(crate::project::Ran::of(&mut inside).ended(0).starts_with("of-two: "));
    let said = project.run(&["plan", "-p", "tow"]).refused(2);
    assert_eq!(
        said,
        "error: there is no package `tow` in the workspace; did you mean `two`?\n  help: name one of them: one, two, three\n"
    );
}

#[test]
fn a_folder_without_a_package_is_refused() {
    let project = Project::new("bare");
    std::fs::remove_file(project.path("Cargo.toml")).expect("it is there");
    let said = project.run(&["plan"]).refused(2);
    let help =
        "help: name one with --manifest-path; `cargo gpu-tuned plan h200 --model 'transformer(layers = 6, …)'` plans";
    assert_eq!(said, format!("error: no Cargo.toml in this folder or above it\n  {help} without a package\n"));
    let said = project.run(&["plan", "--manifest-path", "no/Cargo.toml"]).refused(2);
    assert!(said.starts_with("error: manifest path `no/Cargo.toml` does not exist"), "{said}");
}

#[test]
fn a_package_without_workloads_is_told_how_to_have_one() {
    let project = Project::new("bare");
    for args in [&["plan"][..], &["check"], &["explain", "h200"]] {
        assert_eq!(
            project.run(args).refused(2),
            "error: `bare` has no workload\n  help: annotate its training config with `#[gpu_tuned(…)]`, describe a workload \
             in gpu-tuned.toml: [workload.NAME]; `cargo gpu-tuned plan h200 --model 'transformer(layers = 6, …)'` plans \
             without a package\n"
        );
    }
}

#[test]
fn a_measured_workload_that_nothing_describes_is_told_apart_from_none() {
    let said = Project::new("stale").run(&["plan", "--workload", "nameless"]).refused(2);
    let told = "error: `nameless` is measured but not described\n  help: describe it in gpu-tuned.toml: \
                [workload.nameless], and measure it again\n";
    assert_eq!(said, told);
    let project = Project::new("bare");
    project.write(
        "gpu-tuned.lock",
        "format = 2\n[workload.nameless]\nparameters = 1_000\nshape = \"00ff\"\n# end of gpu-tuned.lock\n",
    );
    assert_eq!(project.run(&["plan"]).refused(2), told);
}

#[test]
fn the_mistakes_of_all_files_are_told_at_once_and_at_their_places() {
    let project = Project::new("broken");
    let said = project.run(&["plan"]).refused(2);
    for place in ["gpu-tuned.toml:3:1", "gpu-tuned.toml:8:19", "gpu-tuned.lock:11:16"] {
        assert!(said.contains(place), "no {place} in {said}");
    }
    // Nothing is built by a measurement that could not be kept.
    assert_eq!(project.run(&["measure"]).refused(2), said);
}

#[test]
fn a_lock_that_a_merge_left_in_conflict_is_refused_with_the_line() {
    let project = Project::new("measured");
    project.replace("gpu-tuned.lock", "[workload.lm.goal]", "<<<<<<< ours\n[workload.lm.goal]");
    let said = project.run(&["check"]).refused(2);
    assert!(said.contains("a merge left both sides here") && said.contains("--> gpu-tuned.lock:17:1"), "{said}");
}

#[test]
fn a_lock_that_is_cut_short_is_refused_with_the_line() {
    let project = Project::new("measured");
    let lock = project.read("gpu-tuned.lock");
    let (cut, _) = lock.split_once("reserved_bytes = 33_420_214_272").expect("the last figure");
    project.write("gpu-tuned.lock", cut);
    for command in ["check", "plan", "explain"] {
        let said = project.run(&[command]).refused(2);
        let missing =
            "`# end of gpu-tuned.lock` is missing, the last line: the file was cut short; mend that, put back";
        assert!(said.contains(missing) && said.contains("--> gpu-tuned.lock:40:82"), "{said}");
        assert!(said.contains("unclosed inline table"), "{said}");
    }
}

#[test]
fn files_that_are_no_text_are_told_with_the_line_and_what_to_do() {
    let project = Project::new("measured");
    let files = [
        ("gpu-tuned.lock", "put back the file that was committed, or delete it and run `cargo gpu-tuned measure`"),
        ("gpu-tuned.toml", "save it as UTF-8"),
        ("Cargo.lock", "put back the file that was committed, or delete it: cargo writes another"),
    ];
    for (file, _) in files {
        std::fs::write(project.path(file), b"# one\n# tw\xff\n").expect("a file of the copy can be written");
    }
    for command in ["check", "plan", "explain"] {
        let said = project.run(&[command]).refused(2);
        for (file, remedy) in files {
            let told =
                format!("error: this is no UTF-8; {remedy}\n --> {file}:2:5\n  |\n2 | # tw\u{fffd}\n  |     ^\n");
            assert!(said.contains(&told), "{command}: no {told} in {said}");
        }
    }
}

#[test]
fn a_member_without_a_file_has_that_of_the_workspace() {
    let project = workspace(&[("one", false), ("two", true)]);
    project.write("gpu-tuned.toml", "[workload.shared.mlp]\nwidths = [784, 512, 10]\n");
    assert!(project.run(&["plan", "-p", "one"]).ended(0).starts_with("shared: "));
    assert!(project.run(&["plan", "-p", "two"]).ended(0).starts_with("of-two: "));
    project.write("gpu-tuned.toml", "[workload.shared.mlp]\nwidth = [784, 512, 10]\n");
    let said = project.run(&["plan", "-p", "one"]).refused(2);
    assert!(said.contains("--> ../gpu-tuned.toml:2:1"), "{said}");
    project.write("gpu-tuned.toml", "");
    let said = project.run(&["plan", "-p", "one"]).refused(2);
    assert!(said.contains("describe a workload in ../gpu-tuned.toml"), "{said}");
}

#[test]
fn the_file_of_the_metadata_may_be_above_the_package() {
    let project = workspace(&[("one", false)]);
    std::fs::create_dir(project.path("shared")).expect("a folder");
    project.write("shared/tuning.toml", "[workload.shared.mlp]\nwidths = [784, 512, 10]\n");
    let manifest = project.read("one/Cargo.toml");
    let metadata = "\n[package.metadata.gpu-tuned]\nconfig-file = \"../shared/tuning.toml\"\n";
    project.write("one/Cargo.toml", &(manifest + metadata));
    assert!(project.run(&["plan", "-p", "one"]).ended(0).starts_with("shared: "));
}
