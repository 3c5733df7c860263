//! GPUs that the driver samples, with the names of the processes on them.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use gpu_tuned_core::matching::identify;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_nvml::{Limited, SAMPLE_LIMIT, Telemetry, Trouble, WatchedGpu};

use crate::recording::{Gpu, GpuProcess, GpuSample, Start, now};

/// The host's PID namespace: Linux' `PROC_PID_INIT_INO`.
const HOST_NAMESPACE: &str = "pid:[4026531836]";

/// GPUs that the driver samples.
pub(super) struct Driver {
    telemetry: Limited<Telemetry, Answer>,
    names: Names,
    /// The GPUs of the last answer.
    known: Start,
}

/// Samples, and the GPUs if their number has changed.
type Answer = (Vec<GpuSample>, Option<Start>);

impl Driver {
    /// Opens the driver's management library, from this path or its usual places.
    pub(super) fn open(library: Option<&Path>) -> Result<Self, String> {
        let telemetry = Telemetry::open(library).map_err(|error| error.to_string())?;
        Ok(Self { known: read(&telemetry), telemetry: Limited::new(telemetry), names: Names::default() })
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
        self.names.fill_in(samples.iter_mut().filter_map(|sample| sample.processes.as_mut()).flatten());
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
    use super::Names;
    use crate::recording::GpuProcess;

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
