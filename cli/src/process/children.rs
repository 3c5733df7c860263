//! Child processes with all of their descendants.
//!
//! Children share a process group of their own, so that their workers end with them. A terminal's Ctrl-C reaches our group
//! only, and is passed on. Only the foreground group may use a terminal: the system stops a child that reads from the terminal.

use std::io;
use std::process::{Child, Command, ExitStatus};
use std::thread;
use std::time::{Duration, Instant};

use super::group::{Signal, has_members, send};
use super::guard::Guard;
use super::stop::Stop;
use crate::output::note;

/// Interval between looks at children.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// Time for children to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for descendants to end after the children.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);

/// Running children. Dropping them ends their group.
pub(crate) struct Children {
    pub(super) first: Child,
    others: Vec<Child>,
    _guard: Option<Guard>,
    stop: Stop,
    has_ended: bool,
}

impl Children {
    /// Starts the first child, in a process group of its own.
    pub(crate) fn start(command: &mut Command, stop: &Stop) -> io::Result<Self> {
        let first = stop.guarding(|| in_group(command, 0).spawn())?;
        let guard = Guard::new(first.id());
        Ok(Self { first, others: Vec::new(), _guard: guard, stop: stop.clone(), has_ended: false })
    }

    /// Starts another child in the group. No earlier child may have been waited for: the group could be gone.
    pub(crate) fn add(&mut self, command: &mut Command) -> io::Result<()> {
        self.others.push(in_group(command, self.id()).spawn()?);
        Ok(())
    }

    /// Id of the first child, and of the process group.
    pub(crate) fn id(&self) -> u32 {
        self.first.id()
    }

    /// All children in the order of their starts.
    pub(crate) fn all(&mut self) -> impl Iterator<Item = &mut Child> {
        [&mut self.first].into_iter().chain(&mut self.others)
    }

    /// Exit status of each child; `None` for a running child.
    pub(crate) fn statuses(&mut self) -> io::Result<Vec<Option<ExitStatus>>> {
        self.all().map(Child::try_wait).collect()
    }

    /// Sends a signal to the group. Returns true if that worked.
    pub(crate) fn send(&self, signal: Signal) -> bool {
        send(signal, self.id())
    }

    /// Ends descendants that outlive the children, and would keep a GPU.
    pub(crate) fn end_the_rest(&mut self) -> io::Result<()> {
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
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let begin = Instant::now();
        // A stopped process receives SIGTERM only after SIGCONT.
        let is_asked = self.send(Signal::Term) && self.send(Signal::Cont);
        while is_asked && begin.elapsed() < END_TIMEOUT {
            let is_running = self.statuses()?.contains(&None);
            if !is_running && !has_members(self.id()) {
                self.has_ended = true;
                return Ok(());
            }
            thread::sleep(POLL);
        }
        self.kill()
    }

    fn kill(&mut self) -> io::Result<()> {
        // The group may have ended meanwhile.
        self.send(Signal::Kill);
        self.all().for_each(|child| drop(child.kill()));
        self.has_ended = true;
        self.all().try_for_each(|child| child.wait().map(drop))
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        if !self.has_ended {
            // The caller has the error already.
            let _ = self.kill();
        }
        self.stop.forget_program();
    }
}

#[cfg(unix)]
fn in_group(command: &mut Command, group: u32) -> &mut Command {
    std::os::unix::process::CommandExt::process_group(command, group.cast_signed())
}

#[cfg(not(unix))]
fn in_group(command: &mut Command, _: u32) -> &mut Command {
    command
}
