//! Samples of the host, and of a program with its children.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::time::{Duration, Instant};

use crate::recording::{HostSample, ProcessSample};
use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System};

use crate::Host;

/// Time between searches for new children: a search reads every process of the host.
const FAMILY_EVERY: Duration = Duration::from_secs(5);

/// Samples the host.
pub(super) struct HostSampler {
    system: System,
    /// There was a sample before: CPU time counts from the last sample.
    has_begun: bool,
    program: Option<Program>,
}

/// The monitored program.
struct Program {
    pid: Pid,
    family: HashSet<Pid>,
    searched_family: Option<Instant>,
    /// CPU time of each process at the last sample, in milliseconds.
    cpu_ms: HashMap<Pid, u64>,
    last: Option<Instant>,
    threads: Threads,
}

impl HostSampler {
    pub(super) fn new(pid: Option<u32>) -> Self {
        let program = |pid| Program {
            pid: Pid::from_u32(pid),
            family: HashSet::new(),
            searched_family: None,
            cpu_ms: HashMap::new(),
            last: None,
            threads: Threads::default(),
        };
        Self { system: System::new(), has_begun: false, program: pid.map(program) }
    }

    pub(super) fn sample(&mut self, at: f64) -> HostSample {
        let mut sample = HostSample::new(at);
        self.system.refresh_cpu_usage();
        let percent = f64::from(self.system.global_cpu_usage());
        sample.cpu_percent = Some(percent.clamp(0.0, 100.0)).filter(|_| self.has_begun && percent.is_finite());
        self.has_begun = true;
        let host = Host::read();
        sample.memory_used_bytes = host.memory_total.0.checked_sub(host.memory_available.0);
        sample.process = self.program.as_mut().and_then(|program| program.sample(&mut self.system));
        sample
    }
}

impl Program {
    /// Samples the program; `None` once it has ended.
    fn sample(&mut self, system: &mut System) -> Option<ProcessSample> {
        let mut gone = HashSet::new();
        if self.searched_family.is_none_or(|searched| searched.elapsed() >= FAMILY_EVERY) {
            self.searched_family = Some(Instant::now());
            // Processes that are gone are read once more, so that `System` drops them.
            gone = std::mem::replace(&mut self.family, family(self.pid));
        }
        let family: Vec<_> = self.family.union(&gone).copied().collect();
        let figures = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&family), true, figures);
        // In containers nobody may reap it.
        let has_ended = |process: &Process| matches!(process.status(), ProcessStatus::Zombie | ProcessStatus::Dead);
        system.process(self.pid).filter(|process| !has_ended(process))?;
        let seconds = self.last.replace(Instant::now()).map(|last| last.elapsed().as_secs_f64());
        let mut sample = ProcessSample::new(self.pid.as_u32());
        let members = || family.iter().filter_map(|pid| Some((*pid, system.process(*pid)?)));
        sample.memory_bytes = Some(members().map(|(_, process)| process.memory()).sum());
        let cpu_ms: HashMap<Pid, u64> = members().map(|(pid, process)| (pid, process.accumulated_cpu_time())).collect();
        let worked = |(pid, now): (&Pid, &u64)| Some(now.saturating_sub(*self.cpu_ms.get(pid)?));
        let worked: u64 = cpu_ms.iter().filter_map(worked).sum();
        sample.cpu_percent = seconds.filter(|seconds| *seconds > 0.0).map(|seconds| worked as f64 / 10.0 / seconds);
        self.cpu_ms = cpu_ms;
        sample.busiest_thread_percent = self.threads.busiest(family.iter().map(|pid| pid.as_u32()));
        Some(sample)
    }
}

/// Returns a process and its descendants.
fn family(pid: Pid) -> HashSet<Pid> {
    // Dropped at the end: `System` keeps a file open for each process.
    let mut all = System::new();
    all.refresh_processes_specifics(ProcessesToUpdate::All, true, ProcessRefreshKind::nothing().without_tasks());
    let mut family = HashSet::from([pid]);
    loop {
        let children: Vec<_> = all
            .processes()
            .iter()
            .filter(|(pid, process)| {
                !family.contains(pid) && process.parent().is_some_and(|parent| family.contains(&parent))
            })
            .map(|(pid, _)| *pid)
            .collect();
        if children.is_empty() {
            return family;
        }
        family.extend(children);
    }
}

/// CPU time of each thread at the last sample. A thread that is always busy limits the program, however idle the others
/// are.
#[derive(Default)]
struct Threads {
    /// Nanoseconds by process and thread.
    spent: HashMap<(u32, u32), u64>,
    last: Option<Instant>,
}

impl Threads {
    /// CPU time of the busiest thread of these processes since the last sample, in percent of one core. `None` for the first
    /// sample, and on systems other than Linux.
    fn busiest(&mut self, processes: impl Iterator<Item = u32>) -> Option<f64> {
        let now = Instant::now();
        let seconds = self.last.replace(now).map(|last| (now - last).as_secs_f64());
        let spent: HashMap<_, _> = processes.flat_map(cpu_time_by_thread).collect();
        let most = spent.iter().filter_map(|(thread, now)| Some(now.saturating_sub(*self.spent.get(thread)?))).max();
        self.spent = spent;
        let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
        Some(most? as f64 / 1e9 / seconds * 100.0)
    }
}

/// Returns the CPU time of each thread since its start: the first figure of Linux's `schedstat`.
fn cpu_time_by_thread(pid: u32) -> Vec<((u32, u32), u64)> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let spent = |entry: fs::DirEntry| {
        let thread = entry.file_name().to_str()?.parse().ok()?;
        let text = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        Some(((pid, thread), text.split_whitespace().next()?.parse().ok()?))
    };
    threads.flatten().filter_map(spent).collect()
}

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::process::Command;
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{HostSampler, family};
    use sysinfo::Pid;

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
}
