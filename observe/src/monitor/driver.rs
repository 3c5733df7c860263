//! GPUs that the driver samples, with the names of the processes on them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_nvml::{Telemetry, WatchedGpu};

use crate::recording::{Gpu, GpuProcess, GpuSample, Start};

/// The host's PID namespace: Linux' `PROC_PID_INIT_INO`.
const HOST_NAMESPACE: &str = "pid:[4026531836]";

/// GPUs that the driver samples.
pub(super) struct Driver {
    telemetry: Telemetry,
    names: Names,
    count: usize,
}

impl Driver {
    pub(super) fn new(telemetry: Telemetry) -> Self {
        Self { count: telemetry.gpus().count(), telemetry, names: Names::default() }
    }

    pub(super) fn describe(&self, start: &mut Start) {
        start.driver_version = self.telemetry.driver_version().map(str::to_owned);
        start.gpus = self.telemetry.gpus().map(identified).collect();
        let trouble = self.telemetry.trouble().iter().map(|gpu| format!("GPU {}: {}", gpu.index, gpu.what));
        start.trouble.extend(trouble);
        if start.gpus.is_empty() && start.trouble.is_empty() {
            start.trouble.push("the driver works and shows no GPU".to_owned());
        }
    }

    pub(super) fn sample(&mut self, now: impl Fn() -> f64) -> (Vec<GpuSample>, bool) {
        let mut samples = self.telemetry.look(now);
        self.names.fill_in(samples.iter_mut().filter_map(|sample| sample.processes.as_mut()).flatten());
        let count = self.telemetry.gpus().count();
        let is_changed = std::mem::replace(&mut self.count, count) != count;
        (samples, is_changed)
    }
}

fn identified(watched: &WatchedGpu) -> Gpu {
    let mut gpu = watched.gpu.clone();
    let found = identify(&watched.reading, &ProfileTable::default());
    gpu.profile = found.profile().map(|profile| profile.id.to_string());
    gpu
}

/// A cache of process names.
struct Names {
    /// This process is in the host's PID namespace, whose process IDs the driver reports.
    is_on_host: bool,
    names: HashMap<u32, Option<String>>,
}

impl Default for Names {
    fn default() -> Self {
        let space = fs::read_link("/proc/self/ns/pid").ok();
        Self { is_on_host: space.is_some_and(|space| space == Path::new(HOST_NAMESPACE)), names: HashMap::new() }
    }
}

impl Names {
    /// Adds the names of processes in one sample, where they are known.
    fn fill_in<'a>(&mut self, processes: impl Iterator<Item = &'a mut GpuProcess>) {
        if !self.is_on_host {
            return;
        }
        let before = std::mem::take(&mut self.names);
        for process in processes {
            let known = before.get(&process.pid).cloned();
            let name = known.unwrap_or_else(|| name(process.pid));
            process.name.clone_from(&name);
            self.names.insert(process.pid, name);
        }
    }
}

fn name(pid: u32) -> Option<String> {
    let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use crate::recording::GpuProcess;

    use super::Names;

    #[test]
    #[cfg(target_os = "linux")]
    fn processes_are_named_in_the_hosts_namespace() {
        let mut names = Names { is_on_host: true, ..Names::default() };
        let mut processes = [GpuProcess::new(std::process::id()), GpuProcess::new(u32::MAX)];
        names.fill_in(processes.iter_mut());
        assert!(processes[0].name.is_some() && processes[1].name.is_none(), "{processes:?}");
        let mut elsewhere = Names { is_on_host: false, ..Names::default() };
        let mut processes = [GpuProcess::new(std::process::id())];
        elsewhere.fill_in(processes.iter_mut());
        assert_eq!(processes[0].name, None);
    }
}
