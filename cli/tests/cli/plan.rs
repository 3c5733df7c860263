use gpu_tuned_core::plan::TRANSFER_ERROR;

use crate::project::Project;

#[cfg(unix)]
#[test]
fn a_folder_that_was_removed_has_no_package() {
    let project = Project::new("bare");
    let gone = project.path("gone");
    std::fs::create_dir(&gone).expect("a folder");
    let command = project.command(&[]).get_program().to_owned();
    let mut shell = std::process::Command::new("sh");
    shell
        .args(["-c", "rmdir ../gone && exec \"$@\"", "sh"])
        .arg(command)
        .args(["plan", "h200", "--model", "gpt2"])
        .current_dir(&gone);
    let text = crate::project::Ran::of(&mut shell).ended(0);
    assert!(text.contains("h200"), "{text}");
}

#[test]
fn energy_and_cost_follow_from_power_price_and_speed() {
    let project = Project::new("declared");
    let args = ["plan", "h200", "rtx4090", "--workload", "digits", "--price", "h200=3.6", "--json"];
    let rows = project.run(&args).json(0);
    let speed = rows["plans"][0]["plan"]["samples_per_s"].as_f64().expect("a speed");
    let near = |figure: &serde_json::Value, expected: f64| {
        let figure = figure.as_f64().expect("a figure");
        assert!((figure / expected - 1.0).abs() < 1e-9, "{figure}, not {expected}");
    };
    // A step has 512 samples, and the board takes 700 W.
    near(&rows["plans"][0]["max_wh_per_1000_steps"], 700.0 * 512_000.0 / speed / 3600.0);
    near(&rows["plans"][0]["usd_per_million_samples"], 3.6 * 1e6 / speed / 3600.0);
    assert!(rows["plans"][1].get("usd_per_million_samples").is_none(), "{rows:#}");
    let [low, high] =
        [0, 1].map(|end| rows["plans"][0]["plan"]["samples_per_s_interval"][end].as_f64().expect("a speed"));
    assert!(low < speed && speed < high, "{low} {speed} {high}");
    // Of a speed alone, and of the ratio of the two.
    assert_eq!(rows["plans"][0]["plan"]["samples_per_s_error"], "launch_bound");
    near(&rows["between_gpus_ratio"], TRANSFER_ERROR);
    let alone = project.run(&["plan", "h200", "--workload", "digits", "--json"]).json(0);
    assert!(alone.get("between_gpus_ratio").is_none(), "{alone:#}");
}

#[test]
fn the_smallest_gpu_that_trains_a_workload_is_the_first_by_memory() {
    let project = Project::new("declared");
    let sorted = |args: &[&str]| {
        let rows = project.run(&[&["plan", "--all", "--workload", "large", "--json", "--sort"], args].concat()).json(1);
        let rows = rows["plans"].as_array().expect("rows").clone();
        let fitting = rows.iter().take_while(|row| row.get("plan").is_some()).count();
        assert!(rows[fitting..].iter().all(|row| row.get("misfit").is_some()), "misfits are last");
        rows
    };
    let rows = sorted(&["memory"]);
    let available = |row: &serde_json::Value| row["plan"]["memory"]["available_bytes"].as_u64();
    assert!(rows.iter().map_while(available).is_sorted());
    let speed = |row: &serde_json::Value| Some(-row["plan"]["samples_per_s"].as_f64()?);
    assert!(sorted(&["time"]).iter().map_while(speed).is_sorted_by(|a, b| a <= b));
    let rows = sorted(&["cost", "--price", "h200=3.5", "--price", "b200=5"]);
    let cost = |row: &serde_json::Value| row["usd_per_million_samples"].as_f64();
    assert_eq!(rows.iter().map_while(cost).count(), 2);
}
