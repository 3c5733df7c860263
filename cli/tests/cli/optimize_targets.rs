//! Machines and data sets that `optimize` plans for.

use fake_nvml::{SCENARIO_VARIABLE, library, scenario};
use serde_json::{Value, json};

use crate::optimize::{optimize, project};
use crate::project::Ran;

#[test]
fn here_is_the_gpu_of_the_machine() {
    let project = project("bare");
    let mut command = project.command(&["optimize", "series.yaml", "--here"]);
    command.env("GPU_TUNED_NVML_PATH", library()).env(SCENARIO_VARIABLE, scenario("rtx4090"));
    Ran::of(&mut command).ended(0);
    assert!(project.path("series.rtx4090.yaml").exists());
    let without = optimize(&project, &["series.yaml", "--here"]);
    assert!(without.stderr.starts_with("note: no NVIDIA management library found"), "{}", without.stderr);
    assert!(without.ended(0).ends_with("written: series.cpu.yaml\n"));
}

#[test]
fn workers_are_planned_for_the_cores_of_the_machine_that_has_the_gpu() {
    let project = project("bare");
    let with = |gpu: Option<&str>, args: &[&str]| {
        let all = ["optimize", "series.yaml", "--dry-run", "--dim", "host_ms_per_sample=1000"];
        let mut command = project.command(&[&all, args].concat());
        if let Some(gpu) = gpu {
            command.env("GPU_TUNED_NVML_PATH", library()).env(SCENARIO_VARIABLE, scenario(gpu));
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

/// A small perceptron, whose steps of 8 samples fill no GPU.
pub(crate) const SMALL: &str =
    "batch_size: 8\nnum_workers: 2\nhidden_sizes: [512, 512]\ninput_dim: 64\noutput_dim: 2\n";

#[test]
fn no_step_is_proposed_that_is_larger_than_the_data_set() {
    let project = project("bare");
    project.write("free.yaml", SMALL);
    project.write("few.yaml", &format!("{SMALL}data: {{num_samples: 1501}}\n"));
    project.write("share.yaml", &format!("{SMALL}train_size: 0.8\n"));
    let more = |args: &[&str]| {
        let answer = optimize(&project, &[args, &["--target", "rtx4090", "--dry-run", "--json"]].concat()).json(0);
        answer["targets"][0]["more"].clone()
    };
    let free = more(&["free.yaml"]);
    assert!(free["larger_batch"]["global_batch"].as_u64().is_some_and(|samples| samples > 1501), "{free:#}");
    assert_eq!((&free["data_set"], &more(&["share.yaml"])), (&Value::Null, &free));
    // A step is the micro-batch times accumulation times devices, and the devices share it evenly.
    for (ranks, most) in [("1", 1501), ("4", 1500)] {
        let few = more(&["few.yaml", "--world-size", ranks]);
        assert_eq!(few["larger_batch"]["global_batch"], most, "{few:#}");
        assert_eq!(few["data_set"], json!({"samples": 1501, "key": "data.num_samples"}));
        let ratio = |more: &Value| more["larger_batch"]["samples_per_s_ratio"].as_f64();
        assert!(ratio(&few) < ratio(&free) && few["advice"] == json!([]), "{few:#}");
    }
    let all = more(&["few.yaml", "--global-batch", "1501"]);
    assert_eq!((&all["larger_batch"], &all["data_set"]["samples"]), (&Value::Null, &1501.into()));
}

#[test]
fn that_the_data_set_bounds_a_step_is_said() {
    let project = project("bare");
    project.write("few.yaml", &format!("{SMALL}data: {{num_samples: 1501}}\n"));
    let of = |args: &[&str]| optimize(&project, &[&["few.yaml", "--dry-run"], args].concat()).ended(0);
    let one = of(&["--target", "rtx4090", "--dim", "host_ms_per_sample=2"]);
    let one = one.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(one.contains("allows 1501, which would run about 56.6x as many samples per second"), "{one}");
    assert!(one.contains("The data set of 1,501 samples (`data.num_samples`)"), "{one}");
    // What else there is to say is still said, and each thing once.
    assert_eq!((one.matches("does not fill").count(), one.matches("the loader limits").count()), (1, 1), "{one}");
    let all = of(&["--target", "rtx4090", "--global-batch", "1501"]);
    let all = all.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        all.contains("The data set of 1,501 samples (`data.num_samples`) allows no batch that is noticeably faster"),
        "{all}"
    );
    let two = of(&["--target", "rtx4090,h200"]);
    assert!(two.contains("  global batch that fills it  1,501 *  1,501 *\n"), "{two}");
    assert!(two.contains("\n  * limited by the data set, which has 1,501 samples (`data.num_samples`)\n"), "{two}");
}
