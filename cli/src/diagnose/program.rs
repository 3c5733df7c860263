//! A program that is started and watched.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use gpu_tuned_observe::monitor::{Monitor, Options};
use serde::Serialize;

use super::input::is_there;
use crate::error::Error;
use crate::process::{self, Started, Stop, pass_on};

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ended {
    /// `None` after a signal.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    pub was_stopped: bool,
}

impl Ended {
    /// Returns true if the program failed by itself.
    pub(super) fn failed(&self) -> bool {
        !self.was_stopped && self.exit_code != Some(0)
    }

    pub(super) fn describe(&self) -> String {
        match (self.was_stopped, self.exit_code) {
            (true, _) => "was stopped".to_owned(),
            (_, Some(code)) => format!("ended with exit status {code}"),
            (_, None) => "was ended by a signal".to_owned(),
        }
    }
}

/// Runs a program with a monitor, both recording into `file`, to its end or for `duration`. Its output goes to standard
/// error.
pub(super) fn run(
    command: &[OsString],
    file: &Path,
    settings: Option<&str>,
    duration: Option<Duration>,
    stop: &Stop,
) -> Result<Ended, Error> {
    let failed = |source| Error::StartCommand { program: command[0].display().to_string(), source };
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env("GPU_TUNED_RECORD", file);
    if let Some(settings) = settings {
        program.env("GPU_TUNED_SET", settings);
    }
    let mut started = Started::new(&mut program, stop).map_err(failed)?;
    // Without a monitor the program is ended.
    let monitor = watch(started.id(), file)?;
    let ended = started.wait(duration, |out| pass_on(out, io::stderr())).map_err(failed);
    let watched = monitor.stop();
    let process::Ended { status, was_stopped } = ended?;
    watched?;
    Ok(Ended { exit_code: status.code(), was_stopped })
}

const INTERVAL: Duration = Duration::from_millis(500);

/// Records a process and the machine until the monitor is stopped.
pub(super) fn watch(pid: u32, file: &Path) -> Result<Monitor, Error> {
    is_there(file)?;
    // The file has all samples.
    Ok(Monitor::start(&Options::default().pid(pid).interval(INTERVAL).record(file).history(0))?)
}
