//! The monitor beside a program.

use std::path::Path;
use std::time::Duration;

use gpu_tuned_observe::monitor::{Monitor, Options};

use crate::error::Error;

const INTERVAL: Duration = Duration::from_millis(500);

/// Records a process and the machine until the monitor is stopped.
pub(super) fn over(pid: u32, file: &Path) -> Result<Monitor, Error> {
    // The file has all samples.
    Ok(Monitor::start(&Options::default().pid(pid).interval(INTERVAL).record(file).history(0))?)
}
