//! GPUs whose driver leaves figures out.

use fake_nvml::{SCENARIO_VARIABLE, Scenario, library, scenario};

use crate::project::{Project, Ran};

const LM: &str = "[workload.lm.transformer]\nlayers = 6\nd_model = 512\nvocab = 8192\nseq = 256\n\
                  [goal]\nglobal_batch = 512\n";

fn project() -> Project {
    let project = Project::new("bare");
    project.write("gpu-tuned.toml", LM);
    project
}

fn on(file: &std::path::Path, args: &[&str]) -> Ran {
    let project = project();
    let mut command = project.command(args);
    Ran::of(command.env("GPU_TUNED_NVML_PATH", library()).env(SCENARIO_VARIABLE, file))
}

/// Standard error and standard output of a command on a scenario's machine.
fn said(machine: &str, args: &[&str]) -> (String, String) {
    let ran = on(&scenario(machine), args);
    (ran.stderr.clone(), ran.ended(0))
}

#[test]
fn a_gpu_whose_rates_are_unknown_is_planned_by_estimates() {
    let planned = |file: &std::path::Path| {
        let row = on(file, &["plan", "--here", "--json"]).json(0)["plans"][0].clone();
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

#[test]
fn a_gpu_that_reports_no_memory_is_named_before_a_plan_for_the_cpu() {
    let why = "note: GPU 0 (GRID A100DX-1-10C) cannot be planned for: the driver does not report its memory\n\
               note: no usable GPU: the plan is for the CPU\n";
    for command in ["plan", "explain"] {
        let (notes, text) = said("vgpu-without-memory", &[command, "--here"]);
        assert_eq!(notes, why, "{command}");
        assert!(text.contains("CPU ("), "{command}: {text}");
    }
    let here = on(&scenario("vgpu-without-memory"), &["targets", "--here"]).ended(1);
    assert!(here.contains("cannot be planned for: the driver does not"), "{here}");
}

#[test]
fn memory_of_the_profile_is_named_where_the_driver_reports_none() {
    let note = |machine| {
        let (notes, _) = said(machine, &["plan", "--here"]);
        let (here, _) = said(machine, &["targets", "--here"]);
        notes.contains("the driver reports no memory; planned with the ") && here.contains("planned with the ")
    };
    assert!(note("zero-memory") && note("rtx3080-name-only") && !note("rtx4090"));
}

#[test]
fn a_precision_that_this_machine_lacks_becomes_fp32_as_in_a_program() {
    let project = project();
    project.write("gpu-tuned.toml", &format!("{LM}precision = \"mixed_bf16\"\n"));
    for (machine, note) in [
        (
            "gtx1080-ti",
            Some("NVIDIA GeForce GTX 1080 Ti: fp32 in place of mixed_bf16, for which it has no tensor cores"),
        ),
        ("no-gpu", Some("fp32 in place of mixed_bf16, for which it has no tensor cores")),
        ("rtx4090", None),
    ] {
        let here = |args: &[&str]| {
            let mut command = project.command(args);
            Ran::of(command.env("GPU_TUNED_NVML_PATH", library()).env(SCENARIO_VARIABLE, scenario(machine)))
        };
        let ran = here(&["plan", "--here", "--json"]);
        assert!(note.is_none_or(|note| ran.stderr.contains(note)), "{machine}: {}", ran.stderr);
        let expected = if note.is_some() { "f32" } else { "mixed_bf16" };
        assert_eq!(ran.json(0)["plans"][0]["plan"]["settings"]["precision"], expected, "{machine}");
        let explained = here(&["explain", "--here"]);
        assert_eq!(explained.stderr.contains("fp32 in place of"), note.is_some(), "{machine}: {}", explained.stderr);
        explained.ended(0);
        // A precision by name is refused.
        let refused = here(&["plan", "--here", "--precision", "mixed_bf16"]);
        assert_eq!(refused.code, i32::from(note.is_some()), "{machine}: {}", refused.stdout);
    }
    project.run(&["plan", "gtx1080-ti"]).ended(1);
}

#[test]
fn mixed_f16_is_refused_without_fp16_tensor_cores_and_auto_takes_f32() {
    let row = |precision| project().run(&["plan", "gtx1080-ti", "t4", "--json", "--precision", precision]);
    let rows = row("auto").json(0);
    let taken: Vec<_> = (0..2).map(|row| rows["plans"][row]["plan"]["settings"]["precision"].as_str()).collect();
    assert_eq!(taken, [Some("f32"), Some("mixed_f16")]);
    let rows = row("mixed_f16").json(1);
    assert_eq!(rows["plans"][0]["unsupported"], "gtx1080-ti has no fp16 tensor cores for mixed_f16; use f32");
    assert_eq!(rows["plans"][1]["plan"]["settings"]["precision"], "mixed_f16");
}
