//! Child processes, and the signals that end them.

mod signals;

use std::io::{self, Read, Write};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use crate::output::{note, say};
pub(crate) use signals::{PassedOn, Signal, Stop, end_by, is_running};
use signals::{has_members, is_stopped, send, send_to};

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

pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.to_string()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, how) if how.contains("SIGKILL") => {
            how + ", the usual end of a process that exhausts the memory of the system"
        }
        (None, how) => how,
    }
}

/// Interval between looks at children.
pub(crate) const POLL: Duration = Duration::from_millis(20);
/// Time for children to end after SIGTERM.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for descendants to end after the children.
const FOLLOW_TIMEOUT: Duration = Duration::from_secs(2);

/// Running children. Dropping them ends their group.
pub(crate) struct Children {
    first: Child,
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

    /// Sends a signal to the children that run, and not to their descendants, which may have no handler.
    pub(crate) fn send_to_each(&mut self, signal: i32) -> io::Result<()> {
        self.all().try_for_each(|child| {
            if child.try_wait()?.is_none() {
                send_to(signal, child.id());
            }
            Ok(())
        })
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

/// A shell that kills a process group once its standard input closes: when this process ends, for any reason.
///
/// `PR_SET_PDEATHSIG` would not reach grandchildren. The shell has a group of its own and ignores the signals that end all
/// processes of a terminal or a container.
struct Guard(Child);

const SCRIPT: &str = "trap '' HUP INT QUIT TERM; read -r _; kill -s KILL -- \"-$0\"";

impl Guard {
    /// Starts a guard. Returns `None` without a shell.
    #[cfg(unix)]
    fn new(group: u32) -> Option<Self> {
        use std::os::unix::process::CommandExt as _;
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, &group.to_string()]).process_group(0);
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().ok().map(Self)
    }

    /// Without process groups there is nothing to guard.
    #[cfg(not(unix))]
    fn new(_: u32) -> Option<Self> {
        None
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // The guard may have ended.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Time to drain pipes after exit: a detached grandchild may keep a pipe open.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Time after which only output that is in a pipe is drained: later output is not the children's.
const DRAIN_LIMIT: Duration = Duration::from_secs(5);

/// Begin of the read that is waiting for output.
type Silence = Arc<Mutex<Option<Instant>>>;

/// Threads that read the output of children, one for each pipe.
#[derive(Default)]
pub(crate) struct Readers(Vec<(JoinHandle<io::Result<()>>, Silence)>);

impl Readers {
    /// Passes the output of a pipe to `read`.
    pub(crate) fn add(
        &mut self,
        out: impl Read + Send + 'static,
        read: impl FnOnce(Printed) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let silence = Silence::default();
        let printed = Printed { out: Box::new(out), silence: Arc::clone(&silence) };
        self.0.push((thread::Builder::new().spawn(|| read(printed))?, silence));
        Ok(())
    }

    /// Waits for the end of all output, once the children have ended. `is_stopped` ends the wait early.
    pub(crate) fn finish(self, is_stopped: impl Fn() -> bool) -> io::Result<()> {
        let end = Instant::now();
        loop {
            let limit = if end.elapsed() < DRAIN_LIMIT { DRAIN_TIMEOUT } else { Duration::from_millis(1) };
            let is_silent = |silence: &Silence| locked(silence).is_some_and(|since| since.elapsed() >= limit);
            let mut open = self.0.iter().filter(|(thread, _)| !thread.is_finished()).peekable();
            if open.peek().is_none() {
                break;
            }
            let is_over = end.elapsed() >= DRAIN_TIMEOUT;
            if is_over && is_stopped() {
                return Ok(());
            }
            if is_over && open.all(|(_, silence)| is_silent(silence)) {
                note("the program has exited; not waiting for output of processes that have left its group");
                return Ok(());
            }
            thread::sleep(POLL);
        }
        self.0.into_iter().try_for_each(|(thread, _)| thread.join().expect("BUG: reading panics on nothing"))
    }
}

pub(crate) struct Printed {
    out: Box<dyn Read + Send>,
    silence: Silence,
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
