use crate::project::Project;

#[test]
fn a_measured_plan_is_explained_line_by_line() {
    insta::assert_snapshot!("explain_measured", Project::new("measured").run(&["explain", "h200"]).ended(0));
}

#[test]
fn what_is_carried_over_says_from_where() {
    insta::assert_snapshot!("explain_transferred", Project::new("measured").run(&["explain", "l4"]).ended(0));
}

#[test]
fn simulated_memory_is_labelled() {
    let project = Project::new("measured");
    project.simulate_for("rtx4090");
    insta::assert_snapshot!("explain_simulated", project.run(&["explain", "l4"]).ended(0));
    let planned = project.run(&["plan", "l4"]).ended(0);
    assert!(planned.contains(", memory simulated for\n  rtx4090\n"), "{planned}");
    assert!(planned.contains("transferred memory, derived speed"), "{planned}");
    let checked = project.run(&["check"]).ended(0);
    assert!(checked.contains("lm: memory simulated for rtx4090\n"), "{checked}");
    assert!(checked.contains("lm: not measured on 2 declared GPUs"), "{checked}");
}

#[test]
fn a_misfit_is_explained_too() {
    let ran = Project::new("declared").run(&["explain", "gtx1080", "--workload", "large"]);
    insta::assert_snapshot!("explain_misfit", ran.ended(1));
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
fn each_compared_precision_is_explained() {
    let project = Project::new("measured");
    let text = project.run(&["explain", "t4", "--precision", "auto"]).ended(0);
    let section =
        text.split("precisions considered").nth(1).expect("a section").split("\n\n").next().expect("its lines");
    assert!(["  f32 ", "  mixed_f16 ", "  taken", " slower"].iter().all(|word| section.contains(word)), "{section}");
    let explained = project.run(&["explain", "h200", "--precision", "auto", "--json"]).json(0);
    let compared = explained["precisions"].as_array().expect("precisions");
    let verdict = |at: usize| (compared[at]["precision"].as_str(), compared[at]["verdict"].as_str());
    assert_eq!(verdict(0), (Some("f32"), Some("taken")));
    assert_eq!(verdict(1), (Some("mixed_bf16"), Some("not_measured")));
    assert!(compared[1]["samples_per_s"].is_number() && compared[1]["memory_bytes"].is_number(), "{compared:?}");
    let text = project.run(&["explain", "h200", "--precision", "auto"]).ended(0);
    assert!(text.contains("not measured here: run"), "{text}");
    // A fixed precision is compared with nothing.
    assert!(!project.run(&["explain", "h200"]).ended(0).contains("precisions considered"));
}

#[test]
fn one_workload_is_explained_at_a_time() {
    let said = Project::new("declared").run(&["explain", "h200"]).refused(2);
    assert_eq!(
        said,
        "error: the package has several workloads\n  help: name one with --workload or --struct: digits, large\n"
    );
}

#[test]
fn without_a_name_the_only_declared_gpu_is_explained() {
    let project = Project::new("measured");
    let manifest = project.read("Cargo.toml");
    let features = |declared: &str| {
        let rest = manifest.lines().filter(|line| !line.ends_with(" = []"));
        let lines = rest.map(|line| if line == "[features]" { format!("{line}\n{declared}") } else { line.to_owned() });
        project.write("Cargo.toml", &lines.collect::<Vec<_>>().join("\n"));
    };
    features("l4 = []");
    assert_eq!(project.run(&["explain"]).ended(0), project.run(&["explain", "l4"]).ended(0));
    features("h200 = []\nl4 = []");
    let several = project.run(&["explain"]).refused(2);
    assert!(several.ends_with("declares several GPUs\n  help: name one: h200, l4\n"), "{several}");
    features("");
    let none = project.run(&["explain"]).refused(2);
    assert!(none.contains("declares no GPU\n  help: name one, such as `h200`"), "{none}");
}

#[test]
fn own_profiles_and_the_machine_are_explained() {
    let project = Project::new("measured");
    project.write("gpu-tuned.toml", "[profile.mine]\nbase = \"l4\"\n");
    assert!(project.run(&["explain", "mine"]).ended(0).contains("profile `mine` of gpu-tuned.toml"));
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
