//! The host, and a program on it with its children.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use crate::recording::{HostSample, ProcessSample};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System};

use super::threads::Threads;
use crate::host::Host;

/// New children are looked for so often: that takes a look at every process of the host.
const FAMILY_PAUSE: Duration = Duration::from_secs(5);

/// Looks at the host again and again.
pub(super) struct HostWatch {
    system: System,
    /// Whether the processors were looked at before: their work is that since the last look.
    has_begun: bool,
    program: Option<Program>,
}

/// A program that is watched.
struct Program {
    pid: Pid,
    family: HashSet<Pid>,
    looked_for_family: Option<Instant>,
    /// Processor time of each process at the last look, in milliseconds.
    cpu_ms: HashMap<Pid, u64>,
    last: Option<Instant>,
    threads: Threads,
}

impl HostWatch {
    pub(super) fn new(pid: Option<u32>) -> Self {
        let program = |pid| Program {
            pid: Pid::from_u32(pid),
            family: HashSet::new(),
            looked_for_family: None,
            cpu_ms: HashMap::new(),
            last: None,
            threads: Threads::default(),
        };
        Self { system: System::new(), has_begun: false, program: pid.map(program) }
    }

    pub(super) fn look(&mut self, at: f64) -> HostSample {
        let mut sample = HostSample::new(at);
        self.system.refresh_cpu_usage();
        let percent = f64::from(self.system.global_cpu_usage());
        sample.cpu_percent = Some(percent.clamp(0.0, 100.0)).filter(|_| self.has_begun && percent.is_finite());
        self.has_begun = true;
        let host = Host::read();
        sample.memory_used_bytes = host.memory_total.0.checked_sub(host.memory_available.0);
        sample.process = self.program.as_mut().and_then(|program| program.look(&mut self.system));
        sample
    }
}

impl Program {
    /// What it does; `None` once it has ended.
    fn look(&mut self, system: &mut System) -> Option<ProcessSample> {
        let mut gone = HashSet::new();
        if self.looked_for_family.is_none_or(|looked| looked.elapsed() >= FAMILY_PAUSE) {
            self.looked_for_family = Some(Instant::now());
            // Those that are gone are looked at once more: it lets go of them then.
            gone = std::mem::replace(&mut self.family, family(self.pid));
        }
        let family: Vec<_> = self.family.union(&gone).copied().collect();
        let figures = ProcessRefreshKind::nothing().with_cpu().with_memory().without_tasks();
        system.refresh_processes_specifics(ProcessesToUpdate::Some(&family), true, figures);
        system.process(self.pid)?;
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

/// A process and its children, and theirs.
fn family(pid: Pid) -> HashSet<Pid> {
    // What is looked at here is let go of again: it keeps a file open for each process.
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

#[cfg(test)]
mod tests {
    use std::hint::black_box;
    use std::process::Command;
    use std::time::{Duration, Instant};

    use super::{HostWatch, family};
    use sysinfo::Pid;

    fn work_for(time: Duration) {
        let begin = Instant::now();
        let mut sum = 0u64;
        while begin.elapsed() < time {
            sum = black_box(sum.wrapping_mul(31).wrapping_add(7));
        }
    }

    #[test]
    fn a_thread_that_works_is_seen_as_one_processor() {
        let mut watch = HostWatch::new(Some(std::process::id()));
        let first = watch.look(0.0).process.expect("this process is there");
        assert_eq!((first.pid, first.cpu_percent), (std::process::id(), None));
        assert!(first.memory_bytes.is_some_and(|bytes| bytes > 1 << 20));
        work_for(Duration::from_millis(300));
        let second = watch.look(0.3);
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
    fn children_belong_to_it_and_an_ended_program_is_seen() {
        let mut child = Command::new("sleep").arg("60").spawn().expect("a program");
        let pid = child.id();
        assert!(family(Pid::from_u32(std::process::id())).contains(&Pid::from_u32(pid)));
        let mut watch = HostWatch::new(Some(pid));
        assert!(watch.look(0.0).process.is_some());
        child.kill().and_then(|()| child.wait()).expect("it ends");
        assert_eq!(watch.look(1.0).process, None);
    }
}
