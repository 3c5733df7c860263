//! Programs that `diagnose` starts, and how they end.

use std::os::unix::process::ExitStatusExt;

use std::thread;
use std::time::Duration;

use rustix::process::{Signal, kill_process};

use crate::project::Project;
use crate::started::{Started, is_gone, runs, worker};
#[cfg(target_os = "linux")]
use crate::started::{behind, on_terminal};

/// Program with a worker; prints the worker's process id when both run.
const WITH_WORKER: &str = "sleep 1000 & echo worker $!; wait";
/// The same program, but neither process ends on SIGTERM, which is printed.
const STUBBORN: &str =
    "trap 'echo asked' TERM; (trap '' TERM; exec sh -c 'echo worker $$; exec sleep 1000') & while :; do sleep 1; done";
/// A program that leaves its worker behind.
const WITHOUT_ITS_WORKER: &str = "sleep 1000 & echo worker $!; exit 7";
/// Program whose worker leaves the process group and keeps the pipe open. The program ends only after its worker has
/// left: the shell waits for the end of what the worker prints to the first pipe.
const WITH_DAEMON: &str = "exec 3>&1; left=$(setsid sh -c 'echo $$; exec sleep 1000 >&3' &); echo worker $left";
/// The same, but the worker writes to the pipe, also when nobody reads it any more.
const WITH_TALKING_DAEMON: &str = "trap '' PIPE; exec 3>&1; \
    left=$(setsid sh -c 'echo $$; exec >&3 2>/dev/null; while :; do echo there; sleep 0.2; done' &); echo worker $left";

fn diagnosing(project: &Project, program: &str) -> Started {
    Started::new(&mut project.command(&["diagnose", "--json", "--", "sh", "-c", program]))
}

#[test]
fn a_program_whose_time_is_over_leaves_no_worker_behind() {
    let project = Project::new("bare");
    let ran = project.run(&["diagnose", "--json", "--duration", "3s", "--", "sh", "-c", WITH_WORKER]);
    let worker = ran.stderr.lines().find_map(worker).expect("there was one");
    assert!(!runs(worker));
    assert_eq!(ran.json(4)["program"]["was_stopped"], true);
}

#[test]
fn a_program_that_ends_by_itself_leaves_no_worker_behind() {
    let mut started = diagnosing(&Project::new("bare"), WITHOUT_ITS_WORKER);
    assert_eq!(started.ended().code(), Some(3));
    assert!(!runs(started.worker));
    assert_eq!(started.printed()["program"], serde_json::json!({ "exit_code": 7, "was_stopped": false }));
    started.says("note: program exited; terminating its remaining child processes");
}

#[test]
fn what_ends_a_moment_after_its_program_is_left_to_it() {
    let ran = Project::new("bare").run(&["diagnose", "--", "sh", "-c", "(sleep 0.1; echo done) & exit 0"]);
    assert_eq!(ran.stderr, "done\n");
    ran.ended(4);
}

#[test]
fn what_is_sent_first_stops_the_program_with_its_workers() {
    for signal in [Signal::INT, Signal::QUIT] {
        let mut started = diagnosing(&Project::new("bare"), WITH_WORKER);
        started.send(signal);
        assert_eq!(started.ended().code(), Some(4), "{signal:?}");
        assert!(!runs(started.worker));
        assert_eq!(started.printed()["program"]["was_stopped"], true);
    }
}

#[test]
fn the_second_ctrl_c_ends_everything_at_once() {
    let mut started = diagnosing(&Project::new("bare"), STUBBORN);
    started.send(Signal::INT);
    // Two that come together are one.
    started.says("asked");
    assert!(runs(started.worker));
    // Nor are the same two within a moment more than one.
    thread::sleep(Duration::from_millis(500));
    started.send(Signal::INT);
    assert_eq!(started.ended().signal(), Some(2));
    assert!(is_gone(started.worker));
}

/// Ignores signals, as under `nohup` and for background jobs of scripts.
#[cfg(target_os = "linux")]
#[test]
fn what_whoever_starts_it_wants_ignored_is_ignored() {
    let project = Project::new("bare");
    let command = project.command(&["diagnose", "--json", "--", "sh", "-c", WITH_WORKER]);
    let mut started = Started::new(&mut behind("trap '' HUP", &command));
    started.send(Signal::HUP);
    // It would be the second otherwise, which ends everything at once.
    started.send(Signal::INT);
    assert_eq!(started.ended().code(), Some(4));
    assert_eq!(started.printed()["program"]["was_stopped"], true);
}

#[cfg(target_os = "linux")]
#[test]
fn what_has_left_its_group_is_not_waited_for() {
    for program in [WITH_DAEMON, WITH_TALKING_DAEMON] {
        let mut started = diagnosing(&Project::new("bare"), program);
        assert_eq!(started.ended().code(), Some(4));
        assert!(runs(started.worker));
        started.says("note: the program has exited; not waiting for output of processes that have left its group");
        kill_process(started.worker, Signal::KILL).expect("it is there");
    }
}

/// Here, because its recording cannot be written: no file may have anything in it, and no signal is raised.
#[cfg(target_os = "linux")]
#[test]
fn without_a_monitor_the_program_does_not_go_on() {
    let project = Project::new("bare");
    let command = project.command(&["diagnose", "--record", "run.jsonl", "--", "sleep", "30"]);
    let mut started = Started::new(&mut behind("trap '' XFSZ; ulimit -f 0; echo worker $$ >&2", &command));
    assert_eq!(started.ended().code(), Some(2));
    // Processes that it started had the same pipe: no process has the pipe any more.
    let said: Vec<_> = started.said.iter().collect();
    assert!(said.join("\n").contains("error: cannot write `"), "{said:?}");
}

/// Stopped as by the system, when a background process reads from a terminal.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_is_held_is_told_and_ended_all_the_same() {
    let project = Project::new("bare");
    let ran = project.run(&["diagnose", "--json", "--duration", "5s", "--", "sh", "-c", "kill -STOP $$"]);
    assert!(ran.stderr.starts_with("note: the program is stopped, because only the foreground"), "{}", ran.stderr);
    assert_eq!(ran.json(4)["program"]["was_stopped"], true);
}

/// A screen of its own, as Burn's training has where it prints to a terminal, would have it held for ever.
#[cfg(target_os = "linux")]
#[test]
fn a_program_that_is_started_from_a_terminal_sees_none_to_print_to() {
    let program = "if [ -t 1 ]; then stty raw <&1; fi; [ -t 2 ] && echo went on";
    let project = Project::new("bare");
    let command = project.command(&["diagnose", "--duration", "5s", "--", "sh", "-c", &format!("'{program}'")]);
    let ran = crate::project::Ran::of(&mut on_terminal(&command));
    assert!(ran.stdout.starts_with("went on\r\n"), "{}", ran.stdout);
    assert!(!ran.stdout.contains("is held"), "{}", ran.stdout);
    assert_eq!(ran.code, 4);
}

#[test]
fn a_recording_of_its_own_is_private() {
    let said = Project::new("bare").run(&["diagnose", "--", "sh", "-c", "stat -c %a $(dirname $GPU_TUNED_RECORD)"]);
    assert_eq!(said.stderr, "700\n");
}

#[test]
fn a_program_that_makes_a_pipe_of_its_recording_is_refused() {
    let program =
        "while [ ! -s $GPU_TUNED_RECORD ]; do sleep 0.1; done; rm $GPU_TUNED_RECORD; mkfifo $GPU_TUNED_RECORD";
    let said = Project::new("bare").run(&["diagnose", "--", "sh", "-c", program]).refused(2);
    assert!(said.contains("run.jsonl`: it is not a regular file"), "{said}");
}

#[test]
fn without_a_driver_it_is_said_that_there_is_none() {
    let text = Project::new("bare").run(&["diagnose", "--", "true"]).ended(4);
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        said.contains("the GPU's utilization: there was no GPU to sample: no NVIDIA management library found"),
        "{text}"
    );
    assert!(!said.contains("diagnose -- COMMAND"), "{text}");
}
