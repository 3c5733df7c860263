//! The GPU that a program takes is the one that commands show with `--here`.

use fake_nvml::{Scenario, scenario};
use serde_json::Value;

use crate::project::{Project, Ran, with_gpus};

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const LM: &[&str] = &["--model", "transformer", "--dim", "layers=12", "--dim", "d_model=768", "--dim", "vocab=8192"];

/// The command on a machine with the GPUs of a scenario, with these variables.
fn on(machine: &str, project: &Project, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let mut command = project.command(args);
    Ran::of(with_gpus(&mut command, &scenario(machine)).envs(variables.iter().copied()))
}

/// Plans of a transformer in a folder without a package.
fn planned(machine: &str, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let project = Project::new("bare");
    on(machine, &project, variables, &[&["plan", "--dim", "seq=256", "--global-batch", "512"], LM, args].concat())
}

/// GPUs of the rows of `plan`.
fn targets(rows: &Value) -> Vec<&str> {
    rows["plans"].as_array().expect("rows").iter().map(|row| row["target"].as_str().expect("a name")).collect()
}

const RTX_3090: &str = "NVIDIA GeForce RTX 3090";
const RTX_4090: &str = "NVIDIA GeForce RTX 4090";

#[test]
fn commands_show_the_gpu_that_cuda_lists_first() {
    let project = Project::new("declared");
    let explained = ["explain", "--here", "--workload", "digits", "--json"];
    let report = ["report", "--here", "--workload", "digits", "--json", "-o", "page.html"];
    for (variables, expected) in [
        (&[][..], RTX_4090),
        (&[("CUDA_DEVICE_ORDER", "FASTEST_FIRST")], RTX_4090),
        (&[("CUDA_DEVICE_ORDER", "PCI_BUS_ID")], RTX_3090),
        (&[(VISIBLE, "1")], RTX_3090),
        (&[(VISIBLE, "1"), ("CUDA_DEVICE_ORDER", "PCI_BUS_ID")], RTX_4090),
        (&[(VISIBLE, "1,0")], RTX_3090),
        (&[(VISIBLE, "GPU-309")], RTX_3090),
        (&[(VISIBLE, "GPU-309,GPU-409")], RTX_3090),
        (&[(VISIBLE, "1,9,0")], RTX_3090),
    ] {
        let shown = |args: &[&str]| on("two-gpus", &project, variables, args).json(0);
        assert_eq!(
            targets(&planned("two-gpus", variables, &["--here", "--json"]).json(0)),
            [expected],
            "{variables:?}"
        );
        assert_eq!(shown(&explained)["target"], expected, "{variables:?}");
        assert_eq!(shown(&report)["targets"], serde_json::json!([expected]), "{variables:?}");
        let here = &shown(&["targets", "--here", "--json"])["gpus"][0];
        assert_eq!((&here["name"], &here["is_first_choice"]), (&expected.into(), &true.into()), "{variables:?}");
        project.write("train.yaml", "batch_size: 8\nhidden_sizes: [512, 512]\ninput_dim: 64\noutput_dim: 2\n");
        let optimized = shown(&["optimize", "train.yaml", "--here", "--dry-run", "--json"]);
        assert_eq!(optimized["targets"][0]["target"], expected, "{variables:?}");
        assert_eq!(optimized["targets"].as_array().map(Vec::len), Some(1));
    }
}

#[test]
fn a_share_of_the_multiprocessors_slows_the_plan_down() {
    let speed = |variables: &[(&str, &str)]| {
        let rows = planned("rtx4090", variables, &["--here", "--json"]).json(0);
        rows["plans"][0]["plan"]["samples_per_s"].as_f64().expect("a rate")
    };
    let (all, half) = (speed(&[]), speed(&[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")]));
    assert!((0.4..0.8).contains(&(half / all)), "{half} of {all}");
}

#[test]
fn a_job_of_slurm_bounds_the_plan_of_the_cpu() {
    let job = [("SLURM_CPUS_PER_TASK", "1"), ("SLURM_MEM_PER_NODE", "4000")];
    let rows = planned("no-gpu", &job, &["--here", "--json"]).json(0);
    assert_eq!(targets(&rows), ["CPU (1 cores)"]);
    let available = rows["plans"][0]["plan"]["memory"]["available_bytes"].as_u64().expect("bytes");
    assert!(available <= 4000 << 20, "{available}");
}

#[test]
fn energy_is_that_of_the_power_limit_in_force_and_of_the_share_of_the_board() {
    let share = &[("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "50")][..];
    for (machine, variables, watts, note) in [
        ("rtx4090", &[][..], 450.0, None),
        ("power-capped", &[], 250.0, Some("at a power limit of 250 W")),
        ("rtx4090", share, 225.0, Some("at a power limit of 225 W, 50% of the board's 450 W")),
        (
            "h200-mig-beside-whole",
            &[],
            700.0 * 16.0 / 132.0,
            Some("at a power limit of 85 W, 12% of the board's 700 W"),
        ),
    ] {
        let ran = planned(machine, variables, &["--here", "--json"]);
        let noted = ran.stderr.lines().find(|line| line.contains("Wh/1k steps")).map(str::to_owned);
        let row = &ran.json(0)["plans"][0];
        let speed = row["plan"]["samples_per_s"].as_f64().expect("a speed");
        let energy = row["max_wh_per_1000_steps"].as_f64().expect("an energy");
        // A step has 512 samples.
        let power = energy * 3600.0 * speed / 512_000.0;
        assert!((power / watts - 1.0).abs() < 1e-9, "{machine}: {power} W, not {watts}");
        assert_eq!(noted.is_some(), note.is_some(), "{machine}: {noted:?}");
        assert!(noted.unwrap_or_default().ends_with(note.unwrap_or_default()), "{machine}");
    }
}

const SMALL: &str = "[workload.lm.transformer]\nlayers = 6\nd_model = 512\nvocab = 8192\nseq = 256\n\
                  [goal]\nglobal_batch = 512\n";

fn small() -> Project {
    let project = Project::new("bare");
    project.write("gpu-tuned.toml", SMALL);
    project
}

fn on_file(file: &std::path::Path, args: &[&str]) -> Ran {
    Ran::of(with_gpus(&mut small().command(args), file))
}

/// Standard error and standard output of a command on a scenario's machine.
fn said(machine: &str, args: &[&str]) -> (String, String) {
    let ran = on_file(&scenario(machine), args);
    (ran.stderr.clone(), ran.ended(0))
}

#[test]
fn a_gpu_whose_rates_are_unknown_is_planned_by_estimates() {
    let planned = |file: &std::path::Path| {
        let row = on_file(file, &["plan", "--here", "--json"]).json(0)["plans"][0].clone();
        let figure = |figure: &serde_json::Value| figure.as_f64().expect("a number");
        let plan = &row["plan"];
        (figure(&plan["settings"]["batch_size"]), figure(&plan["samples_per_s"]))
    };
    let mut whole = Scenario::load(&scenario("no-rate")).expect("a scenario");
    let gpu = &mut whole.gpu[0];
    (gpu.cores, gpu.bus_bits) = (Some(10_240), Some(384));
    (gpu.memory_clock_mhz, gpu.sm_clock_mhz) = (Some(9501), Some(2100));
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("whole.toml");
    whole.save(&file).expect("it is written");
    let (some, all) = (planned(&scenario("no-rate")), planned(&file));
    assert!((0.5..=2.0).contains(&(some.0 / all.0)), "{some:?} {all:?}");
    assert!((1.0 / 3.0..=3.0).contains(&(some.1 / all.1)), "{some:?} {all:?}");
}

#[test]
fn memory_of_the_host_is_the_memory_of_a_gpu_that_shares_it() {
    for machine in ["gb10", "orin-nvgpu", "jetson-orin"] {
        let (notes, table) = said(machine, &["plan", "--here"]);
        assert!(notes.contains("unified memory: "), "{machine}: {notes}");
        assert!(!table.contains("CPU"), "{machine}: {table}");
        let (_, text) = said(machine, &["explain", "--here"]);
        assert!(text.contains("the host's, which the GPU shares") && text.contains("unified memory: "), "{text}");
        let (_, here) = said(machine, &["targets", "--here"]);
        assert!(here.contains("\n  for training "), "{machine}: {here}");
    }
}
