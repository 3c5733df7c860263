//! `monitor` without a terminal: lines, JSON, tables, recordings, and messages when something is missing.

use std::process::Command;

use gpu_tuned_observe::recording::{Record, Run, StepRecord, Writer, now, read};
use serde_json::Value;

use crate::project::{Project, Ran, with_gpus};

/// The command on the machine of a scenario in which figures change.
pub(crate) fn on(scenario: &str, project: &Project, args: &[&str]) -> Command {
    let mut command = project.command(&[&["monitor"], args].concat());
    with_gpus(&mut command, &fake_nvml::scenario(&format!("watch/{scenario}")));
    command
}

/// A few looks, as quick as may be.
pub(crate) fn looked(scenario: &str, project: &Project, args: &[&str]) -> Ran {
    Ran::of(&mut on(scenario, project, &[&["--interval", "100ms", "--duration", "1500ms"], args].concat()))
}

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"))).collect()
}

#[test]
fn in_a_pipe_each_look_is_a_line_and_the_summary_is_last() {
    let text = looked("training", &Project::new("bare"), &[]).ended(0);
    assert!(!text.contains('\x1b'), "{text}");
    let gpu = text.lines().find(|line| line.contains("GPU 0") && line.contains("46.5/140.4 GiB")).expect("a line");
    assert!(gpu.contains("SM ") && gpu.contains("/700 W") && gpu.contains("1980 MHz"), "{gpu}");
    assert!(text.lines().any(|line| line.contains("  host   ")), "{text}");
    let (_, summary) = text.split_once("\nWatched for").expect("a summary");
    for word in ["GPU 0 NVIDIA H200 (h200)", "mean", "std. dev.", "SM activity, %", "of energy", "Host", "CPU, %"] {
        assert!(summary.contains(word), "no `{word}`: {summary}");
    }
    assert!(text.lines().all(|line| line.chars().count() <= 120), "{text}");
}

#[test]
fn json_is_a_record_in_each_line_and_the_summary_last() {
    let records = lines(&looked("power-cap", &Project::new("bare"), &["--json"]).ended(0));
    assert_eq!(records[0]["kind"], "start");
    assert_eq!(records[0]["gpus"][0]["profile"], "rtx4090");
    let gpu = records.iter().rfind(|record| record["kind"] == "gpu").expect("looks");
    assert_eq!((&gpu["power_limit_mw"], &gpu["throttle"][0]), (&250_000.into(), &"power_cap".into()));
    let summary = records.last().expect("lines");
    assert_eq!(summary["kind"], "summary");
    let power = &summary["gpus"][0]["figures"]["power_w"];
    assert!(power["mean"].as_f64() > Some(20.0) && power["max"].as_f64() < Some(260.0), "{power}");
    assert!(power["standard_deviation"].as_f64() > Some(0.0) && power["count"].as_u64() > Some(5), "{power}");
    assert!(summary["gpus"][0]["energy_j"].as_f64() > Some(0.0), "{summary}");
    assert!(summary["gpus"][0]["throttled_s"]["power_cap"].as_f64() > Some(0.1), "{summary}");
}

#[test]
fn a_table_is_printed_or_written() {
    let project = Project::new("bare");
    let ran = looked("lost-between", &project, &["--csv"]);
    assert!(ran.stderr.contains("Watched for"), "the summary is aside: {}", ran.stderr);
    let printed = ran.ended(0);
    looked("lost-between", &project, &["--csv", "gpu.csv"]).ended(0);
    for table in [printed, project.read("gpu.csv")] {
        let header: Vec<_> = table.lines().next().expect("a header").split(',').collect();
        assert_eq!(header[..3], ["at_s", "gpu", "mig_slot"]);
        // Nothing else is among its lines, which begin with a time.
        assert!(table.lines().skip(1).all(|line| line.starts_with(|first: char| first.is_ascii_digit())), "{table}");
        assert!(table.lines().count() > 10 && table.ends_with('\n'), "{table}");
        assert!(table.lines().skip(1).any(|line| line.contains("GPU-1ad04090-0000-4000-8000-000000000002")), "{table}");
    }
}

#[test]
fn a_recording_holds_what_was_seen_and_is_shown_again() {
    let project = Project::new("bare");
    let path = project.path("run.jsonl");
    let mut program = Writer::append(&path).expect("a recording");
    // While it is watched.
    let mut step = StepRecord::new(now() + 1.0, 1);
    (step.seconds, step.samples, step.loss) = (0.5, 64, Some(2.25));
    program.write(&Record::Step(Box::new(step))).and_then(|()| program.flush()).expect("it is written");
    let text = looked("thermal", &project, &["--record", "run.jsonl"]).ended(0);
    assert!(text.contains("step 1  128 samples/s  loss 2.25"), "{text}");
    let recording = read(&path).expect("a recording");
    assert_eq!(recording.torn, [0; 0]);
    let looks = recording.records.iter().filter(|record| matches!(record, Record::Gpu(_))).count();
    assert!(looks >= 5, "{looks}");
    assert_eq!(recording.records.iter().filter(|record| matches!(record, Record::Step(_))).count(), 1);

    let replayed = project.run(&["monitor", "--replay", "run.jsonl"]).ended(0);
    assert!(replayed.contains("GPU 0 NVIDIA GeForce RTX 4090 (rtx4090)"), "{replayed}");
    assert!(replayed.contains("Steps: 1, 64 samples") && replayed.contains("loss 2.25 at the end"), "{replayed}");
    let records = lines(&project.run(&["monitor", "--replay", "run.jsonl", "--json"]).ended(0));
    assert_eq!(records.len(), recording.records.len() + 1);
    let table = project.run(&["monitor", "--replay", "run.jsonl", "--csv"]).ended(0);
    assert_eq!(table.lines().filter(|line| line.contains(",GPU-")).count(), looks);
    // What is exported has the same columns, without those of the host.
    let exported = project.run(&["export", "run.jsonl", "--csv=gpus"]).ended(0);
    let of_gpus = |line: &&str| line.starts_with("at_s") || line.contains(",GPU-");
    let columns = exported.lines().next().expect("names").split(',').count();
    let cut = |line: &str| line.split(',').take(columns).collect::<Vec<_>>().join(",");
    assert_eq!(exported.lines().collect::<Vec<_>>(), table.lines().filter(of_gpus).map(cut).collect::<Vec<_>>());
}

/// What a program has written into `run.jsonl` that began so many seconds ago: its run, and a step in each second since.
fn trained(project: &Project, ago: u64) {
    let begun = now() - ago as f64;
    let mut program = Writer::append(project.path("run.jsonl")).expect("a recording");
    let mut run = Run::new(begun, 77);
    "lm".clone_into(&mut run.workload);
    program.write(&Record::Run(Box::new(run))).expect("it is written");
    for step in 1..100.min(ago) {
        let mut record = StepRecord::new(begun + step as f64, step);
        (record.seconds, record.samples, record.loss) = (1.0, 128, Some(2.0));
        program.write(&Record::Step(Box::new(record))).expect("it is written");
    }
    program.flush().expect("it is written");
}

#[test]
fn times_count_from_the_monitors_start_also_of_a_program_that_began_before() {
    let project = Project::new("bare");
    trained(&project, 10);
    let text = looked("training", &project, &["--record", "run.jsonl"]).ended(0);
    let at = |line: &str| line.split(" s  ").next().and_then(|time| time.trim().parse::<f64>().ok());
    let begins = text.lines().find(|line| line.contains("training `lm` begins: process 77")).expect("the run");
    assert!(at(begins).is_some_and(|at| (-60.0..=-10.0).contains(&at)), "{text}");
    let looks = text.lines().filter(|line| line.contains("  GPU 0")).filter_map(at);
    assert!(looks.clone().count() > 5 && looks.clone().all(|at| (0.0..60.0).contains(&at)), "{text}");
    // So they do when it is shown again.
    let text = project.run(&["monitor", "--replay", "run.jsonl", "--csv", "gpu.csv"]).ended(0);
    assert!(at(text.lines().next().expect("lines")).is_some_and(|at| (-60.0..=-10.0).contains(&at)), "{text}");
    // Of a recording without a monitor, from its first record on.
    let alone = Project::new("bare");
    trained(&alone, 10);
    let text = alone.run(&["monitor", "--replay", "run.jsonl", "--csv", "gpu.csv"]).ended(0);
    assert!(text.starts_with("     0.0 s  training `lm` begins") && text.contains("\n     9.0 s  step 9 "), "{text}");
}

#[test]
fn what_was_recorded_before_the_monitor_began_is_not_counted() {
    let project = Project::new("bare");
    trained(&project, 3 * 24 * 3600);
    let records = lines(&looked("training", &project, &["--record", "run.jsonl", "--json"]).ended(0));
    let count = |kind: &str| records.iter().filter(|record| record["kind"] == kind).count();
    assert_eq!((count("run"), count("step")), (1, 0), "which run it is, is told");
    assert_eq!(records.last().expect("a summary")["steps"], Value::Null);
    let text = looked("training", &project, &["--record", "run.jsonl"]).ended(0);
    assert!(!text.contains("step ") && !text.contains("Steps:"), "{text}");
    // It goes on.
    let mut step = StepRecord::new(now() + 1.0, 100);
    (step.seconds, step.samples) = (1.0, 128);
    let mut program = Writer::append(project.path("run.jsonl")).expect("a recording");
    program.write(&Record::Step(Box::new(step))).and_then(|()| program.flush()).expect("it is written");
    let text = looked("training", &project, &["--record", "run.jsonl"]).ended(0);
    assert!(text.contains("  step 100  128 samples/s\n") && text.contains("\nSteps: 1, 128 samples\n"), "{text}");
    // The recording has all of them.
    let replayed = project.run(&["monitor", "--replay", "run.jsonl"]).ended(0);
    assert!(replayed.contains("\nSteps: 100, 12800 samples\n"), "{replayed}");
}

#[test]
fn the_time_between_two_monitors_in_one_file_is_not_watched() {
    let project = Project::new("bare");
    let monitor = |begun: u32| {
        let start = format!("{{\"kind\":\"start\",\"at\":{begun}.0,\"version\":1,\"gpus\":[{{\"gpu\":0}}]}}\n");
        let looks = (begun..=begun + 9).map(|at| {
            format!(
                "{{\"kind\":\"gpu\",\"at\":{at}.0,\"gpu\":0,\"throttle\":[\"power_cap\"]}}\n\
                 {{\"kind\":\"host\",\"at\":{at}.0}}\n"
            )
        });
        std::iter::once(start).chain(looks).collect::<String>()
    };
    project.write("run.jsonl", &(monitor(1_000_000) + &monitor(1_036_000)));
    let text = project.run(&["monitor", "--replay", "run.jsonl"]).ended(0);
    assert!(text.contains("Watched for 0:18\n"), "{text}");
    assert!(text.contains("clocks throttled for 0:18 (100%): power limit"), "{text}");
}

#[test]
fn without_a_driver_the_host_is_watched_and_one_line_says_why() {
    let project = Project::new("bare");
    let ran = project.run(&["monitor", "--interval", "100ms", "--duration", "400ms"]);
    let notes: Vec<_> = ran.stderr.lines().collect();
    assert!(notes.len() == 1 && notes[0].starts_with("note: no NVIDIA management library found"), "{}", ran.stderr);
    let text = ran.ended(0);
    assert!(text.contains("No GPU was watched: no NVIDIA management library found"), "{text}");
    assert!(text.contains("memory used, GiB"), "{text}");
    let summary = project.run(&["monitor", "--duration", "400ms", "--json"]).ended(0);
    assert_eq!(lines(&summary).last().expect("lines")["gpus"], Value::Array(Vec::new()));
}

#[test]
fn a_gpu_that_cannot_be_watched_is_told_beside_the_others() {
    let ran = looked("../gpu-lost", &Project::new("bare"), &[]);
    assert_eq!(ran.stderr.lines().count(), 1, "{}", ran.stderr);
    assert!(ran.stderr.starts_with("note: GPU 0: the GPU is lost"), "{}", ran.stderr);
    let text = ran.ended(0);
    assert!(text.contains("\nGPU 0: the GPU is lost") && text.contains("\nGPU 1 NVIDIA GeForce RTX 4090"), "{text}");
}

#[test]
fn gpus_are_chosen_by_their_numbers() {
    let project = Project::new("bare");
    let records = lines(&looked("eight-h200", &project, &["--gpu", "2", "--gpu", "5", "--json"]).ended(0));
    let mut numbers: Vec<_> = records.iter().filter_map(|record| record["gpu"].as_u64()).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers, [2, 5]);
}

#[test]
#[cfg(unix)]
fn a_process_is_watched_until_it_ends() {
    let project = Project::new("bare");
    let mut sleeper = Command::new("sleep").arg("1").spawn().expect("a process");
    let pid = sleeper.id().to_string();
    let waiting = std::thread::spawn(move || sleeper.wait());
    let text = Ran::of(&mut on("idle", &project, &["--interval", "100ms", "--pid", &pid])).ended(0);
    waiting.join().expect("it is waited for").expect("it ends");
    assert!(text.contains(&format!("process {pid}")) && text.contains("process memory, GiB"), "{text}");
    let said = Ran::of(&mut on("idle", &project, &["--pid", "4194400"])).refused(2);
    assert!(said.starts_with("error: there is no process 4194400"), "{said}");
}
