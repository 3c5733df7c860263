use std::hint::black_box;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use sysinfo::Pid;

use super::{HostSampler, family};

fn work_for(time: Duration) {
    let begin = Instant::now();
    let mut sum = 0u64;
    while begin.elapsed() < time {
        sum = black_box(sum.wrapping_mul(31).wrapping_add(7));
    }
}

#[test]
fn a_busy_thread_counts_as_one_core() {
    let mut sampler = HostSampler::new(Some(std::process::id()));
    let first = sampler.sample(0.0).process.expect("this process is there");
    assert_eq!((first.pid, first.cpu_percent), (std::process::id(), None));
    assert!(first.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
    let begin = Instant::now();
    // A busy machine may give this thread no core for a while.
    let second = loop {
        work_for(Duration::from_millis(300));
        let sample = sampler.sample(begin.elapsed().as_secs_f64());
        let process = sample.process.as_ref().expect("this process is there");
        let is_busy = |percent: f64| percent > 10.0;
        let busiest = process.busiest_thread_percent;
        assert!(busiest.is_none_or(|percent| percent <= 110.0), "{process:?}");
        let is_seen = !cfg!(target_os = "linux") || busiest.is_some_and(is_busy);
        if is_seen && process.cpu_percent.is_some_and(is_busy) {
            break sample;
        }
        assert!(begin.elapsed() < Duration::from_mins(1), "{process:?}");
    };
    assert!(second.memory_used_bytes.is_some_and(|bytes| bytes > 0));
    assert!(second.cpu_percent.is_some_and(|percent| (0.0..=100.0).contains(&percent)), "{second:?}");
}

#[test]
#[cfg(unix)]
fn children_count_and_an_ended_program_is_noticed() {
    let mut child = Command::new("sleep").arg("60").spawn().expect("a program");
    let pid = child.id();
    assert!(family(Pid::from_u32(std::process::id())).contains(&Pid::from_u32(pid)));
    let mut sampler = HostSampler::new(Some(pid));
    assert!(sampler.sample(0.0).process.is_some());
    child.kill().expect("it runs");
    // Nobody has reaped it.
    let begin = Instant::now();
    while sampler.sample(1.0).process.is_some() && begin.elapsed() < Duration::from_secs(20) {
        thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(sampler.sample(2.0).process, None);
    child.wait().expect("it ends");
    assert_eq!(sampler.sample(3.0).process, None);
}
