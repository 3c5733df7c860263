//! A program that is started to be watched.

use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use serde::Serialize;

use super::failure::Failure;
use super::watch;
use crate::stop::Stop;

/// How soon its end is seen.
const REST: Duration = Duration::from_millis(20);
/// A program that is asked to end has this time for it.
const TO_END: Duration = Duration::from_secs(10);

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
    program.args(&command[1..]).env("GPU_TUNED_RECORD", file).stdout(Stdio::from(io::stderr()));
    if let Some(settings) = settings {
        program.env("GPU_TUNED_SET", settings);
    }
    let mut child = program.spawn().map_err(failed)?;
    let monitor = watch::over(child.id(), file);
    let waited = wait(&mut child, duration, stop).map_err(failed);
    monitor?.stop()?;
    let (status, was_stopped) = waited?;
    Ok(Ended { exit_code: status.code(), was_stopped })
}

fn wait(child: &mut Child, duration: Option<Duration>, stop: &Stop) -> io::Result<(ExitStatus, bool)> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((status, false));
        }
        if stop.is_wanted() || duration.is_some_and(|duration| begin.elapsed() >= duration) {
            end(child);
            return Ok((child.wait()?, true));
        }
        thread::sleep(REST);
    }
}

/// Asks a process to end, so that what it recorded is whole, and ends it when it has not after a while.
fn end(child: &mut Child) {
    let begin = Instant::now();
    let asked = cfg!(unix)
        && Command::new("kill").args(["-TERM", &child.id().to_string()]).status().is_ok_and(|status| status.success());
    while asked && begin.elapsed() < TO_END {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        thread::sleep(REST);
    }
    // It may have ended meanwhile.
    let _ = child.kill();
}
