//! Names of the processes on a GPU.

use std::collections::HashMap;
use std::fs;
use std::path::Path;

use crate::recording::GpuProcess;

/// The process numbers of a machine's first PID namespace: what Linux calls `PROC_PID_INIT_INO`.
const OF_THE_MACHINE: &str = "pid:[4026531836]";

/// Names that were asked for.
pub(super) struct Names {
    /// The driver tells the machine's process numbers, which in a container are others.
    are_known: bool,
    names: HashMap<u32, Option<String>>,
}

impl Default for Names {
    fn default() -> Self {
        let space = fs::read_link("/proc/self/ns/pid").ok();
        Self { are_known: space.is_some_and(|space| space == Path::new(OF_THE_MACHINE)), names: HashMap::new() }
    }
}

impl Names {
    /// Names the processes of one look, where the host can tell.
    pub(super) fn fill_in<'a>(&mut self, processes: impl Iterator<Item = &'a mut GpuProcess>) {
        if !self.are_known {
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
    fn processes_are_named_where_numbers_are_the_machines() {
        let mut names = Names { are_known: true, ..Names::default() };
        let mut processes = [GpuProcess::new(std::process::id()), GpuProcess::new(u32::MAX)];
        names.fill_in(processes.iter_mut());
        assert!(processes[0].name.is_some() && processes[1].name.is_none(), "{processes:?}");
        let mut elsewhere = Names { are_known: false, ..Names::default() };
        let mut processes = [GpuProcess::new(std::process::id())];
        elsewhere.fill_in(processes.iter_mut());
        assert_eq!(processes[0].name, None);
    }
}
