use crate::project::Project;

#[test]
fn what_is_as_it_was_measured_and_fits_is_fine() {
    insta::assert_snapshot!("check_fine", Project::new("measured").run(&["check"]).ended(0));
}

#[test]
fn what_is_stale_or_does_not_fit_is_told_in_a_line_with_what_mends_it() {
    let text = Project::new("stale").run(&["check"]).ended(1);
    insta::assert_snapshot!("check_stale", text);
}

#[test]
fn a_partial_measurement_is_noted() {
    let project = Project::new("measured");
    project.replace("gpu-tuned.lock", "method = \"dry-run\"\n", "method = \"dry-run\"\npartial = true\n");
    let checked = project.run(&["check"]).ended(0);
    assert!(checked.contains("lm on h200: a measurement ended early: sizes that were not tried"), "{checked}");
    assert!(project.run(&["plan", "h200"]).ended(0).contains("lm"), "it is planned");
}

#[test]
fn each_reason_to_measure_again_is_found_by_itself() {
    let stale = |change: &dyn Fn(&Project)| {
        let project = Project::new("measured");
        change(&project);
        let found = project.run(&["check", "--json"]).json(1);
        let is_stale = |finding: &&serde_json::Value| finding["kind"] == "stale";
        let stale: Vec<_> = found["findings"].as_array().expect("findings").iter().filter(is_stale).cloned().collect();
        let [only] = stale.as_slice() else { panic!("{found:#}") };
        assert_eq!(only["fix"], "run `cargo gpu-tuned measure -p measured`");
        only["message"].as_str().expect("a message").to_owned()
    };
    let other = "[workload.lm.transformer]\nlayers = 6\nd_model = 768\nvocab = 8192\nseq = 256\nheads = 8\n";
    assert_eq!(
        stale(&|project| project.write("gpu-tuned.toml", other)),
        "another model was measured: d_model is 768, was 512"
    );
    let other_kind = "[workload.lm.mlp]\nwidths = [784, 10]\n";
    assert_eq!(
        stale(&|project| project.write("gpu-tuned.toml", other_kind)),
        "another model was measured: model is mlp, was transformer"
    );
    assert_eq!(
        stale(&|project| project.write("gpu-tuned.toml", "[workload.new.mlp]\nwidths = [784, 10]\n")),
        "not measured, though gpu-tuned.lock has others"
    );
    assert_eq!(
        stale(&|project| project.replace("Cargo.lock", "0.22.1", "0.23.0")),
        "measured with burn 0.22.1, Cargo.lock has 0.23.0"
    );
    assert_eq!(
        stale(&|project| project.replace("Cargo.lock", "0.11.3", "0.12.0")),
        "measured with cubecl 0.11.3, Cargo.lock has 0.12.0"
    );
}

#[test]
fn what_the_package_is_not_built_with_says_nothing() {
    let project = Project::new("measured");
    // Another member of the workspace has another Burn.
    project.replace("Cargo.lock", "\"burn\",\n", "\"burn 0.22.1\",\n");
    let another = "\n[[package]]\nname = \"burn\"\nversion = \"0.21.0\"\n";
    project.write("Cargo.lock", &(project.read("Cargo.lock") + another));
    project.run(&["check"]).ended(0);
}

#[test]
fn without_a_cargo_lock_it_is_told_that_no_releases_are_compared() {
    let project = Project::new("measured");
    std::fs::remove_file(project.path("Cargo.lock")).expect("it is there");
    let text = project.run(&["check"]).ended(0);
    let note =
        "note  no Cargo.lock: releases of Burn and CubeCL are not compared; run\n      `cargo generate-lockfile`\n";
    assert!(text.starts_with(note), "{text}");
    assert!(!project.path("Cargo.lock").exists(), "a check changes nothing");
    // Where nothing was measured, there is nothing to compare.
    let text = Project::new("declared").run(&["check"]).ended(1);
    assert!(!text.contains("Cargo.lock"), "{text}");
}

#[test]
fn a_model_of_another_size_than_its_description_is_told_of() {
    let project = Project::new("measured");
    project.replace("gpu-tuned.lock", "parameters = 23_240_704", "parameters = 102_003_210");
    let found = project.run(&["check", "--json"]).json(0);
    let notes = found["findings"].as_array().expect("findings").iter().filter(|finding| finding["kind"] == "note");
    let notes: Vec<_> = notes.filter_map(|finding| finding["message"].as_str()).collect();
    let is_told = |note: &&str| note.contains("parameters, and the measured model 102,003,210");
    assert!(notes.iter().any(is_told), "{notes:?}");
}

#[test]
fn a_cargo_lock_that_cannot_be_read_is_a_mistake() {
    let project = Project::new("measured");
    let lock = project.read("Cargo.lock");
    project.write("Cargo.lock", &format!("<<<<<<< HEAD\n{lock}"));
    let found = project.run(&["check", "--json"]).json(2);
    let [only] = found["findings"].as_array().expect("findings").as_slice() else { panic!("{found:#}") };
    let merged = "a merge left both sides here: keep either side whole";
    assert_eq!(only["kind"], "mistake");
    let message = only["message"].as_str().expect("a message");
    assert!(message.starts_with(&format!("Cargo.lock:1:1: {merged}")), "{message}");
    // So it is to whatever takes figures from what was measured, and to nothing else.
    for args in [&["check"][..], &["plan"], &["explain", "h200"], &["report"], &["measure"]] {
        let said = project.run(args).refused(2);
        assert!(said.contains(merged) && said.contains("--> Cargo.lock:1:1"), "{args:?}: {said}");
    }
    project.run(&["init", "--dry-run"]).ended(0);
    project.run(&["targets", "h200"]).ended(0);

    std::fs::remove_file(project.path("Cargo.lock")).expect("it is there");
    std::fs::create_dir(project.path("Cargo.lock")).expect("a folder can be made");
    let found = project.run(&["check", "--json"]).json(2);
    let message = found["findings"][0]["message"].as_str().expect("a message");
    assert!(found["findings"][0]["kind"] == "mistake" && message.starts_with("cannot read `"), "{message}");
    let said = project.run(&["check"]).refused(2);
    assert!(said.starts_with("error: cannot read `") && said.contains("Cargo.lock`: "), "{said}");
}

#[test]
fn a_goal_that_no_gpu_could_meet_is_a_mistake() {
    let project = Project::new("measured");
    project.write("gpu-tuned.toml", "[goal]\nworld_size = 7\n");
    let found = project.run(&["check", "--json"]).json(2);
    let mistake = found["findings"].as_array().expect("findings").iter().find(|finding| finding["kind"] == "mistake");
    let message = mistake.expect("a mistake")["message"].as_str().expect("a message");
    assert_eq!(message, "a global batch of 512 cannot be shared by 7 ranks; 4 or 8 would do");
}

#[test]
fn mistakes_in_files_are_findings_for_programs() {
    let found = Project::new("broken").run(&["check", "--json"]).json(2);
    let found = found["findings"].as_array().expect("findings");
    assert_eq!(found.len(), 4);
    assert!(found.iter().all(|finding| finding["kind"] == "mistake"));
    assert!(found[3]["message"].as_str().is_some_and(|message| message.starts_with("gpu-tuned.lock:11:16: ")));
}

/// Each mistake quotes the file; a file of half a megabyte with a mistake on every second line took more than 6 GB.
#[test]
fn the_first_of_many_mistakes_are_shown() {
    let project = Project::new("measured");
    let text: String = (0..16_000).map(|number| format!("[workload.a{number}]\nunknown{number} = 1\n")).collect();
    project.write("gpu-tuned.toml", &text);
    let refused = project.run(&["check"]).refused(2);
    assert_eq!(refused.matches("--> gpu-tuned.toml:").count(), 20, "{refused}");
    assert!(refused.ends_with("more mistakes are not shown; correct these first\n"), "{refused}");
}

#[cfg(target_os = "linux")]
#[test]
fn links_to_devices_and_to_the_environment_are_refused() {
    for (file, target) in [
        ("gpu-tuned.toml", "/dev/zero"),
        ("gpu-tuned.lock", "/dev/zero"),
        ("Cargo.lock", "/dev/zero"),
        ("gpu-tuned.toml", "/proc/self/environ"),
    ] {
        let project = Project::new("declared");
        let _ = std::fs::remove_file(project.path(file));
        std::os::unix::fs::symlink(target, project.path(file)).expect("a link");
        let said = project.run(&["check"]).refused(2);
        assert!(said.contains("it is not a "), "{file}, {target}: {said}");
    }
}
