//! The busiest thread of a program. A thread that is always busy limits the program, however idle the others are.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

/// CPU time of each thread at the last sample.
#[derive(Default)]
pub(super) struct Threads {
    /// Nanoseconds by process and thread.
    spent: HashMap<(u32, u32), u64>,
    last: Option<Instant>,
}

impl Threads {
    /// CPU time of the busiest thread of these processes since the last sample, in percent of one core. `None` for the first
    /// sample, and on systems other than Linux.
    pub(super) fn busiest(&mut self, processes: impl Iterator<Item = u32>) -> Option<f64> {
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
