//! Names of the processes on a GPU.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::recording::GpuProcess;

/// The host's PID namespace: Linux' `PROC_PID_INIT_INO`.
const HOST_NAMESPACE: &str = "pid:[4026531836]";

/// A cache of process names.
pub(super) struct Names {
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
    pub(super) fn fill_in<'a>(&mut self, processes: impl Iterator<Item = &'a mut GpuProcess>) {
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
