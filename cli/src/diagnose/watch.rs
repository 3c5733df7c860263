//! The monitor beside a program.

use std::path::Path;
use std::time::Duration;

use gpu_tuned_observe::monitor::{Monitor, Options};

use super::failure::Failure;

/// Between looks.
const INTERVAL: Duration = Duration::from_millis(500);

/// Watches a process and the machine, into a recording, until the monitor is stopped.
pub(super) fn over(pid: u32, file: &Path) -> Result<Monitor, Failure> {
    // What it saw is read from the file.
    Ok(Monitor::start(&Options::default().pid(pid).interval(INTERVAL).record(file).history(0))?)
}
