//! The busiest thread of a program: one that never rests holds a program back, however idle its others are.

use std::collections::HashMap;
use std::fs;
use std::time::Instant;

/// Processor time of each thread at the last look.
#[derive(Default)]
pub(super) struct Threads {
    /// By process and thread, in nanoseconds.
    spent: HashMap<(u32, u32), u64>,
    last: Option<Instant>,
}

impl Threads {
    /// How much the busiest thread of these processes worked since the last look, in percent of one processor. `None` at the
    /// first look, and where the system does not tell.
    pub(super) fn busiest(&mut self, processes: impl Iterator<Item = u32>) -> Option<f64> {
        let now = Instant::now();
        let seconds = self.last.replace(now).map(|last| (now - last).as_secs_f64());
        let spent: HashMap<_, _> = processes.flat_map(spent_by_threads).collect();
        let most = spent.iter().filter_map(|(thread, now)| Some(now.saturating_sub(*self.spent.get(thread)?))).max();
        self.spent = spent;
        let seconds = seconds.filter(|seconds| *seconds > 0.0)?;
        Some(most? as f64 / 1e9 / seconds * 100.0)
    }
}

/// What each thread has spent on a processor since it began: the first figure of Linux's `schedstat`.
fn spent_by_threads(pid: u32) -> Vec<((u32, u32), u64)> {
    let Ok(threads) = fs::read_dir(format!("/proc/{pid}/task")) else { return Vec::new() };
    let spent = |entry: fs::DirEntry| {
        let thread = entry.file_name().to_str()?.parse().ok()?;
        let told = fs::read_to_string(entry.path().join("schedstat")).ok()?;
        Some(((pid, thread), told.split_whitespace().next()?.parse().ok()?))
    };
    threads.flatten().filter_map(spent).collect()
}
