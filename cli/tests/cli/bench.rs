#[cfg(unix)]
use std::os::unix::process::{CommandExt as _, ExitStatusExt as _};

use serde_json::Value;

use crate::project::Project;
#[cfg(unix)]
use crate::started::{asleep, shell};

const RESULTS: &str = "gpu-tuned.bench.jsonl";

/// Program that records its arguments.
fn project() -> Project {
    Project::new("measuring").beside("runtime")
}

fn bench(project: &Project, flags: &[&str], words: &[&str]) -> crate::project::Ran {
    let all: Vec<_> = ["bench"].iter().chain(flags).chain(&["--", "bench"]).chain(words).copied().collect();
    project.run(&all)
}

/// The report without how long it took.
fn timeless(report: &str) -> String {
    let (before, after) = report.split_once("repeats all; ").unwrap_or_else(|| panic!("{report}"));
    let (_, after) = after.split_once(" s, ").unwrap_or_else(|| panic!("{report}"));
    // Whether systems keep what was in memory is their own affair.
    format!("{before}repeats all; - s, {after}").replace(" (core dumped)", "")
}

/// Number of steps of this batch, by the program's output.
fn ran(stderr: &str) -> usize {
    stderr.lines().filter(|line| line.starts_with("ran ")).count()
}

#[test]
fn the_frontier_and_the_plan_are_marked() {
    let project = project();
    let report = bench(&project, &["--batch", "8..32", "--svg", "frontier.svg"], &[]).ended(0);
    insta::assert_snapshot!("bench", timeless(&report));
    let svg = project.read("frontier.svg");
    assert!(svg.contains("lm on CPU (2 cores)"), "{svg}");
    assert!(svg.contains("<title>planned: f32, batch 16, 61.5 samples/s"), "{svg}");
    assert_eq!(svg.matches("r=\"3\"><title>").count(), 6);
    bench(&project, &["--batch", "8..32", "--svg", "frontier.svg"], &[]).ended(0);
    let said = bench(&project, &["--svg", "src"], &[]).refused(2);
    assert_eq!(said, "error: cannot write `src`: is a directory\n  help: name a file, not a folder\n");
    project.write("frontier.svg", "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"9\"/>");
    let said = bench(&project, &["--svg", "frontier.svg"], &[]).refused(2);
    assert!(said.contains("`frontier.svg` exists and is not a picture of this command"), "{said}");
}

/// Apple's file systems have no such names.
#[test]
#[cfg(all(unix, not(target_vendor = "apple")))]
fn a_picture_whose_name_is_no_utf_8_is_reported_as_it_is_shown() {
    use std::os::unix::ffi::OsStrExt as _;

    let project = project();
    let picture = std::ffi::OsStr::from_bytes(b"na\xefve.svg");
    let mut command = project.command(&["bench", "--json", "--batch", "8", "--checkpointing", "off", "--svg"]);
    let report = crate::project::Ran::of(command.arg(picture).args(["--", "bench"])).json(0);
    assert_eq!(report["svg"], "na\u{fffd}ve.svg");
    assert!(report["results"].as_str().is_some_and(|path| path.ends_with(RESULTS)), "{report:#}");
    assert!(project.path("").join(picture).exists());
}

#[test]
fn what_has_run_is_not_run_again_unless_it_is_asked_for() {
    let project = project();
    let off = &["--checkpointing", "off"];
    let first = bench(&project, &[off, &["--batch", "8,16"][..]].concat(), &[]);
    assert_eq!(ran(&first.stderr), 2, "{}", first.stderr);
    let more = bench(&project, &[off, &["--batch", "8,16,32"][..]].concat(), &[]);
    assert_eq!(ran(&more.stderr), 1, "{}", more.stderr);
    let again = bench(&project, &[off, &["--batch", "8,16", "--again"][..]].concat(), &["fail=8"]);
    assert_eq!(ran(&again.stderr), 2, "{}", again.stderr);
    assert!(again.ended(0).contains("failed: no such image"));
}

#[test]
fn what_stops_the_process_is_reported_and_the_rest_is_run() {
    let project = project();
    let flags = ["--batch", "4,8,16,32,64", "--checkpointing", "off"];
    let found = bench(&project, &flags, &["fail=4", "die=8", "exit=16", "out=32"]);
    assert_eq!(found.stderr.matches("ran ").count(), 3, "{}", found.stderr);
    let report = found.ended(0);
    insta::assert_snapshot!("bench_stopped", timeless(&report));
    // Its result is recorded, and nothing of it runs again.
    let known = bench(&project, &flags, &[]);
    assert_eq!((ran(&known.stderr), timeless(&known.ended(0))), (0, timeless(&report)));
}

#[test]
fn a_program_that_fails_after_its_last_setup_is_not_run_for_that_again() {
    let project = project();
    let begun = || project.read(RESULTS).matches("{\"begin\":").count();
    let flags = ["--batch", "8", "--checkpointing", "off", "--workers", "0"];
    let said = "note: the program failed after its last configuration: exit status 139\n";
    let found = bench(&project, &flags, &["badexit"]);
    assert_eq!((begun(), found.stderr.matches(said).count()), (1, 1), "{}", found.stderr);
    let report = found.ended(0);
    assert!(report.contains("planned: f32, batch 16: not among what ran") && report.contains("host_batch"), "{report}");
    // Nor where all of it is on record.
    let known = bench(&project, &flags[..4], &["badexit"]);
    assert_eq!((begun(), ran(&known.stderr)), (2, 0), "{}", known.stderr);
    assert!(known.stderr.contains(said) && known.ended(0).contains("44.4"));
}

#[test]
fn what_each_process_finds_out_anew_is_no_progress() {
    let project = project();
    let flags = ["--batch", "8,16", "--checkpointing", "off", "--workers", "0"];
    let failed = bench(&project, &flags, &["badexit=16"]).refused(3);
    assert!(failed.contains("error: the program failed: exit status 139\n"), "{failed}");
    assert_eq!(project.read(RESULTS).matches("{\"begin\":").count(), 2);
}

#[test]
fn scripts_get_every_point_with_what_became_of_it() {
    let project = project();
    let flags = ["--json", "--batch", "8,16", "--precision", "f32,bf16_params", "--checkpointing", "off"];
    let report = bench(&project, &flags, &["die=8"]).json(0);
    let points = report["points"].as_array().expect("points");
    let of = |index: usize, key: &str| points[index][key].clone();
    assert_eq!([0, 1, 2, 3].map(|at| of(at, "batch")), [8, 16, 8, 16].map(Value::from));
    assert_eq!([0, 2].map(|at| of(at, "precision")), ["f32", "bf16_params"].map(Value::from));
    assert!(of(0, "outcome")["died"]["how"].as_str().is_some_and(|how| how.contains("signal: 6")), "{report:#}");
    assert_eq!(of(1, "outcome")["measured"]["step_ms"], 260.0);
    assert_eq!([1, 3].map(|at| of(at, "planned")), [true, false].map(Value::from));
    assert_eq!((&report["workload"], &report["device"]), (&"lm".into(), &"CPU (2 cores)".into()));
    assert_eq!(report["planned"]["accumulation"], 4);
}

#[test]
fn formats_whose_results_are_of_different_headers_stand_in_one_table() {
    let project = project();
    let flags = ["--batch", "8,16", "--precision", "f32,bf16_params", "--checkpointing", "off"];
    let report = bench(&project, &flags, &["full_f32"]).ended(0);
    insta::assert_snapshot!("bench_formats", timeless(&report));
    let answer = bench(&project, &[&["--json"], &flags[..]].concat(), &["full_f32"]).json(0);
    let points = answer["points"].as_array().expect("points");
    let full: Vec<_> = points.iter().map(|point| point["full_f32"] == true).collect();
    assert_eq!((full, answer.get("full_f32")), (vec![true, true, false, false], None), "{answer:#}");
}

#[test]
fn the_librarys_kernels_are_compared_where_steps_use_them() {
    let project = project();
    let flags = ["--batch", "8,16", "--precision", "f32,mixed_bf16", "--checkpointing", "off"];
    let timed = bench(&project, &flags, &["library"]);
    assert_eq!(
        (ran(&timed.stderr), timed.stderr.matches("note: timing the same steps with kernels = library").count()),
        (8, 2)
    );
    insta::assert_snapshot!("bench_library", timeless(&timed.ended(0)));
    // All of it is on record.
    let known = bench(&project, &[&["--json"], &flags[..]].concat(), &["library"]);
    assert_eq!(ran(&known.stderr), 0, "{}", known.stderr);
    let report = known.json(0);
    let points = report["points"].as_array().expect("points");
    let kernels: Vec<_> = points.iter().map(|point| point["kernels"].as_str().unwrap_or("burn")).collect();
    assert_eq!(kernels, [["burn"; 4], ["library"; 4]].concat());
    let planned: Vec<_> = points.iter().map(|point| point["planned"] == true).collect();
    assert_eq!(planned, [false, true, false, false, false, false, false, false], "{report:#}");
}

#[test]
fn a_library_that_fails_leaves_the_results_of_burns_kernels() {
    let flags = ["--batch", "8", "--checkpointing", "off"];
    let timed = bench(&project(), &flags, &["library", "nolibrary"]);
    assert!(
        timed.stderr.contains("note: steps with kernels = library were not timed (exit status 7)"),
        "{}",
        timed.stderr
    );
    assert!(timed.ended(0).contains("44.4"));
}

#[test]
fn kernels_that_are_set_are_compared_with_nothing() {
    let project = project();
    let words = ["bench", "--batch", "8", "--checkpointing", "off", "--", "bench", "library"];
    let timed = crate::project::Ran::of(project.command(&words).env("GPU_TUNED_SET", "kernels=library"));
    assert_eq!(ran(&timed.stderr), 1, "{}", timed.stderr);
    assert!(timed.ended(0).contains("f32-library"));
}

#[test]
fn why_steps_were_not_fed_is_said_below_the_table_and_to_scripts() {
    let project = project();
    let flags = ["--batch", "8,16", "--checkpointing", "off", "--workers", "0,2"];
    let report = bench(&project, &flags, &["fail=8"]).ended(0);
    insta::assert_snapshot!("bench_unfed", timeless(&report));
    let answer = bench(&project, &[&["--json"], &flags[..]].concat(), &[]).json(0);
    let points = answer["points"].as_array().expect("points");
    let why: Vec<_> = points.iter().map(|point| point["why"].as_str()).collect();
    let failed = "failed: no such image";
    let unfed = format!("not run, as its steps fail without a loader: {failed}");
    let no_batches = "not run: the program has no `host_batch` to prepare batches with";
    assert_eq!(why, [Some(failed), Some(&unfed), Some(&unfed), None, Some(no_batches), Some(no_batches)]);
    assert_eq!(points.iter().filter(|point| point["workers"].is_null()).count(), 2);
}

#[test]
fn nothing_that_ran_is_a_no() {
    let project = project();
    let report = bench(&project, &["--batch", "8", "--checkpointing", "off", "--svg", "a.svg"], &["fail=8"]);
    assert!(report.stderr.contains("note: no picture: nothing ran whose memory is known"), "{}", report.stderr);
    assert!(report.ended(1).contains("no frontier: nothing ran"));
    assert!(!project.path("a.svg").exists());
}

#[test]
fn a_program_that_fails_or_never_measures_is_told_apart_from_both() {
    let project = project();
    let failed = project.run(&["bench", "--", "fail"]).refused(3);
    assert!(failed.contains("error: the program failed: exit status 7\n"), "{failed}");
    let never = project.run(&["bench", "--profile", "dev"]).refused(3);
    assert!(never.contains("`dev` profile") && never.contains("ended without measuring anything"), "{never}");
    assert!(!project.path(RESULTS).exists());
    project.write(RESULTS, "my own notes\n");
    let other = project.run(&["bench"]).refused(2);
    assert!(other.contains("has no results of a bench\n  help: move it elsewhere"), "{other}");
    assert_eq!(project.read(RESULTS), "my own notes\n");
}

/// Signal as from a terminal: to the command, to cargo and to the program.
#[cfg(unix)]
#[test]
fn an_interruption_keeps_what_has_run() {
    let project = project();
    let flags = ["bench", "--batch", "8,16,32", "--checkpointing", "off", "--", "bench"];
    let (mut child, _lines) = asleep(project.command(&[&flags[..], &["sleep=16"]].concat()).process_group(0));
    shell(&format!("kill -TERM -{}", child.id()));
    assert_eq!(child.wait().expect("the command ends").signal(), Some(15));

    // A line that was cut off is no record.
    let kept = project.read(RESULTS);
    project.write(RESULTS, &format!("{kept}{{\"ended\":{{\"prec\n"));
    let next = project.run(&flags);
    assert_eq!(ran(&next.stderr), 2, "{}", next.stderr);
    assert!(!next.ended(0).contains("died"));
}

/// A signal to the program alone is no fault of the configuration.
#[cfg(unix)]
#[test]
fn a_program_that_is_told_to_end_has_not_died_of_its_setup() {
    let project = project();
    let words = ["bench", "--batch", "8,16", "--checkpointing", "off", "--", "bench", "sleep=16"];
    let (mut child, lines) = asleep(&mut project.command(&words));
    // Cargo has become the program, which is the command's only child.
    shell(&format!("kill -TERM $(ps -o pid= --ppid {})", child.id()));
    let rest = lines.collect::<Vec<_>>().join("\n");
    assert_eq!(child.wait().expect("the command ends").code(), Some(3));
    assert!(rest.contains("error: interrupted: ") && rest.contains("kept in gpu-tuned.bench.jsonl"), "{rest}");
}

/// Signal as from a script: to the command, which ends the processes that it started.
#[cfg(unix)]
#[test]
fn a_command_that_is_told_to_end_takes_its_program_with_it() {
    let project = project();
    let words = ["bench", "--batch", "8", "--checkpointing", "off", "--", "bench", "sleep=8"];
    let (mut child, lines) = asleep(&mut project.command(&words));
    shell(&format!("kill -TERM {}", child.id()));
    // The program has its standard error, too: until nobody has it any more. One that goes on says what it ran.
    let rest = lines.collect::<Vec<_>>().join("\n");
    assert!(!rest.contains("ran "), "{rest}");
    assert!(rest.contains("error: stopped, and the program with it; results are kept"), "{rest}");
    assert_eq!(child.wait().expect("the command ends").signal(), Some(15));
}
