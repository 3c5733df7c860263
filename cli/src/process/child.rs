//! One program, whose output is read.
//!
//! Standard input and standard error are inherited. Standard output is a pipe, so that the program prints lines.

use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::children::{Children, POLL};
use super::group::is_stopped;
use super::output::{Printed, Readers};
use super::stop::Stop;
use crate::output::say;

/// Interval between checks for a stopped program.
const STOPPED_POLL: Duration = Duration::from_secs(1);

/// A running program. Dropping it ends its group.
pub(crate) struct Started {
    children: Children,
    stop: Stop,
    /// True after the warning about a stopped program.
    warned_stopped: bool,
}

pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// True if we ended the program, by a signal or after its time.
    pub(crate) was_stopped: bool,
}

impl Started {
    /// Starts a program with a pipe for its standard output.
    pub(crate) fn new(command: &mut Command, stop: &Stop) -> io::Result<Self> {
        let children = Children::start(command.stdout(Stdio::piped()), stop)?;
        Ok(Self { children, stop: stop.clone(), warned_stopped: false })
    }

    pub(crate) fn id(&self) -> u32 {
        self.children.id()
    }

    /// Waits for the end of the program, and ends it after `duration` or a signal. Meanwhile `read` gets its output.
    pub(crate) fn wait(
        &mut self,
        duration: Option<Duration>,
        read: impl FnOnce(Printed) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Ended> {
        let mut readers = Readers::default();
        self.children.first.stdout.take().map(|out| readers.add(out, read)).transpose()?;
        let ended = self.wait_for_end(duration)?;
        readers.finish(|| ended.was_stopped || self.stop.is_wanted())?;
        Ok(ended)
    }

    fn wait_for_end(&mut self, duration: Option<Duration>) -> io::Result<Ended> {
        let begin = Instant::now();
        let mut next_check = begin + STOPPED_POLL;
        loop {
            if let Some(status) = self.children.first.try_wait()? {
                self.children.end_the_rest()?;
                return Ok(Ended { status, was_stopped: false });
            }
            if self.stop.is_wanted() || duration.is_some_and(|duration| begin.elapsed() >= duration) {
                self.children.end()?;
                return Ok(Ended { status: self.children.first.wait()?, was_stopped: true });
            }
            if Instant::now() >= next_check {
                next_check += STOPPED_POLL;
                self.warn_if_stopped();
            }
            thread::sleep(POLL);
        }
    }

    fn warn_if_stopped(&mut self) {
        if !self.warned_stopped && is_stopped(self.id()) {
            self.warned_stopped = true;
            say(
                "note: the program is stopped, because only the foreground may use the terminal: have it read a file or a \
                 pipe, and print lines",
            );
        }
    }
}

/// Describes an exit status, with its usual cause.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.to_string()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, how) if how.contains("SIGKILL") => {
            how + ", the usual end of a process that exhausts the memory of the system"
        }
        (None, how) => how,
    }
}
