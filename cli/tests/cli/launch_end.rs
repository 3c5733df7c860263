//! Ends of `launch`: signals, and ranks that do not end by themselves.

use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::launch::launch;
use crate::project::{Project, Ran};
use crate::started::{Started, is_gone, runs, worker};

/// Each rank has a worker.
const WITH_WORKER: &str = "sleep 1000 & echo worker $!; wait";
/// Neither a rank nor its worker ends on SIGTERM or SIGINT.
const STUBBORN: &str = "trap 'echo asked >&2' TERM INT; (trap '' TERM INT; exec sh -c 'echo worker $$; exec sleep 1000') & \
                        while :; do sleep 1; done";

/// Two ranks whose workers were started, and the worker of the other rank.
fn started(program: &str) -> (Started, Pid) {
    // With a document on standard output, output of ranks is on standard error.
    let started = Started::new(&mut launch(&Project::new("bare"), 2, &["--json"], program));
    let other = started.said.iter().find_map(|line| worker(&line)).expect("there is another worker");
    (started, other)
}

#[test]
fn a_failure_leaves_no_worker_of_any_rank_behind() {
    let project = Project::new("bare");
    let program = "sleep 1000 & echo worker $!; [ $RANK = 0 ] && exit 3; wait";
    let ran = Ran::of(&mut launch(&project, 3, &[], program));
    let workers: Vec<_> = ran.stdout.lines().filter_map(worker).collect();
    // A rank may have been ended before its line.
    assert!(!workers.is_empty(), "{}", ran.stdout);
    assert!(!workers.into_iter().any(runs));
    ran.ended(3);
}

#[test]
fn ranks_that_ignore_sigterm_are_killed_after_ten_seconds() {
    let project = Project::new("bare");
    let program = format!("if [ $RANK = 0 ]; then sleep 1; exit 3; fi; {STUBBORN}");
    let begin = Instant::now();
    let ran = Ran::of(&mut launch(&project, 2, &[], &program));
    assert!((10..40).contains(&begin.elapsed().as_secs()), "{:?}", begin.elapsed());
    assert!(ran.stderr.contains("[1] asked\n"), "{}", ran.stderr);
    assert!(!runs(ran.stdout.lines().find_map(worker).expect("there was a worker")));
    ran.ended(3);
}

#[test]
fn stopped_ranks_get_a_signal_too() {
    let (mut started, other) = started("echo worker $$; kill -STOP $$; exec sleep 1000");
    thread::sleep(Duration::from_millis(300));
    started.send(Signal::TERM);
    assert_eq!(started.ended().signal(), Some(Signal::TERM.as_raw()));
    assert!(!runs(started.worker) && !runs(other));
}

#[test]
fn signals_are_passed_on_and_end_the_command_as_they_end_ranks() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        let (mut started, other) = started(WITH_WORKER);
        started.send(signal);
        assert_eq!(started.ended().signal(), Some(signal.as_raw()), "{signal:?}");
        assert!(!runs(started.worker) && !runs(other), "{signal:?}");
    }
}

/// Slurm sends these before the end of a job. A worker of a rank would end.
#[test]
fn user_signals_reach_ranks_only_and_end_nothing() {
    let program = "trap 'echo saved one >&2' USR1; trap 'echo saved two >&2; kill $worker; exit 0' USR2; sleep 1000 & \
                   worker=$!; echo worker $worker; while :; do wait; done";
    let (mut started, other) = started(program);
    for _ in 0..2 {
        started.send(Signal::USR1);
        started.says("[0] saved one");
    }
    assert!(runs(started.worker) && runs(other));
    started.send(Signal::USR2);
    started.says("[0] saved two");
    assert_eq!(started.ended().code(), Some(0));
    assert!(!runs(started.worker) && !runs(other));
}

#[test]
fn ranks_that_end_well_after_a_signal_are_no_failure() {
    let program = "trap 'echo saved >&2; exit 0' INT; sleep 1000 & echo worker $!; wait";
    let (mut started, other) = started(program);
    started.send(Signal::INT);
    started.says("[0] saved");
    assert_eq!(started.ended().code(), Some(0));
    assert!(!runs(started.worker) && !runs(other));
    assert_eq!(started.printed()["restarts"], 0);
}

/// Ranks that saved a checkpoint after a signal are not started again: the launcher of the command does that.
#[test]
fn ranks_that_saved_end_the_command_with_their_code() {
    let project = Project::new("bare");
    for name in [Signal::TERM, Signal::USR1] {
        let program =
            "trap 'sleep 0.$RANK; kill $worker; exit 99' TERM USR1; sleep 1000 & worker=$!; echo worker $worker; wait";
        let mut started = Started::new(&mut launch(&project, 2, &["--json", "--restarts", "3"], program));
        started.said.iter().find_map(|line| worker(&line)).expect("there is another worker");
        started.send(name);
        assert_eq!(started.ended().code(), Some(99), "{name:?}");
    }
    // A rank that failed counts.
    let ran = Ran::of(&mut launch(&project, 2, &[], "[ $RANK = 0 ] && exit 99; sleep 0.3; exit 7"));
    ran.ended(7);
}

#[test]
fn the_second_ctrl_c_kills_all_ranks() {
    let (mut started, other) = started(STUBBORN);
    started.send(Signal::INT);
    started.says("[0] asked");
    assert!(runs(started.worker) && runs(other));
    // Two within a moment count as one.
    thread::sleep(Duration::from_millis(500));
    started.send(Signal::INT);
    assert_eq!(started.ended().signal(), Some(2));
    assert!(is_gone(started.worker) && is_gone(other));
}

#[test]
fn a_killed_command_leaves_nothing_behind() {
    let (mut started, other) = started(STUBBORN);
    kill_process(Pid::from_child(&started.command), Signal::KILL).expect("it is there");
    assert_eq!(started.ended().signal(), Some(9));
    let begin = Instant::now();
    while runs(started.worker) || runs(other) {
        assert!(begin.elapsed() < Duration::from_secs(20), "workers go on");
        thread::sleep(Duration::from_millis(20));
    }
}

/// A daemon holds the pipe open, and is of no group.
#[cfg(target_os = "linux")]
#[test]
fn processes_that_leave_their_group_are_not_waited_for() {
    let project = Project::new("bare");
    // The shell waits until its worker has left.
    let program = "exec 3>&1; left=$(setsid sh -c 'echo $$; exec sleep 1000 >&3' &); echo worker $left";
    let mut started = Started::new(launch(&project, 2, &["--json"], program).stdin(Stdio::null()));
    let other = started.said.iter().find_map(|line| worker(&line)).expect("there is another worker");
    assert_eq!(started.ended().code(), Some(0));
    for daemon in [started.worker, other] {
        assert!(runs(daemon));
        kill_process(daemon, Signal::KILL).expect("it is there");
    }
}
