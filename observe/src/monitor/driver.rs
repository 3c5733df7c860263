//! GPUs that the driver samples, with what the host knows of the processes on them.

use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::fs;
use std::path::Path;

use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_nvml::{Limited, SAMPLE_LIMIT, Telemetry, Trouble, WatchedGpu};
use sysinfo::{Pid, ProcessRefreshKind, ProcessesToUpdate, System, UpdateKind};

use crate::recording::{Gpu, GpuProcess, GpuSample, Start, now};

/// The host's PID namespace: Linux' `PROC_PID_INIT_INO`.
const HOST_NAMESPACE: &str = "pid:[4026531836]";

/// GPUs that the driver samples.
pub(super) struct Driver {
    telemetry: Limited<Telemetry, Answer>,
    processes: Processes,
    /// The GPUs of the last answer.
    known: Start,
}

/// Samples, and the GPUs if their number has changed.
type Answer = (Vec<GpuSample>, Option<Start>);

impl Driver {
    /// Opens the driver's management library, from this path or its usual places.
    pub(super) fn open(library: Option<&Path>) -> Result<Self, String> {
        let telemetry = Telemetry::open(library).map_err(|error| error.to_string())?;
        Ok(Self { known: read(&telemetry), telemetry: Limited::new(telemetry), processes: Processes::default() })
    }

    /// Describes the GPUs, with reasons for missing ones.
    pub(super) fn start(&self) -> Start {
        let mut start = self.known.clone();
        if start.gpus.is_empty() && start.trouble.is_empty() {
            start.trouble.push("the driver works and shows no GPU".to_owned());
        }
        start
    }

    /// Samples the GPUs. The flag is true if their number has changed. A driver that hangs is the trouble of each GPU.
    pub(super) fn sample(&mut self) -> (Vec<GpuSample>, bool) {
        let count = self.known.gpus.len();
        let look = move |telemetry: &mut Telemetry| {
            let samples = telemetry.look(now);
            let is_changed = telemetry.gpus().count() != count;
            (samples, is_changed.then(|| read(telemetry)))
        };
        let Some((mut samples, changed)) = self.telemetry.call(SAMPLE_LIMIT, look) else {
            return (self.known.gpus.iter().map(silent).collect(), false);
        };
        let processes = samples.iter_mut().filter_map(|sample| sample.processes.as_mut()).flatten();
        self.processes.fill_in(processes.collect());
        let is_changed = changed.is_some();
        if let Some(known) = changed {
            self.known = known;
        }
        (samples, is_changed)
    }
}

/// Reads the version of the driver, its GPUs, and reasons for missing ones.
fn read(telemetry: &Telemetry) -> Start {
    let trouble = telemetry.trouble().iter().map(|gpu| format!("GPU {}: {}", gpu.index, gpu.what));
    Start {
        driver_version: telemetry.driver_version().map(str::to_owned),
        gpus: telemetry.gpus().map(identified).collect(),
        trouble: trouble.collect(),
        ..Start::default()
    }
}

fn silent(gpu: &Gpu) -> GpuSample {
    let mut sample = GpuSample::new(now(), gpu.gpu);
    sample.mig_slot = gpu.mig_slot;
    sample.trouble = Some(Trouble::Silent.to_string());
    sample
}

fn identified(watched: &WatchedGpu) -> Gpu {
    let mut gpu = watched.gpu.clone();
    let found = identify(&watched.reading, &ProfileTable::default());
    gpu.profile = found.profile().map(|profile| profile.id.to_string());
    gpu
}

/// Processes of the host that use GPUs.
struct Processes {
    /// This process is in the host's PID namespace, whose process IDs the driver reports.
    is_on_host: bool,
    system: System,
    /// Names of users by their numbers.
    users: HashMap<u32, String>,
}

impl Default for Processes {
    fn default() -> Self {
        let space = fs::read_link("/proc/self/ns/pid").ok();
        let is_on_host = space.is_some_and(|space| space == Path::new(HOST_NAMESPACE));
        Self { is_on_host, system: System::new(), users: HashMap::new() }
    }
}

impl Processes {
    /// Adds what the host knows of the processes.
    fn fill_in(&mut self, mut processes: Vec<&mut GpuProcess>) {
        if !self.is_on_host {
            return;
        }
        // Processes that are gone are read once more, so that `System` drops them.
        let known: HashSet<Pid> = self.system.processes().keys().copied().collect();
        let all: HashSet<Pid> = processes.iter().map(|it| Pid::from_u32(it.pid)).chain(known.iter().copied()).collect();
        let pids: Vec<_> = all.into_iter().collect();
        let figures = ProcessRefreshKind::nothing().with_cpu().with_cmd(UpdateKind::OnlyIfNotSet).without_tasks();
        self.system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), true, figures);
        for process in &mut processes {
            let pid = Pid::from_u32(process.pid);
            let Some(found) = self.system.process(pid) else { continue };
            let words: Vec<_> = found.cmd().iter().map(|word: &OsString| word.to_string_lossy()).collect();
            process.command = Some(words.join(" ")).filter(|command| !command.is_empty());
            process.name = Some(found.name().to_string_lossy().into_owned()).filter(|name| !name.is_empty());
            process.cpu_percent = known.contains(&pid).then(|| f64::from(found.cpu_usage()));
            process.user = owner(process.pid).map(|user| {
                self.users.entry(user).or_insert_with(|| name_of(user).unwrap_or_else(|| user.to_string())).clone()
            });
        }
    }
}

/// Number of the user that runs a process.
#[cfg(target_os = "linux")]
fn owner(pid: u32) -> Option<u32> {
    use std::os::unix::fs::MetadataExt as _;

    fs::metadata(format!("/proc/{pid}")).ok().map(|process| process.uid())
}

#[cfg(not(target_os = "linux"))]
fn owner(_: u32) -> Option<u32> {
    None
}

/// Name of a user of this machine. Those of a network have none.
fn name_of(user: u32) -> Option<String> {
    let users = fs::read_to_string("/etc/passwd").ok()?;
    users.lines().find_map(|line| {
        let (name, rest) = line.split_once(':')?;
        (rest.split(':').nth(1)? == user.to_string()).then(|| name.to_owned())
    })
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use sysinfo::MINIMUM_CPU_UPDATE_INTERVAL;

    use super::Processes;
    use crate::recording::GpuProcess;

    #[test]
    #[cfg(target_os = "linux")]
    fn processes_are_described_in_the_hosts_namespace() {
        let mut host = Processes { is_on_host: true, ..Processes::default() };
        let (mut own, mut gone) = (GpuProcess::new(std::process::id()), GpuProcess::new(u32::MAX));
        host.fill_in(vec![&mut own, &mut gone]);
        assert_eq!(own.cpu_percent, None, "the first look has no interval");
        // A busy machine gives it little time.
        for _ in 0..100 {
            let begin = Instant::now();
            while begin.elapsed() < MINIMUM_CPU_UPDATE_INTERVAL {}
            host.fill_in(vec![&mut own, &mut gone]);
            if own.cpu_percent.is_some_and(|percent| percent > 0.0) {
                break;
            }
        }
        assert!(own.name.is_some() && gone.name.is_none() && gone.user.is_none(), "{own:?} {gone:?}");
        let asked = std::process::Command::new("id").arg("-un").output().expect("the system's `id`");
        assert_eq!(own.user.as_deref(), Some(String::from_utf8_lossy(&asked.stdout).trim()));
        let arguments: Vec<_> = std::env::args().collect();
        assert_eq!(own.command, Some(arguments.join(" ")));
        assert!(own.cpu_percent.is_some_and(|percent| percent > 0.0), "{own:?}");
        let recorded = serde_json::to_string(&own).expect("JSON");
        assert!(recorded.contains("cpu_percent") && !recorded.contains("command"), "{recorded}");
        let mut elsewhere = Processes { is_on_host: false, ..Processes::default() };
        let mut own = GpuProcess::new(std::process::id());
        elsewhere.fill_in(vec![&mut own]);
        assert_eq!(own, GpuProcess::new(std::process::id()));
    }
}
