//! Configs in each format, and figures of this machine. Others: `tests/cases/optimize.toml`.

use fake_nvml::scenario;
use serde_json::{Value, json};

use crate::project::{Project, Ran, copy, fixtures, with_gpus};

/// A package with the configs of guides beside its manifest.
fn project(name: &str) -> Project {
    let project = Project::new(name);
    copy(&fixtures().join("configs"), &project.path(""));
    project
}

fn optimize(project: &Project, args: &[&str]) -> Ran {
    project.run(&[&["optimize"], args].concat())
}

#[test]
fn each_format_becomes_the_same_plan_and_keeps_its_comments() {
    let project = project("bare");
    let values = |answer: &Value| {
        let changes = answer["targets"][0]["changes"].as_array().expect("changes").clone();
        changes.iter().map(|change| (change["setting"].clone(), change["after"].clone())).collect::<Vec<_>>()
    };
    for (name, comment) in [("patches", "# small"), ("series", "# windows")] {
        let mut all = Vec::new();
        for extension in ["json", "toml", "yaml"] {
            let file = format!("{name}.{extension}");
            let answer = optimize(&project, &[&file, "--target", "rtx4070", "--json"]).json(0);
            assert_eq!(answer["format"], extension);
            let written = project.read(&format!("{name}.rtx4070.{extension}"));
            assert!(extension == "json" || written.contains(comment), "{written}");
            // Nothing but the values differs.
            let shape = |text: &str| {
                text.lines().map(|line| line.split([':', '=']).next().map(str::to_owned)).collect::<Vec<_>>()
            };
            assert_eq!(shape(&written), shape(&project.read(&file)));
            all.push((values(&answer), answer["targets"][0]["after"].clone()));
        }
        assert!(all.iter().all(|one| *one == all[0]), "{name}: {all:#?}");
    }
}

#[test]
fn a_batch_size_alone_is_a_config_of_a_named_workload() {
    let project = Project::new("measured");
    project.write("batch.toml", "batch_size = 16\n");
    let answer = optimize(&project, &["batch.toml", "--workload", "lm", "--target", "rtx4090", "--json"]).json(0);
    assert_eq!(answer["targets"][0]["changes"][0]["after"], "16", "{answer:#}");
}

#[test]
fn marks_and_line_endings_stay() {
    let project = project("bare");
    let text = "\u{feff}{\r\n  \"per_device_train_batch_size\": 8,\r\n  \"mlp\": {\"input_dim\": 9, \"hidden_sizes\": [9], \"output_dim\": 2}\r\n}\r\n";
    project.write("marked.json", text);
    optimize(&project, &["marked.json", "--target", "h200", "--precision", "mixed_bf16"]).ended(0);
    let added = "_size\": 8,\r\n  \"bf16\": true,\r\n";
    assert_eq!(project.read("marked.h200.json"), text.replace("_size\": 8,\r\n", added));
    optimize(&project, &["marked.json", "--target", "h200", "--precision", "mixed_bf16", "--in-place"]).ended(0);
    assert_eq!(project.read("marked.json"), project.read("marked.h200.json"));
}

#[test]
fn a_benchmark_measures_the_program_first() {
    let project = project("measuring").beside("runtime").beside("measured");
    project.write("train.toml", "batch_size = 512\ngradient_accumulation = 1\n");
    let args = ["train.toml", "--target", "h200", "--benchmark", "--json", "--", "write", "../measured/gpu-tuned.lock"];
    let answer = optimize(&project, &args).json(0);
    assert_eq!(answer["targets"][0]["after"]["samples_per_s_provenance"], "measured");
    let args = ["train.toml", "--target", "h200", "--benchmark", "--", "fail"];
    let failed = optimize(&project, &args).refused(3);
    assert!(failed.contains("error: the program failed: exit status 7\n"), "{failed}");
    let never = optimize(&project, &["train.toml", "--target", "h200", "--benchmark"]).refused(3);
    assert!(never.contains("ended without measuring anything"), "{never}");
}

#[test]
fn workers_are_planned_for_the_cores_of_the_machine_that_has_the_gpu() {
    let project = project("bare");
    let with = |gpu: Option<&str>, args: &[&str]| {
        let all = ["optimize", "series.yaml", "--dry-run", "--dim", "host_ms_per_sample=1000"];
        let mut command = project.command(&[&all, args].concat());
        if let Some(gpu) = gpu {
            with_gpus(&mut command, &scenario(gpu));
        }
        Ran::of(&mut command)
    };
    let of = |gpu, args: &[&str]| with(gpu, &[args, &["--json"]].concat()).json(0)["targets"].clone();
    let workers = |target: &Value| {
        let changes = target["changes"].as_array().expect("changes");
        let workers = changes.iter().find(|change| change["setting"] == "num_workers").expect("it is planned");
        workers["after"].as_str().and_then(|workers| workers.parse::<u64>().ok()).expect("a number")
    };
    // So slow a loader takes every core but one.
    let cores = std::thread::available_parallelism().expect("cores").get() as u64;
    let (fed, known) = ((cores - 1).clamp(1, 64), json!({"cores": cores, "assumed": false}));
    let two = of(Some("rtx4090"), &["--target", "rtx4090,h200"]);
    assert_eq!((&two[0]["host"], workers(&two[0])), (&known, fed));
    // Workers stay where the cores are unknown.
    assert_eq!((&two[1]["host"], workers(&two[1])), (&json!({"cores": 8, "assumed": true}), 0));
    let here = of(Some("rtx4090"), &["--here"]);
    assert_eq!((&here[0]["host"], workers(&here[0])), (&known, fed));
    // Each rank has a loader of its own; there is one GPU here, or there are two.
    for (gpus, target, sharing) in [
        ("rtx4090", &["--target", "rtx4090"][..], 1),
        ("two-gpus", &["--target", "rtx4090"], 2),
        ("two-gpus", &["--here"], 2),
    ] {
        let four = of(Some(gpus), &[target, &["--world-size", "4"]].concat());
        assert_eq!(four[0]["host"], json!({"cores": (cores / sharing).max(1), "assumed": false}), "{gpus} {target:?}");
    }
    // The copy for a name is good for such a GPU anywhere.
    let elsewhere = of(None, &["--target", "rtx4090"]);
    assert_eq!((&elsewhere[0]["host"], workers(&elsewhere[0])), (&two[1]["host"], 0));
    let memory = |target: &Value| target["after"]["available_bytes"].as_u64().expect("bytes");
    assert_eq!(memory(&two[0]), memory(&elsewhere[0]));
    assert_ne!(memory(&two[0]), memory(&here[0]));

    let said = |gpu, args: &[&str]| {
        let text = with(gpu, args).ended(0);
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    let unknown = "left as it is: the CPU cores are unknown; plan on that machine";
    let own = format!("`num_workers` is planned for {cores} CPU cores of this machine, which has such a GPU");
    let two = said(Some("rtx4090"), &["--target", "rtx4090,h200"]);
    assert!(two.contains(&format!("note: rtx4090: {own}")) && two.contains(&format!("h200: {unknown}")), "{two}");
    assert!(said(None, &["--target", "rtx4090"]).contains(unknown));
    let here = said(Some("rtx4090"), &["--here"]);
    assert!(!here.contains("`num_workers` is planned for"), "{here}");
}
