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
    work_for(Duration::from_millis(300));
    let second = sampler.sample(0.3);
    let process = second.process.clone().expect("this process is there");
    // Other tests of this process work, too, and the machine may be busy.
    assert!(process.cpu_percent.is_some_and(|percent| percent > 10.0), "{process:?}");
    if cfg!(target_os = "linux") {
        let busiest = process.busiest_thread_percent.expect("threads are known");
        assert!((10.0..=110.0).contains(&busiest), "{process:?}");
    }
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
