//! The GPU that a program takes is the one that commands show with `--here`.

use fake_nvml::{SCENARIO_VARIABLE, library, scenario};
use serde_json::Value;

use crate::project::{Project, Ran};

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const LM: &[&str] = &["--model", "transformer", "--dim", "layers=12", "--dim", "d_model=768", "--dim", "vocab=8192"];

/// The command on a machine with the GPUs of a scenario, with these variables.
fn on(machine: &str, project: &Project, variables: &[(&str, &str)], args: &[&str]) -> Ran {
    let mut command = project.command(args);
    command.env("GPU_TUNED_NVML_PATH", library()).env(SCENARIO_VARIABLE, scenario(machine));
    Ran::of(command.envs(variables.iter().copied()))
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
fn a_list_without_gpus_leaves_the_cpu_with_the_reason() {
    for (list, reason) in [
        ("", "CUDA shows none of the driver's GPUs (NVIDIA GeForce RTX 3090, NVIDIA GeForce RTX 4090)"),
        ("-1", "CUDA shows none of the driver's GPUs"),
        ("0,0", "CUDA_VISIBLE_DEVICES names a GPU twice (`0`), and CUDA shows no GPU then"),
        ("7", "CUDA_VISIBLE_DEVICES: no usable GPU is `7`"),
    ] {
        let ran = planned("two-gpus", &[(VISIBLE, list)], &["--here", "--json"]);
        assert!(ran.stderr.starts_with(&format!("note: {reason}")), "{list:?}: {}", ran.stderr);
        assert!(ran.stderr.contains("\nnote: no usable GPU: the plan is for the CPU\n"), "{list:?}: {}", ran.stderr);
        assert!(targets(&ran.json(0))[0].starts_with("CPU"), "{list:?}");
    }
}

#[test]
fn another_gpu_is_chosen_by_its_number() {
    let with = |args: &[&str]| planned("two-gpus", &[], &[args, &["--json"]].concat());
    let note = "note: of 2 GPUs a program takes GPU 0; --gpu NUMBER plans for another, --gpu all for each\n";
    assert_eq!(with(&["--here"]).stderr, note);
    let second = with(&["--gpu", "1"]);
    assert_eq!(second.stderr, "");
    assert_eq!(targets(&second.json(0)), [RTX_3090]);
    assert_eq!(targets(&with(&["--gpu", "all"]).json(0)), [RTX_4090, RTX_3090]);
    let said = with(&["--gpu", "2"]).refused(2);
    assert_eq!(said, "error: there is no GPU 2\n  help: the GPUs of a program are 0, 1\n");
    assert!(with(&["--gpu", "first"]).refused(2).contains("expected a number, or `all`"));
    assert!(with(&["--gpu", "1", "--target", "h200"]).refused(2).contains("cannot be used with"));
    // Numbers count the GPUs of the process.
    let rows = planned("two-gpus", &[(VISIBLE, "1")], &["--gpu", "0", "--json"]).json(0);
    assert_eq!(targets(&rows), [RTX_3090]);
    let explained = ["explain", "--dim", "seq=256", "--gpu", "all"];
    let said = on("two-gpus", &Project::new("bare"), &[], &[&explained, LM].concat()).refused(2);
    assert!(said.contains("--gpu NUMBER chooses one"), "{said}");
}

#[test]
fn an_idle_gpu_is_shown_in_place_of_a_busy_one() {
    let ran = planned("first-busy", &[], &["--here", "--json"]);
    assert!(
        ran.stderr.contains("GPU 0 has 900.0 MiB free; GPU 1 is the same kind and has 23.5 GiB free"),
        "{}",
        ran.stderr
    );
    let rows = ran.json(0);
    assert_eq!(rows["plans"].as_array().map(Vec::len), Some(1));
    assert_eq!(rows["plans"][0]["plan"]["memory"]["available_bytes"], 24110_u64 << 20);
    let here = on("first-busy", &Project::new("bare"), &[], &["targets", "--here"]).ended(0);
    assert!(here.contains("\nGPU 1: NVIDIA GeForce RTX 4090, which a program takes\n"), "{here}");
    // Where the busy one is asked for, the idle one is named.
    let misfit = planned("first-busy", &[], &["--gpu", "0"]).ended(1);
    let text = misfit.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("take GPU 1 (NVIDIA GeForce RTX 4090), which has 23.5 GiB free: there it fits"), "{misfit}");
}

#[test]
fn a_memory_limit_of_mps_bounds_the_plan() {
    let limit = [("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=4G,1=8G")];
    let ran = planned("rtx4090", &limit, &["--here", "--json"]);
    assert_eq!(ran.stderr, "note: CUDA_MPS_PINNED_DEVICE_MEM_LIMIT limits this process to 4.0 GiB of GPU 0\n");
    assert_eq!(ran.json(0)["plans"][0]["plan"]["memory"]["available_bytes"], 4_u64 << 30);
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
fn a_gpu_that_burn_cannot_train_on_is_named_before_the_cpu_is_planned_for() {
    let ran = planned("k80", &[], &["--here", "--json"]);
    let reason = "note: GPU 0 (Tesla K80) cannot train: CUDA 13 has dropped compute capability 3.7";
    assert!(ran.stderr.starts_with(reason), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("note: no usable GPU: the plan is for the CPU\n"), "{}", ran.stderr);
    assert!(targets(&ran.json(0))[0].starts_with("CPU"));
}

#[test]
fn a_gpu_that_cannot_be_planned_for_is_no_in_every_command() {
    let k80 = on("k80", &Project::new("bare"), &[], &["targets", "--here"]);
    let text = k80.ended(1).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("GPU 0 (Tesla K80) cannot train: CUDA 13 has dropped"), "{text}");
    for args in [&["plan"][..], &["explain"]] {
        let args = [args, &["--dim", "seq=256", "--global-batch", "512"], LM].concat();
        for chosen in [&["k80"][..], &["--gpu", "0"], &["gtx1080-ti", "--precision", "mixed_bf16"]] {
            let ran = on("k80", &Project::new("bare"), &[], &[&args, chosen].concat());
            let text = format!("{}{}", ran.stdout, ran.stderr);
            assert!(text.contains("cannot train") || text.contains("tensor cores"), "{args:?} {chosen:?}: {text}");
            assert_eq!(ran.code, 1, "{args:?} {chosen:?}: {text}");
        }
    }
}

#[test]
fn a_number_without_a_gpu_has_the_reason() {
    let said = planned("no-permission", &[], &["--gpu", "0"]).refused(2);
    assert!(said.starts_with("error: there is no GPU 0: this machine has no usable GPU\n  "), "{said}");
    assert!(said.ends_with("\n  help: --here plans for the CPU\n") && said.lines().count() == 3, "{said}");
}

#[test]
fn a_full_gpu_among_all_is_to_be_freed() {
    let project = Project::new("bare");
    let args = ["plan", "--dim", "seq=256", "--global-batch", "512"];
    let ran = on("full", &project, &[], &[&args, LM, &["--gpu", "all"]].concat());
    let text = ran.ended(1).split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(text.contains("free the memory of GPU 0"), "{text}");
}

#[test]
fn the_limit_of_a_process_is_named_where_the_plan_does_not_fit() {
    for (machine, variable, limit, is_raised) in [
        ("no-gpu", "SLURM_MEM_PER_NODE", "200", true),
        ("rtx4090", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", "0=200M", true),
        // Memory of the host does not matter to a GPU with memory of its own.
        ("full", "SLURM_MEM_PER_NODE", "200", false),
    ] {
        let ran = planned(machine, &[(variable, limit)], &["--here"]);
        let text = ran.ended(1).split_whitespace().collect::<Vec<_>>().join(" ");
        let remedy = format!("raise the limit {variable}, which allows this process 200.0 MiB: then it fits");
        assert_eq!(text.contains(&remedy), is_raised, "{text}");
    }
}

#[test]
fn builds_for_single_gpus_that_take_another_one_are_named() {
    let project = Project::new("declared");
    project.write(
        "Cargo.toml",
        "[package]\nname = \"declared\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[features]\nrtx3090 = []\nrtx4090 = []\n[workspace]\n",
    );
    let args = ["plan", "--here", "--dim", "seq=256", "--global-batch", "512"];
    let ran = on("two-gpus", &project, &[], &[&args, LM].concat());
    let note = "note: a program that is built for rtx3090 alone takes GPU 1\n";
    assert!(ran.stderr.contains("a program takes GPU 0") && ran.stderr.contains(note), "{}", ran.stderr);
    assert!(!ran.stderr.contains("built for rtx4090"), "{}", ran.stderr);
}

#[test]
fn a_gpu_that_reports_no_memory_is_named_before_the_cpu_is_planned_for() {
    let ran = planned("vgpu-without-memory", &[], &["--here", "--json"]);
    assert!(ran.stderr.contains("cannot be planned for: the driver does not report its memory\n"), "{}", ran.stderr);
    assert!(ran.stderr.ends_with("note: no usable GPU: the plan is for the CPU\n"), "{}", ran.stderr);
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
        let energy = row["wh_per_1000_steps"].as_f64().expect("an energy");
        // A step has 512 samples.
        let power = energy * 3600.0 * speed / 512_000.0;
        assert!((power / watts - 1.0).abs() < 1e-9, "{machine}: {power} W, not {watts}");
        assert_eq!(noted.is_some(), note.is_some(), "{machine}: {noted:?}");
        assert!(noted.unwrap_or_default().ends_with(note.unwrap_or_default()), "{machine}");
    }
}
