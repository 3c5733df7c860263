//! A program that is started, with all that it starts in turn.
//!
//! It has a process group of its own, so that its workers end with it. A terminal's Ctrl-C reaches the group in the
//! foreground only, which is ours: it is passed on. Standard input and standard error stay what they are, but a terminal is
//! for the foreground: a program that reads from it, or sets it up as for a screen of its own, is held by the system until
//! it is ended. What it prints comes through a pipe, so that programs which look there see no terminal and print lines.

use std::io::{self, Read, Write};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::stop::Stop;

/// How soon its end is seen.
const REST: Duration = Duration::from_millis(20);
/// Programs that are asked to end have this time for it.
const TO_END: Duration = Duration::from_secs(10);
/// What a program has started may end a moment after it.
const TO_FOLLOW: Duration = Duration::from_secs(2);
/// Whether one goes on is looked at in such intervals.
const HELD: Duration = Duration::from_secs(1);
/// What a program that has ended had printed is waited for so long, as who has left its group may hold the pipe.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// A program that runs. It is ended with this, if it has not ended by then.
pub(crate) struct Started {
    child: Child,
    stop: Stop,
    has_ended: bool,
    /// Whether it was said that it does not go on.
    is_held: bool,
}

/// How it ended.
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    /// Whether it was stopped: its time was over, or somebody wanted it.
    pub(crate) was_stopped: bool,
}

impl Started {
    /// Starts it, with a pipe for what it prints.
    pub(crate) fn new(command: &mut Command, stop: &Stop) -> io::Result<Self> {
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(command, 0);
        let child = stop.guarding(|| command.stdout(Stdio::piped()).spawn())?;
        Ok(Self { child, stop: stop.clone(), has_ended: false, is_held: false })
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for its end, for so long at most, and until somebody wants it to end. Meanwhile `read` has what it prints.
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
            let is_over = end.elapsed() >= LAST_WORDS;
            if is_over && (ended.was_stopped || self.stop.is_wanted()) {
                return Ok(ended);
            }
            if is_over && locked(&silence).is_some_and(|since| since.elapsed() >= LAST_WORDS) {
                crate::say(
                    "note: the program has ended, and what it had started, and has left its group, may go on to print: that is \
                     not waited for",
                );
                return Ok(ended);
            }
            thread::sleep(REST);
        }
        reader.map_or(Ok(()), |reader| reader.join().expect("BUG: reading panics on nothing"))?;
        Ok(ended)
    }

    fn wait_for_end(&mut self, duration: Option<Duration>) -> io::Result<Ended> {
        let begin = Instant::now();
        let mut next_look = begin + HELD;
        loop {
            if let Some(status) = self.child.try_wait()? {
                self.end_the_rest()?;
                return Ok(Ended { status, was_stopped: false });
            }
            if self.stop.is_wanted() || duration.is_some_and(|duration| begin.elapsed() >= duration) {
                return Ok(Ended { status: self.end()?, was_stopped: true });
            }
            if Instant::now() >= next_look {
                next_look += HELD;
                self.tell_if_held();
            }
            thread::sleep(REST);
        }
    }

    fn tell_if_held(&mut self) {
        if !self.is_held && is_held(self.id()) {
            self.is_held = true;
            crate::say(
                "note: the program is held, as by the terminal, which is for the foreground alone to read from and to set \
                 up: have it read a file or a pipe, and print lines",
            );
        }
    }

    /// Ends those that a program has left behind: they would hold its GPU.
    fn end_the_rest(&mut self) -> io::Result<()> {
        let end = Instant::now();
        while has_members(self.id()) && end.elapsed() < TO_FOLLOW {
            thread::sleep(REST);
        }
        if has_members(self.id()) {
            crate::say("note: the program has ended, and what it had started goes on: that is ended, too");
            self.end()?;
        }
        self.has_ended = true;
        Ok(())
    }

    /// Asks all of them to end, so that what they write is whole, and ends them when they have not after a while.
    fn end(&mut self) -> io::Result<ExitStatus> {
        let (group, begin) = (self.id(), Instant::now());
        // Who is held, as by the terminal, hears nothing until it goes on.
        let is_asked = send(Signal::Term, group) && send(Signal::Cont, group);
        while is_asked && begin.elapsed() < TO_END {
            match self.child.try_wait()? {
                Some(status) if !has_members(group) => {
                    self.has_ended = true;
                    return Ok(status);
                }
                _ => thread::sleep(REST),
            }
        }
        self.kill()
    }

    fn kill(&mut self) -> io::Result<ExitStatus> {
        // They may have ended meanwhile.
        let _ = send(Signal::Kill, self.id());
        let _ = self.child.kill();
        self.has_ended = true;
        self.child.wait()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.has_ended {
            // What went wrong is told elsewhere.
            let _ = self.kill();
        }
        self.stop.has_ended();
    }
}

/// What a program prints.
pub(crate) struct Printed {
    out: ChildStdout,
    /// Since when it prints nothing, while that is waited for.
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

/// Passes on what a program prints. That nobody reads it is no reason to stop.
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

/// What a group is told.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Term,
    Cont,
    Kill,
}

/// Sends a signal to a process group; whether that could be done.
#[cfg(unix)]
pub(crate) fn send(signal: Signal, group: u32) -> bool {
    use rustix::process::{Signal as Number, kill_process_group};
    let number = match signal {
        Signal::Term => Number::TERM,
        Signal::Cont => Number::CONT,
        Signal::Kill => Number::KILL,
    };
    number_of(group).is_some_and(|group| kill_process_group(group, number).is_ok())
}

/// There are no groups.
#[cfg(not(unix))]
pub(crate) fn send(_: Signal, _: u32) -> bool {
    false
}

#[cfg(unix)]
fn number_of(group: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(group).ok()?)
}

/// What the system says of a process.
#[cfg(target_os = "linux")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    group: u32,
}

#[cfg(target_os = "linux")]
fn state(process: u32) -> Option<Stat> {
    parsed(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Whether a process waits to be told that it may go on.
#[cfg(target_os = "linux")]
fn is_held(process: u32) -> bool {
    state(process).is_some_and(|stat| stat.state == 'T')
}

#[cfg(not(target_os = "linux"))]
fn is_held(_: u32) -> bool {
    false
}

/// Of `4711 (name) state parent group …`, where a name may have brackets of its own.
#[cfg(target_os = "linux")]
fn parsed(stat: &str) -> Option<Stat> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, group: fields.nth(1)?.parse().ok()? })
}

/// Whether any process of a group runs. One that has ended and that nobody asks about, as in containers, is none.
#[cfg(target_os = "linux")]
fn has_members(group: u32) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut stats = processes.flatten().filter_map(number).filter_map(state);
    stats.any(|stat| stat.group == group && !matches!(stat.state, 'Z' | 'X'))
}

#[cfg(all(unix, not(target_os = "linux")))]
fn has_members(group: u32) -> bool {
    number_of(group).is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
}

#[cfg(not(unix))]
fn has_members(_: u32) -> bool {
    false
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::{Stat, parsed};

    #[test]
    fn names_may_have_brackets_and_spaces() {
        let stat = "4711 (a) b (c) T 4000 4242 4000 34816 4711 4194304";
        assert_eq!(parsed(stat), Some(Stat { state: 'T', group: 4242 }));
        assert_eq!(parsed("4711"), None);
    }
}
