use std::fs;

use gpu_tuned_core::Precision;
use gpu_tuned_observe::recording::Throttle;
use serde_json::Value;

use crate::monitor::looked;
use crate::project::{Project, Ran};
use crate::recorded_run::Recorded;

fn diagnose(project: &Project, args: &[&str]) -> Ran {
    project.run(&[&["diagnose"], args].concat())
}

fn kinds(report: &Value) -> Vec<&str> {
    report["findings"].as_array().expect("findings").iter().map(|it| it["kind"].as_str().expect("a kind")).collect()
}

/// A program that records what is in `now.jsonl`, and in `then.jsonl` with these settings.
fn program(then: &str) -> String {
    format!(
        "echo epoch 1; case \"$GPU_TUNED_SET\" in '') cat now.jsonl ;; {then}) cat then.jsonl ;; *) exit 9 ;; esac \
         >> \"$GPU_TUNED_RECORD\""
    )
}

#[test]
fn what_holds_a_run_up_is_told_with_evidence_change_and_prediction() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("loader.jsonl", &project);
    insta::assert_snapshot!("diagnose_loader", diagnose(&project, &["loader.jsonl"]).ended(1));

    let mut tiny = Recorded::healthy();
    (tiny.step.micro_batch, tiny.step.micro_batches) = (4, 32);
    tiny.write("tiny.jsonl", &project);
    insta::assert_snapshot!("diagnose_tiny", diagnose(&project, &["tiny.jsonl"]).ended(1));

    Recorded::healthy().write_leaking("leak.jsonl", &project, 200 << 20);
    insta::assert_snapshot!("diagnose_leak", diagnose(&project, &["leak.jsonl"]).ended(1));

    let mut reading = Recorded::healthy();
    (reading.step.loss_s, reading.step.drain_s, reading.gpu.utilisation_percent) =
        (Some(0.09), Some(0.001), Some(70.0));
    reading.gpu.throttle = vec![Throttle::ThermalSoftware];
    reading.gpu.sm_clock_mhz = Some(1200);
    reading.write("sync.jsonl", &project);
    insta::assert_snapshot!("diagnose_sync", diagnose(&project, &["sync.jsonl"]).ended(1));
}

#[test]
fn a_run_that_nothing_is_wrong_with_is_fine() {
    let project = Project::new("bare");
    let mut healthy = Recorded::healthy();
    healthy.run.settings.as_mut().expect("settings").precision = Precision::MixedBf16;
    healthy.write("run.jsonl", &project);
    insta::assert_snapshot!("diagnose_fine", diagnose(&project, &["run.jsonl"]).ended(0));
    // Hints cost no exit code.
    Recorded::healthy().write("f32.jsonl", &project);
    assert_eq!(kinds(&diagnose(&project, &["f32.jsonl", "--json"]).json(0)), ["no_amp"]);
}

#[test]
fn json_has_figures_with_units_in_their_names() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("loader.jsonl", &project);
    let report = diagnose(&project, &["loader.jsonl", "--json"]).json(1);
    let first = &report["findings"][0];
    assert_eq!((&first["kind"], &first["severity"]), (&"loader_bound".into(), &"critical".into()));
    let waited = first["figures"]["waited_s_per_step"].as_f64().expect("seconds");
    assert!((waited - 0.4).abs() < 1e-6, "{first}");
    assert_eq!(first["change"]["settings"][0], serde_json::json!({"setting": "num_workers", "from": 1, "to": 7}));
    let prediction = &first["prediction"];
    assert_eq!(prediction["quantity"], "samples_per_s");
    assert!((prediction["now"].as_f64().expect("a rate") - 256.0).abs() < 1e-6, "{prediction}");
    assert!((prediction["then"].as_f64().expect("a rate") - 1280.0).abs() < 1e-6, "{prediction}");
    assert_eq!(report["judged"]["steps"], 98);
}

#[test]
fn program_and_monitor_may_be_in_two_files() {
    let project = Project::new("bare");
    let both = fs::read_to_string(Recorded::waiting(0.4).write("both.jsonl", &project)).expect("a recording");
    let is_of_program = |line: &&str| line.contains("\"kind\":\"run\"") || line.contains("\"kind\":\"step\"");
    let (program, monitor): (Vec<_>, Vec<_>) = both.lines().partition(is_of_program);
    project.write("program.jsonl", &(program.join("\n") + "\n"));
    project.write("monitor.jsonl", &(monitor.join("\n") + "\n"));
    let whole = diagnose(&project, &["both.jsonl"]).ended(1);
    assert_eq!(diagnose(&project, &["monitor.jsonl", "program.jsonl"]).ended(1), whole);
    let without = diagnose(&project, &["program.jsonl"]).ended(1);
    assert!(without.contains("missing   power, temperature, the PCIe link"), "{without}");
    insta::assert_snapshot!("diagnose_machine_only", diagnose(&project, &["monitor.jsonl"]).ended(1));
}

#[test]
fn low_clocks_of_the_machine_are_named_first_with_the_command() {
    let project = Project::new("bare");
    for (scenario, expected) in
        [("low-clocks", &["low_clocks", "low_memory_clock"][..]), ("power-cap", &["power_cap"]), ("training", &[])]
    {
        let file = format!("{scenario}.jsonl");
        looked(scenario, &project, &["--record", &file]).ended(0);
        let report: Value = serde_json::from_str(&diagnose(&project, &[&file, "--json"]).stdout).expect("a document");
        // These GPUs idle at first.
        let found: Vec<_> = kinds(&report).into_iter().filter(|kind| *kind != "gpu_idle").collect();
        assert_eq!(found, expected, "{scenario}");
    }
    let text = diagnose(&project, &["low-clocks.jsonl"]).ended(1);
    for words in [
        "the clocks of GPU 0 (NVIDIA GeForce RTX 4090) are 300 of 3105 MHz under load",
        "$ sudo nvidia-smi -i 0 -rgc; sudo nvidia-smi -i 0 -rac",
        "10% of the highest clock, in performance state P8",
        "the memory clock of GPU 0 (NVIDIA GeForce RTX 4090) is 405 of 10501 MHz under load",
        "$ sudo nvidia-smi -i 0 -rmc; sudo nvidia-smi -i 0 -rac",
    ] {
        assert!(text.split_whitespace().collect::<Vec<_>>().join(" ").contains(words), "`{words}` is not in {text}");
    }
}

#[test]
fn the_run_that_began_last_is_judged_in_whichever_order_files_are_named() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("old.jsonl", &project);
    let mut new = Recorded::healthy();
    new.run.at = 2000.0;
    new.write("new.jsonl", &project);
    let judged = diagnose(&project, &["old.jsonl", "new.jsonl"]).ended(0);
    assert!(judged.contains("98 steps after 2 of warm-up, 9.8 s"), "{judged}");
    assert_eq!(diagnose(&project, &["new.jsonl", "old.jsonl"]).ended(0), judged);
}

#[cfg(unix)]
#[test]
fn a_program_that_is_started_is_judged_and_its_output_passes_through() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("now.jsonl", &project);
    let ran = diagnose(&project, &["--json", "--", "sh", "-c", &program("none")]);
    assert!(ran.stderr.contains("epoch 1\n"), "{}", ran.stderr);
    let report = ran.json(1);
    assert_eq!(kinds(&report)[0], "loader_bound");
    assert_eq!(report["program"], serde_json::json!({"exit_code": 0, "was_stopped": false}));
}

#[cfg(unix)]
#[test]
fn of_a_program_that_fails_the_rest_is_judged_and_it_is_3() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("now.jsonl", &project);
    let text = diagnose(&project, &["--", "sh", "-c", &(program("none") + "; exit 7")]).ended(3);
    assert!(text.contains("[loader_bound]") && text.contains("program   it ended with exit status 7"), "{text}");
}

#[cfg(unix)]
#[test]
fn a_program_is_stopped_when_its_time_is_over() {
    let project = Project::new("bare");
    Recorded::healthy().write("now.jsonl", &project);
    let endless = program("none") + "; exec sleep 1000";
    let report = diagnose(&project, &["--json", "--duration", "500ms", "--", "sh", "-c", &endless]).json(0);
    assert_eq!(report["program"]["was_stopped"], true);
    assert_eq!(report["judged"]["steps"], 98);
}

#[cfg(unix)]
#[test]
fn what_settings_change_is_tried() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("now.jsonl", &project);
    Recorded::waiting(0.01).write("then.jsonl", &project);
    let ran = diagnose(&project, &["--try", "--", "sh", "-c", &program("num_workers=7")]);
    assert!(ran.stderr.contains("note: running again with num_workers=7, for up to 120 s\n"), "{}", ran.stderr);
    insta::assert_snapshot!("diagnose_tried", ran.ended(1));

    Recorded::waiting(0.3).write("slow.jsonl", &project);
    fs::rename(project.path("slow.jsonl"), project.path("then.jsonl")).expect("it can be renamed");
    let report = diagnose(&project, &["--json", "--try", "--", "sh", "-c", &program("num_workers=7")]).json(1);
    let tried = &report["tried"][0];
    assert_eq!((&tried["kind"], &tried["outcome"]), (&"loader_bound".into(), &"miss".into()), "{tried}");
    assert!((tried["got"].as_f64().expect("a rate") - 320.0).abs() < 1e-6, "{tried}");
}

#[test]
fn a_later_run_says_whether_predictions_came_true() {
    let project = Project::new("bare");
    let mut slow = Recorded::healthy();
    (slow.step.seconds, slow.step.outside_s) = (0.2, Some(0.1));
    slow.gpu.utilisation_percent = Some(48.0);
    slow.write("before.jsonl", &project);
    Recorded::healthy().write("after.jsonl", &project);
    insta::assert_snapshot!(
        "diagnose_before",
        diagnose(&project, &["--before", "before.jsonl", "after.jsonl"]).ended(0)
    );
    let same = diagnose(&project, &["--json", "--before", "before.jsonl", "before.jsonl"]).json(1);
    assert_eq!(same["compared"][0]["outcome"], "still_there");
    // A run without findings predicts nothing.
    let mut fast = Recorded::healthy();
    fast.run.settings.as_mut().expect("settings").precision = Precision::MixedBf16;
    fast.write("fast.jsonl", &project);
    let slower = ["--before", "fast.jsonl", "before.jsonl"];
    let text = diagnose(&project, &slower).ended(1);
    assert!(text.ends_with("before    no prediction to compare; 1,280 samples/s then, 640 samples/s now\n"), "{text}");
    let report = diagnose(&project, &[&["--json"], &slower[..]].concat()).json(1);
    assert_eq!(report["before"]["samples_per_s"].as_f64().map(f64::round), Some(1280.0), "{report}");
    assert_eq!(report.get("compared"), None, "{report}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_records_itself_is_judged_by_its_own_recording() {
    use std::process::Command;

    let project = Project::new("bare");
    Recorded::waiting(0.4).write("run.jsonl", &project);
    let mut sleeping = Command::new("sleep");
    sleeping.arg("1000").env("GPU_TUNED_RECORD", "run.jsonl").current_dir(project.path(""));
    let mut sleeping = sleeping.spawn().expect("there is a sleep");
    let ran = diagnose(&project, &["--json", "--duration", "300ms", "--pid", &sleeping.id().to_string()]);
    sleeping.kill().and_then(|()| sleeping.wait()).expect("it can be ended");
    assert_eq!(kinds(&ran.json(1))[0], "loader_bound");
}

#[cfg(target_os = "linux")]
#[test]
fn a_process_that_has_ended_is_not_there() {
    use std::process::{Command, Stdio};

    let mut ended = Command::new("true").stdout(Stdio::piped()).spawn().expect("there is one");
    // Its output ends with it, and nobody has reaped it.
    std::io::copy(&mut ended.stdout.take().expect("a pipe"), &mut std::io::sink()).expect("nothing");
    let project = Project::new("bare");
    let pid = ended.id().to_string();
    let refused = diagnose(&project, &["--duration", "300ms", "--pid", &pid]).refused(2);
    assert!(refused.starts_with(&format!("error: there is no process {pid}\n")), "{refused}");
    ended.wait().expect("it is reaped");
}

#[cfg(target_os = "linux")]
#[test]
fn why_the_recording_of_a_process_cannot_be_read_is_told() {
    use std::process::Command;

    let project = Project::new("bare");
    let file = Recorded::waiting(0.4).write("run.jsonl", &project);
    let text = fs::read_to_string(&file).expect("a recording");
    project.write("run.jsonl", &format!("{{\"kind\":\"value\",\"at\":x}}\n{text}"));
    let mut sleeping = Command::new("sleep");
    sleeping.arg("1000").env("GPU_TUNED_RECORD", "run.jsonl").current_dir(project.path(""));
    let mut sleeping = sleeping.spawn().expect("there is a sleep");
    let ran = diagnose(&project, &["--duration", "300ms", "--pid", &sleeping.id().to_string()]);
    sleeping.kill().and_then(|()| sleeping.wait()).expect("it can be ended");
    let place = "run.jsonl:1:22: not a line of a recording: it is not JSON; ";
    let said = ran.stderr.strip_prefix("note: the recording of the program itself is left out: ");
    assert!(said.is_some_and(|said| said.contains(place)), "{}", ran.stderr);
    assert!(ran.ended(4).contains("judged"));
}

#[cfg(unix)]
#[test]
fn a_recording_of_a_program_that_cannot_be_read_is_kept() {
    let project = Project::new("bare");
    Recorded::waiting(0.4).write("now.jsonl", &project);
    let broken = program("none") + "; echo nonsense >> \"$GPU_TUNED_RECORD\"";
    fs::create_dir(project.path("temporary")).expect("a folder can be made");
    let mut command = project.command(&["diagnose", "--", "sh", "-c", &broken]);
    let said = Ran::of(command.env("TMPDIR", project.path("temporary"))).refused(2);
    let kept = said.lines().find_map(|line| line.strip_prefix("note: the recording is kept in `"));
    let kept = kept.and_then(|line| line.strip_suffix("`")).unwrap_or_else(|| panic!("{said}"));
    assert!(
        said.contains("error: not a line of a recording: it is not JSON; GPU_TUNED_RECORD=FILE records ")
            && said.contains(&format!("--> {kept}:")),
        "{said}"
    );
    assert!(fs::read_to_string(kept).expect("it is there").contains("\"kind\":\"step\""));
}
