use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use crate::optimize_targets::SMALL;
use crate::project::{Project, Ran};

/// The GPUs that tuning guides are about, and the one that is measured.
const FIVE: &str = "rtx4090,rtx4080,rtx4070,gtx1080,h200";

/// A package with the configs of guides beside its manifest.
pub(crate) fn project(name: &'static str) -> Project {
    let project = Project::new(name);
    let configs = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/configs");
    for entry in fs::read_dir(configs).expect("the configs") {
        let path = entry.expect("a config").path();
        fs::copy(&path, project.path(path.file_name().and_then(|name| name.to_str()).expect("a name")))
            .expect("a copy");
    }
    project
}

pub(crate) fn optimize(project: &Project, args: &[&str]) -> Ran {
    project.run(&[&["optimize"], args].concat())
}

#[test]
fn the_guides_patches_are_planned_for_five_gpus() {
    let table = optimize(&project("bare"), &["patches.yaml", "--target", FIVE, "--dry-run"]).ended(0);
    assert!(table.lines().all(|line| line.chars().count() <= 100), "{table}");
    insta::assert_snapshot!("optimize_patches", table);
}

#[test]
fn the_guides_series_is_planned_for_five_gpus() {
    let table = optimize(&project("bare"), &["series.toml", "--target", FIVE, "--dry-run"]).ended(0);
    insta::assert_snapshot!("optimize_series", table);
}

#[test]
fn arguments_get_the_keys_that_they_lack_and_each_value_its_reason() {
    let project = project("bare");
    let args = ["arguments.json", "--model-config", "gpt2.json", "--target", "rtx4090"];
    insta::assert_snapshot!("optimize_arguments", optimize(&project, &args).ended(0));
    insta::assert_snapshot!("optimize_arguments_written", project.read("arguments.rtx4090.json"));
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
fn json_has_what_changes_and_what_is_expected() {
    let project = project("bare");
    let args = ["arguments.json", "--model-config", "gpt2.json", "--target", "rtx4090,gtx1080", "--json", "--dry-run"];
    let answer = optimize(&project, &args).json(1);
    let [rtx4090, gtx1080] = answer["targets"].as_array().expect("targets").as_slice() else { panic!("{answer:#}") };
    assert_eq!(answer["model"]["parameters"], 124_439_808);
    assert_eq!(
        answer["step"],
        json!({"batch_size": 64, "gradient_accumulation": 1, "world_size": 1, "global_batch": 64})
    );
    assert_eq!((&rtx4090["file"], &rtx4090["written"]), (&"arguments.rtx4090.json".into(), &false.into()));
    assert_eq!((&rtx4090["before"]["fits"], &rtx4090["after"]["fits"]), (&false.into(), &true.into()));
    let accumulation = rtx4090["changes"].as_array().expect("changes");
    let accumulation =
        accumulation.iter().find(|change| change["setting"] == "gradient_accumulation").expect("it is planned");
    assert_eq!((&accumulation["state"], &accumulation["before"]), (&"added".into(), &Value::Null));
    assert_eq!((&gtx1080["file"], &gtx1080["after"]["fits"]), (&Value::Null, &false.into()));
    assert!(gtx1080["after"]["problem"].as_str().is_some_and(|why| why.starts_with("does not fit: ")), "{gtx1080:#}");
    assert_eq!(answer["no_counterpart"], json!(["dataloader_pin_memory"]));
    assert!(!project.path("arguments.rtx4090.json").exists());
}

#[test]
fn copies_are_beside_the_config_or_where_it_is_said() {
    let project = project("declared");
    // Without a target for those that the package declares, and again without a change.
    for _ in 0..2 {
        optimize(&project, &["series.yaml"]).ended(0);
    }
    // The CPU cores of machines with these GPUs are unknown.
    for target in ["gtx1080", "h200", "rtx4090"] {
        assert!(project.read(&format!("series.{target}.yaml")).contains("num_workers: 0\n"));
    }
    // A copy of a copy is one of the config; the same again is nothing.
    let again = optimize(&project, &["series.h200.yaml", "--target", "h200"]).ended(0);
    assert!(again.ends_with("\n\nunchanged: series.h200.yaml\n"), "{again}");
    optimize(&project, &["series.h200.yaml", "--target", "rtx4080,rtx4080"]).ended(0);
    assert!(project.path("series.rtx4080.yaml").exists());

    project.write("series.h200.yaml", "edited: true\n");
    let said = optimize(&project, &["series.yaml", "--target", "h200"]).refused(2);
    assert_eq!(
        said,
        "error: `series.h200.yaml` exists and differs\n  help: overwrite it with --force, or choose another file with --output\n"
    );
    assert_eq!(project.read("series.h200.yaml"), "edited: true\n");
    optimize(&project, &["series.yaml", "--target", "h200", "--force"]).ended(0);
    optimize(&project, &["series.yaml", "--target", "h200", "--output", "other.yaml"]).ended(0);
    let said = optimize(&project, &["series.yaml", "--target", "h200", "--output", "other.json"]).refused(2);
    assert!(
        said.contains("`other.json` has the name of another format than the config\n  help: end it in `.yaml`"),
        "{said}"
    );
    assert_eq!(project.read("series.h200.yaml"), project.read("other.yaml"));
    optimize(&project, &["series.yaml", "--target", "h200", "--in-place"]).ended(0);
    assert_eq!(project.read("series.yaml"), project.read("other.yaml"));
    let kept = optimize(&project, &["series.yaml", "--target", "h200", "--in-place"]).ended(0);
    assert!(kept.ends_with("\n\nunchanged: series.yaml\n"), "{kept}");
    let said = optimize(&project, &["series.yaml", "--in-place"]).refused(2);
    assert!(said.starts_with("error: --in-place is for one target, and there are 3\n"), "{said}");
}

#[test]
fn what_is_as_it_was_is_not_said_to_be_written() {
    let project = project("bare");
    let halves = project.read("series.yaml").replace("batch_size: 128", "accum_steps: 2\nbatch_size: 64");
    project.write("series.yaml", &halves);
    let told = |args: &[&str]| {
        let args = [&["series.yaml", "--target", "h200"], args].concat();
        let text = optimize(&project, &args).ended(0);
        text.lines().last().expect("what became of the copy").to_owned()
    };
    let fate = |args: &[&str]| {
        let answer = optimize(&project, &[&["series.yaml", "--target", "h200", "--json"], args].concat()).json(0);
        [&answer["targets"][0]["written"], &answer["targets"][0]["unchanged"]].map(Value::as_bool)
    };
    let of = |written, unchanged| [Some(written), Some(unchanged)];
    assert_eq!(told(&["--dry-run"]), "dry run, not written: series.h200.yaml");
    assert_eq!(fate(&["--dry-run"]), of(false, false));
    assert_eq!((told(&[]), fate(&["--force"])), ("written: series.h200.yaml".to_owned(), of(false, true)));
    for again in [&[][..], &["--force"], &["--dry-run"]] {
        assert_eq!((told(again), fate(again)), ("unchanged: series.h200.yaml".to_owned(), of(false, true)));
    }
    project.write("series.h200.yaml", "edited: true\n");
    assert_eq!(fate(&["--force"]), of(true, false));
    // The config is as it would be planned: the copy of it is new, and the same.
    assert_eq!(fate(&["--in-place"]), of(true, false));
    assert_eq!((told(&["--in-place"]), fate(&["--in-place"])), ("unchanged: series.yaml".to_owned(), of(false, true)));
    let nothing = "dry run, nothing to change: series.rtx4090.yaml";
    let other = ["series.yaml", "--target", "rtx4090"];
    assert!(optimize(&project, &[&other[..], &["--dry-run"]].concat()).ended(0).ends_with(&format!("{nothing}\n")));
    assert!(optimize(&project, &other).ended(0).ends_with("\ncopied unchanged: series.rtx4090.yaml\n"));
    assert_eq!(project.read("series.rtx4090.yaml"), project.read("series.yaml"));
    // However a flag is spelled.
    project.write("flags.yaml", &format!("{SMALL}gradient_checkpointing: 0\n"));
    let kept = optimize(&project, &["flags.yaml", "--target", "h200", "--in-place", "--json"]).json(0);
    let changes = kept["targets"][0]["changes"].as_array().expect("changes");
    assert!(changes.len() == 3 && changes.iter().all(|change| change["state"] == "same"), "{kept:#}");
    assert_eq!(kept["targets"][0]["unchanged"], true);
}

#[test]
fn memory_in_pytorch_is_beside_that_in_burn() {
    let project = project("bare");
    let gpt2 = "batch_size: 12\nblock_size: 1024\nn_layer: 12\nn_head: 12\nn_embd: 768\nvocab_size: 50257\neval_iters: 200\n\
                gradient_accumulation_steps: 40\ndtype: bfloat16\n";
    project.write("train.yaml", gpt2);
    let text = optimize(&project, &["train.yaml", "--target", "rtx4090", "--dry-run"]).ended(0);
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        text.contains("read as a config of nanoGPT: https://") && text.contains("expected in Burn before after"),
        "{text}"
    );
    assert!(
        text.contains("note: in PyTorch the config as it is needs 16.3 GiB by an estimate, which would fit"),
        "{text}"
    );
    let left = ["train.yaml", "--target", "rtx4090", "--dry-run", "--json", "--leave", "batch_size"];
    let answer = optimize(&project, &left).json(1);
    assert_eq!(answer["targets"][0]["pytorch"]["after_bytes"], Value::Null, "{answer:#}");
    let said = optimize(&project, &["train.yaml", "--target", "rtx4090", "--leave", "batchsize"]).refused(2);
    assert!(said.starts_with("error: `batchsize` is no key of the config; did you mean `batch_size`?"), "{said}");
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
fn the_step_is_what_was_asked_for() {
    let project = project("bare");
    let args =
        ["series.json", "--target", "h200", "--json", "--dry-run", "--global-batch", "2000", "--world-size", "4"];
    let answer = optimize(&project, &args).json(0);
    assert_eq!(answer["step"]["global_batch"], 2000);
    assert_eq!(answer["targets"][0]["changes"][0]["after"], "500");
    let args = ["series.json", "--target", "h200", "--global-batch", "2000", "--world-size", "7"];
    let said = optimize(&project, &args).refused(2);
    assert!(said.starts_with("error: a global batch of 2000 cannot be divided evenly by 7 rank(s)\n"), "{said}");
}

#[test]
fn a_workload_of_the_package_goes_before_dimensions_and_what_was_measured_is_told() {
    let project = project("measured");
    project.write("train.toml", "batch_size = 512\ngradient_accumulation = 1\n");
    let answer = optimize(&project, &["train.toml", "--workload", "lm", "--target", "h200", "--json"]).json(0);
    assert_eq!(answer["targets"][0]["after"]["samples_per_s_provenance"], "measured");
    let plan = &project.run(&["plan", "h200", "--json"]).json(0)["plans"][0]["plan"]["settings"];
    let (batch, steps) = (&plan["batch_size"], &plan["gradient_accumulation"]);
    assert_eq!(project.read("train.h200.toml"), format!("batch_size = {batch}\ngradient_accumulation = {steps}\n"));
    let said = optimize(&project, &["train.toml", "--workload", "ml"]).refused(2);
    assert!(said.starts_with("error: there is no workload `ml`; did you mean `lm`?"), "{said}");
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
fn options_of_a_program_are_for_benchmarks() {
    let said = optimize(&project("bare"), &["series.json", "--target", "h200", "-F", "h200"]).refused(2);
    assert!(said.starts_with("error: the following required arguments were not provided:\n  --benchmark\n"), "{said}");
}

#[test]
fn no_package_is_needed() {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("c.json"), "{\"hidden_sizes\": [64], \"input_dim\": 8, \"batch_size\": 8}")
        .expect("a config");
    let run = |args: &[&str]| {
        let project = Project::new("bare");
        Ran::of(project.command(&[&["optimize", "c.json"], args].concat()).current_dir(folder.path()))
    };
    run(&["--target", "h200"]).ended(0);
    assert!(folder.path().join("c.h200.json").exists());
    assert!(run(&[]).refused(2).starts_with("error: no GPU is named\n  help: "));
    let said = run(&["--target", "h200", "--workload", "lm"]).refused(2);
    assert!(said.starts_with("error: --workload needs a package\n"), "{said}");
    assert!(run(&["--target", "rtx4900"]).refused(2).starts_with("error: there is no profile `rtx4900`; did you mean"));
}

#[test]
fn mistakes_of_a_config_are_told_with_their_line() {
    let project = project("bare");
    let with = |name: &str, text: &str| {
        project.write(name, text);
        optimize(&project, &[name, "--target", "h200"]).refused(2)
    };
    insta::assert_snapshot!(
        "optimize_mistakes",
        with("bad.json", "{\n  \"batch_size\": -4,\n  \"num_workers\": \"many\",\n  \"lr\": 1\n}\n")
    );
    insta::assert_snapshot!("optimize_broken", with("bad.yaml", "batch_size: 8\nmodel: {type: lstm\n"));
    let said = with("bad.ini", "batch_size = 8");
    assert!(said.starts_with("error: `bad.ini` has an unknown extension\n"), "{said}");
    let none = optimize(&project, &["none.json", "--target", "h200"]).refused(2);
    assert!(none.starts_with("error: cannot read `none.json`: "), "{none}");
}
