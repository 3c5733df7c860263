//! Ranks on a driver that runs no kernels, with the fake NCCL: what a lost rank does to the others.

use std::fs;
use std::net::TcpListener;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use fake_cuda::Machine;
use fake_nccl::{Fake, SUMS_VARIABLE};

use super::hardware;

/// Time in which a process ends after another one was lost.
const LIMIT: Duration = Duration::from_secs(5);

/// Starts a rank of two, with a fault of the last one in a step.
fn start(machine: &Machine, nccl: &Fake, (rank, port): (usize, u16), fault: &str, step: usize) -> Child {
    let words = format!("ranks --batch 6 --global-batch 12 --steps 1 --fault {fault} --fault-step {step}");
    let mut command = hardware(machine, &words);
    command.env("RANK", rank.to_string()).env("WORLD_SIZE", "2").env("LOCAL_RANK", "0").env("LOCAL_WORLD_SIZE", "2");
    command.env("MASTER_ADDR", "127.0.0.1").env("MASTER_PORT", port.to_string());
    command.env("GPU_TUNED_LIBRARIES", nccl.folder()).env(SUMS_VARIABLE, machine.home().join("sums"));
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it starts")
}

fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr()).expect("a port").port()
}

/// Sums that a rank has begun.
fn sums(machine: &Machine) -> usize {
    fs::read_to_string(machine.home().join("sums")).map_or(0, |text| text.lines().count())
}

#[test]
fn a_rank_that_waits_in_nccl_for_a_lost_one_ends_by_itself() {
    // One GPU each: two ranks of a host with one GPU are refused.
    let (machines, nccl) = ([Machine::new("h200"), Machine::new("gh200")], Fake::new());
    // Compiles kernels, without the fault. Sums of the fake library block the thread that launches those behind them. Both ranks
    // end with an error, as the driver computes nothing.
    let port = free_port();
    for mut rank in [0, 1].map(|rank| start(&machines[rank], &nccl, (rank, port), "hang", 1)) {
        rank.wait().expect("an end");
    }
    for machine in &machines {
        fs::remove_file(machine.home().join("sums")).expect("sums");
    }
    let port = free_port();
    let [mut waiting, mut lost] = [0, 1].map(|rank| start(&machines[rank], &nccl, (rank, port), "hang", 0));
    let begin = Instant::now();
    // The first rank is ahead of the second one, and stays so, with all kernels loaded: it waits for a sum.
    let (mut since, mut kernels) = (None, 0);
    while since.is_none_or(|since: Instant| since.elapsed() < Duration::from_secs(3)) {
        assert_eq!(waiting.try_wait().expect("a process"), None, "the first rank ends too early");
        assert!(begin.elapsed() < Duration::from_mins(10), "the first rank does not come to a sum");
        let is_ahead = sums(&machines[0]) > sums(&machines[1]) && sums(&machines[1]) > 0;
        let loads = kernels != std::mem::replace(&mut kernels, machines[0].kernels().len());
        since = (is_ahead && !loads).then(|| since.unwrap_or_else(Instant::now));
        sleep(Duration::from_millis(50));
    }
    lost.kill().expect("a process");
    let begin = Instant::now();
    let output = waiting.wait_with_output().expect("an end");
    let (seconds, errors) = (begin.elapsed(), String::from_utf8_lossy(&output.stderr));
    assert!(seconds < LIMIT, "{seconds:?}: {errors}");
    assert_eq!(output.status.code(), Some(1), "the error ends it, no signal: {errors}");
    assert!(errors.contains("rank 1"), "{errors}");
    lost.wait().expect("an end");
}

/// The step ends with an error on all ranks, as the driver computes nothing: what counts is that no rank waits for the other.
#[test]
fn a_rank_without_memory_repeats_its_part_before_it_begins_a_sum() {
    let (machines, nccl) = ([Machine::new("h200"), Machine::new("gh200")], Fake::new());
    let port = free_port();
    let ranks = [0, 1].map(|rank| start(&machines[rank], &nccl, (rank, port), "rescue", 0));
    let errors = ranks.map(|rank| {
        let output = rank.wait_with_output().expect("an end");
        String::from_utf8_lossy(&output.stderr).into_owned()
    });
    let retried = errors.each_ref().map(|text| text.contains("out of memory in the backward pass: retrying the step"));
    assert_eq!(retried, [false, true], "{errors:?}");
    assert!(sums(&machines[0]) > 1 && sums(&machines[0]) == sums(&machines[1]), "{errors:?}");
}
