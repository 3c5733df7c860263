//! Options of a monitor, and samples of the GPUs, the host and a program with its children.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fs;
#[cfg(not(feature = "nvml"))]
use std::path::Path;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use sysinfo::{Pid, Process, ProcessRefreshKind, ProcessStatus, ProcessesToUpdate, System};

#[cfg(feature = "nvml")]
use super::driver::Driver;
use crate::Host;
#[cfg(not(feature = "nvml"))]
use crate::recording::GpuSample;
use crate::recording::{HostSample, ProcessSample, Record, Start, VERSION, now};

/// Samples the GPUs, the host and a program on request.
///
/// A [`Monitor`](super::Monitor) does so in a thread of its own.
pub struct Sampler {
    driver: Result<Driver, String>,
    /// The sampled GPUs by the driver's index; `None` for all.
    only: Option<Vec<u32>>,
    host: HostSampler,
}

impl Sampler {
    /// Opens the driver. A missing driver is no error: [`start`](Self::start) has the reason.
    pub fn open(options: &Options) -> Self {
        let driver = Driver::open(options.library.as_deref());
        Self { driver, only: options.gpus.clone(), host: HostSampler::new(options.process) }
    }

    /// Describes the devices, with reasons for missing ones.
    pub fn start(&self) -> Start {
        let host = Host::read();
        let without = |trouble: &String| Start { trouble: vec![trouble.clone()], ..Start::default() };
        let mut start = self.driver.as_ref().map_or_else(without, Driver::start);
        (start.at, start.version) = (now(), VERSION);
        (start.cores, start.memory_bytes) = (host.cores, host.memory_total.0);
        if let Some(only) = &self.only {
            if !start.gpus.is_empty() {
                let missing = only.iter().filter(|wanted| !start.gpus.iter().any(|gpu| gpu.gpu == **wanted));
                start.trouble.extend(missing.map(|wanted| format!("there is no GPU {wanted}")));
            }
            start.gpus.retain(|gpu| only.contains(&gpu.gpu));
        }
        start
    }

    /// Takes a sample: one record for each GPU and one for the host. A new [`Start`] comes first if a GPU was added.
    pub fn sample(&mut self) -> Vec<Record> {
        let (mut samples, is_changed) = self.driver.as_mut().map(Driver::sample).unwrap_or_default();
        if let Some(only) = &self.only {
            samples.retain(|sample| only.contains(&sample.gpu));
        }
        let start = is_changed.then(|| Record::Start(self.start()));
        let host = self.host.sample(now());
        start.into_iter().chain(samples.into_iter().map(Record::Gpu)).chain([Record::Host(host)]).collect()
    }
}

/// Shortest interval: performance counters need it.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(100);
const MAX_INTERVAL: Duration = Duration::from_hours(24);

/// Options of a [`Monitor`](super::Monitor): devices, interval and history.
#[derive(Clone, Debug)]
pub struct Options {
    pub(super) interval: Duration,
    pub(super) process: Option<u32>,
    pub(super) record: Option<PathBuf>,
    pub(super) history: usize,
    pub(super) library: Option<PathBuf>,
    pub(super) gpus: Option<Vec<u32>>,
}

impl Default for Options {
    /// All GPUs, the host and this program, once per second, with the last 20,000 records kept in memory and none in a file.
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(1),
            process: Some(std::process::id()),
            record: None,
            history: 20_000,
            library: None,
            gpus: None,
        }
    }
}

impl Options {
    /// Time between samples; at least [`LEAST_INTERVAL`], at most a day.
    #[must_use]
    pub fn interval(self, interval: Duration) -> Self {
        Self { interval: interval.clamp(LEAST_INTERVAL, MAX_INTERVAL), ..self }
    }

    /// Samples this program with its children, in place of the calling program.
    #[must_use]
    pub fn pid(self, pid: u32) -> Self {
        Self { process: Some(pid), ..self }
    }

    /// Samples no program.
    #[must_use]
    pub fn no_program(self) -> Self {
        Self { process: None, ..self }
    }

    /// Appends all records to the recording at this path. The monitored program may write the same file.
    #[must_use]
    pub fn record(self, path: impl Into<PathBuf>) -> Self {
        Self { record: Some(path.into()), ..self }
    }

    /// Records that are kept in memory: for each sample one per GPU, and one for the host.
    #[must_use]
    pub fn history(self, records: usize) -> Self {
        Self { history: records, ..self }
    }

    /// Samples only these GPUs, by the driver's index.
    #[must_use]
    pub fn gpus(self, gpus: impl Into<Vec<u32>>) -> Self {
        Self { gpus: Some(gpus.into()), ..self }
    }

    /// Loads the driver's management library (NVML) from this path instead of its usual places.
    #[must_use]
    pub fn library(self, path: impl Into<PathBuf>) -> Self {
        Self { library: Some(path.into()), ..self }
    }
}

/// Stands in for the driver without feature `nvml`.
#[cfg(not(feature = "nvml"))]
enum Driver {}

#[cfg(not(feature = "nvml"))]
impl Driver {
    fn open(_library: Option<&Path>) -> Result<Self, String> {
        Err("built without feature `nvml`: GPUs are not sampled".to_owned())
    }

    fn start(&self) -> Start {
        match *self {}
    }

    fn sample(&mut self) -> (Vec<GpuSample>, bool) {
        match *self {}
    }
}

/// Time between searches for new children: a search reads every process of the host.
const FAMILY_EVERY: Duration = Duration::from_secs(5);

struct HostSampler {
    system: System,
    /// There was a sample before: CPU time counts from the last sample.
    has_begun: bool,
    program: Option<Program>,
}

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
    fn new(pid: Option<u32>) -> Self {
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

    fn sample(&mut self, at: f64) -> HostSample {
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
