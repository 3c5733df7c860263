use crate::project::Project;

#[test]
fn simulated_memory_is_labelled() {
    let project = Project::new("measured");
    project.simulate_for("rtx4090");
    insta::assert_snapshot!("explain_simulated", project.run(&["explain", "l4"]).ended(0));
    let planned = project.run(&["plan", "l4"]).ended(0);
    assert!(planned.contains(", memory\n  simulated for rtx4090\n"), "{planned}");
    assert!(planned.contains("transferred memory, derived speed"), "{planned}");
    let checked = project.run(&["check"]).ended(0);
    assert!(checked.contains("lm: memory simulated for rtx4090\n"), "{checked}");
    assert!(checked.contains("lm: not measured on 2 declared GPUs"), "{checked}");
}

#[test]
fn json_adds_up() {
    let explained = Project::new("measured").run(&["explain", "l4", "--json"]).json(0);
    let bytes = |item: &serde_json::Value| item["bytes"].as_u64().expect("bytes");
    let items = explained["memory"].as_array().expect("items");
    assert_eq!(items.iter().map(bytes).sum::<u64>(), explained["needed_bytes"].as_u64().expect("bytes"));
    let plan = &explained["plan"];
    let taken = |one: &&serde_json::Value| one["verdict"] == "taken";
    let considered = explained["considered"].as_array().expect("ways");
    let taken = considered.iter().find(taken).expect("one was taken");
    assert_eq!(taken["batch_size"], plan["settings"]["batch_size"]);
    assert_eq!(taken["memory_bytes"], explained["needed_bytes"]);
}

#[test]
fn the_machine_is_explained() {
    let project = Project::new("measured");
    let here = project.run(&["explain", "--here"]).ended(0);
    assert!(!here.contains("(0 samples/s") && !here.contains(" 0 samples/s"), "{here}");
    assert!(here.starts_with("lm on CPU (") && here.contains("read from this machine"), "{here}");
}

#[test]
fn lines_are_no_longer_than_a_terminal_is_wide_unless_cells_of_a_table_are() {
    for (fixture, args) in [
        ("measured", &["explain", "l4"][..]),
        ("measured", &["explain", "h200"]),
        ("measured", &["explain", "--here"]),
        ("measured", &["optimize", "train.toml", "--workload", "lm", "--target", "l4", "--dry-run"]),
        ("declared", &["explain", "gtx1080", "--workload", "large"]),
        ("declared", &["plan", "--workload", "large"]),
        ("declared", &["check"]),
        ("stale", &["check"]),
    ] {
        let project = Project::new(fixture);
        project.write("train.toml", "batch_size = 512\n[loader]\nnum_workers = 0\n");
        let text = project.run(args).stdout;
        assert!(text.lines().count() > 2, "{args:?}: {text}");
        for line in text.lines() {
            let is_row = args[0] == "plan" && (line.starts_with("  target ") || line.starts_with("  h200 "));
            assert!(line.chars().count() <= 80 || is_row, "{fixture} {args:?}: {line}");
        }
    }
}
