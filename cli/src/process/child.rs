//! A child process with all of its descendants.
//!
//! The child has a process group of its own, so that its workers end with it. A terminal's Ctrl-C reaches our group only, and
//! is passed on. Standard input and standard error are inherited. Only the foreground group may use a terminal: the system
//! stops a child that reads from the terminal. Standard output is a pipe, so that the child prints lines.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::group::{Signal, has_members, is_stopped, send};
use super::stop::Stop;
use crate::output::{note, say};

const POLL: Duration = Duration::from_millis(20);
/// Time for a program to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for children of a program to end after it.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);
/// Interval between checks for a stopped program.
const STOPPED_POLL: Duration = Duration::from_secs(1);
/// Time to drain standard output after exit: a detached grandchild may keep the pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// A running child. Dropping it ends its group.
pub(crate) struct Started {
    child: Child,
    stop: Stop,
    has_ended: bool,
    /// True after the warning about a stopped program.
    warned_stopped: bool,
}

pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// True if we ended the child, by a signal or after its time.
    pub(crate) was_stopped: bool,
}

impl Started {
    /// Starts a child with a pipe for its standard output.
    pub(crate) fn new(command: &mut Command, stop: &Stop) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        let child = stop.guarding(|| command.stdout(Stdio::piped()).spawn())?;
        Ok(Self { child, stop: stop.clone(), has_ended: false, warned_stopped: false })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the child, and ends it after `duration` or a signal. Meanwhile `read` gets its output.
    pub(crate) fn wait(
        &mut self,
        duration: Option<Duration>,
        read: impl FnOnce(Printed) -> io::Result<()> + Send + 'static,
    ) -> io::Result<Ended> {
        let silence = Arc::new(Mutex::new(None));
        let printed = self.child.stdout.take().map(|out| Printed { out, silence: Arc::clone(&silence) });
        let reader = printed.map(|printed| thread::spawn(|| read(printed)));
        let ended = self.wait_for_end(duration)?;
        let end = Instant::now();
        while let Some(reader) = &reader
            && !reader.is_finished()
        {
            let is_over = end.elapsed() >= DRAIN_TIMEOUT;
            if is_over && (ended.was_stopped || self.stop.is_wanted()) {
                return Ok(ended);
            }
            if is_over && locked(&silence).is_some_and(|since| since.elapsed() >= DRAIN_TIMEOUT) {
                note("the program has exited; not waiting for output of processes that have left its group");
                return Ok(ended);
            }
            thread::sleep(POLL);
        }
        reader.map_or(Ok(()), |reader| reader.join().expect("BUG: reading panics on nothing"))?;
        Ok(ended)
    }

    fn wait_for_end(&mut self, duration: Option<Duration>) -> io::Result<Ended> {
        let begin = Instant::now();
        let mut next_check = begin + STOPPED_POLL;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.end_the_rest()?;
                return Ok(Ended { status, was_stopped: false });
            }
            if self.stop.is_wanted() || duration.is_some_and(|duration| begin.elapsed() >= duration) {
                return Ok(Ended { status: self.end()?, was_stopped: true });
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

    /// Ends children that outlive the program, which would keep its GPU.
    fn end_the_rest(&mut self) -> io::Result<()> {
        let end = Instant::now();
        while has_members(self.id()) && end.elapsed() < FOLLOW_TIMEOUT {
            thread::sleep(POLL);
        }
        if has_members(self.id()) {
            note("program exited; terminating its remaining child processes");
            self.end()?;
        }
        self.has_ended = true;
        Ok(())
    }

    /// Ends the group: SIGTERM, so that files are complete, then SIGKILL.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let (group, begin) = (self.id(), Instant::now());
        // A stopped process receives SIGTERM only after SIGCONT.
        let is_asked = send(Signal::Term, group) && send(Signal::Cont, group);
        while is_asked && begin.elapsed() < END_TIMEOUT {
            match self.child.try_wait()? {
                Some(status) if !has_members(group) => {
                    self.has_ended = true;
                    return Ok(status);
                }
                _ => thread::sleep(POLL),
            }
        }
        self.kill()
    }

    fn kill(&mut self) -> io::Result<ExitStatus> {
        // The group may have ended meanwhile.
        let _ = send(Signal::Kill, self.id());
        let _ = self.child.kill();
        self.has_ended = true;
        self.child.wait()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.has_ended {
            // The caller has the error already.
            let _ = self.kill();
        }
        self.stop.forget_program();
    }
}

pub(crate) struct Printed {
    out: ChildStdout,
    /// Begin of the read that is waiting for output.
    silence: Arc<Mutex<Option<Instant>>>,
}

impl Read for Printed {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        *locked(&self.silence) = Some(Instant::now());
        let read = self.out.read(into);
        *locked(&self.silence) = None;
        read
    }
}

fn locked(silence: &Mutex<Option<Instant>>) -> MutexGuard<'_, Option<Instant>> {
    silence.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Copies the output of a child. A closed destination is ignored.
pub(crate) fn pass_on(mut out: impl Read, mut to: impl Write) -> io::Result<()> {
    let mut part = [0; 8192];
    loop {
        match out.read(&mut part) {
            Ok(0) => return Ok(()),
            Ok(count) => drop(to.write_all(&part[..count])),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
