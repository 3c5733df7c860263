//! A program that is started to be watched.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use serde::Serialize;

use super::failure::Failure;
use super::watch;
use crate::child::{self, Started, pass_on};
use crate::stop::Stop;

/// How a program ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(super) struct Ended {
    /// `None` where a signal ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// Whether it was stopped: its time was over, or somebody wanted it.
    pub was_stopped: bool,
}

impl Ended {
    /// Whether it failed by itself.
    pub(super) fn failed(&self) -> bool {
        !self.was_stopped && self.exit_code != Some(0)
    }

    pub(super) fn in_words(&self) -> String {
        match (self.was_stopped, self.exit_code) {
            (true, _) => "was stopped".to_owned(),
            (_, Some(code)) => format!("ended with exit status {code}"),
            (_, None) => "was ended by a signal".to_owned(),
        }
    }
}

/// Runs a program that records itself into `file`, with a monitor beside it, to its end or for so long.
///
/// What it prints goes to standard error: standard output has the report.
pub(super) fn run(
    command: &[OsString],
    file: &Path,
    settings: Option<&str>,
    duration: Option<Duration>,
    stop: &Stop,
) -> Result<Ended, Failure> {
    let failed = |source| Failure::Start { program: command[0].display().to_string(), source };
    let mut program = Command::new(&command[0]);
    program.args(&command[1..]).env("GPU_TUNED_RECORD", file);
    if let Some(settings) = settings {
        program.env("GPU_TUNED_SET", settings);
    }
    let mut started = Started::new(&mut program, stop).map_err(failed)?;
    // Nobody waits for a program that is not watched: it ends here.
    let monitor = watch::over(started.id(), file)?;
    let ended = started.wait(duration, |out| pass_on(out, io::stderr())).map_err(failed);
    let watched = monitor.stop();
    let child::Ended { status, was_stopped } = ended?;
    watched?;
    Ok(Ended { exit_code: status.code(), was_stopped })
}
