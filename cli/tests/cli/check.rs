//! Findings of `check` on files that no text of a table makes. Others: `tests/cases/check.toml`.

use crate::project::Project;

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
fn a_cargo_lock_that_cannot_be_read_is_a_mistake() {
    let project = Project::new("measured");
    std::fs::remove_file(project.path("Cargo.lock")).expect("it is there");
    std::fs::create_dir(project.path("Cargo.lock")).expect("a folder can be made");
    let found = project.run(&["check", "--json"]).json(2);
    let message = found["findings"][0]["message"].as_str().expect("a message");
    assert!(found["findings"][0]["kind"] == "mistake" && message.starts_with("cannot read `"), "{message}");
    let said = project.run(&["check"]).refused(2);
    assert!(said.starts_with("error: cannot read `") && said.contains("Cargo.lock`: "), "{said}");
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
