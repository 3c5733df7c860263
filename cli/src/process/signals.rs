//! Process groups, and the signals that reach them or stop a command.

#[cfg(all(test, target_os = "linux"))]
mod tests;

use std::io;
use std::process::Child;
#[cfg(unix)]
use std::sync::atomic::AtomicI32;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
#[cfg(unix)]
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

use crate::error::Error;

#[derive(Clone, Copy, Debug)]
pub(crate) enum Signal {
    Term,
    Cont,
    Kill,
    /// A signal that we got.
    Passed(i32),
}

/// Sends a signal to a process group. Returns true if that worked.
#[cfg(unix)]
pub(super) fn send(signal: Signal, group: u32) -> bool {
    use rustix::process::{Signal as Number, kill_process_group};
    let number = match signal {
        Signal::Term => Some(Number::TERM),
        Signal::Cont => Some(Number::CONT),
        Signal::Kill => Some(Number::KILL),
        Signal::Passed(number) => Number::from_named_raw(number),
    };
    number_of(group).zip(number).is_some_and(|(group, number)| kill_process_group(group, number).is_ok())
}

/// Sends a signal to one process, which has not been waited for.
#[cfg(unix)]
pub(super) fn send_to(signal: i32, process: u32) {
    use rustix::process::{Signal, kill_process};
    if let Some((process, signal)) = number_of(process).zip(Signal::from_named_raw(signal)) {
        // The process may have ended.
        let _ = kill_process(process, signal);
    }
}

#[cfg(not(unix))]
pub(super) fn send_to(_: i32, _: u32) {}

/// Without process groups, no signal is sent.
#[cfg(not(unix))]
pub(super) fn send(_: Signal, _: u32) -> bool {
    false
}

#[cfg(unix)]
fn number_of(group: u32) -> Option<rustix::process::Pid> {
    rustix::process::Pid::from_raw(i32::try_from(group).ok()?)
}

/// State and group of a process, from Linux's `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stat {
    state: char,
    group: u32,
}

fn state(process: u32) -> Option<Stat> {
    parsed(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// Returns true if a process is stopped, as by the terminal.
pub(super) fn is_stopped(process: u32) -> bool {
    state(process).is_some_and(|stat| stat.state == 'T')
}

/// Zombies do not run: in containers nobody reaps them.
const fn runs(stat: Stat) -> bool {
    !matches!(stat.state, 'Z' | 'X')
}

/// Returns true if a process runs, or where that is unknown.
pub(crate) fn is_running(process: u32) -> bool {
    !cfg!(target_os = "linux") || state(process).is_some_and(runs)
}

/// Parses `4711 (name) state parent group …`; a name may contain brackets.
fn parsed(stat: &str) -> Option<Stat> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    Some(Stat { state: fields.next()?.chars().next()?, group: fields.nth(1)?.parse().ok()? })
}

/// Returns true if any process of a group runs.
#[cfg(target_os = "linux")]
pub(super) fn has_members(group: u32) -> bool {
    let Ok(processes) = std::fs::read_dir("/proc") else { return false };
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let mut stats = processes.flatten().filter_map(number).filter_map(state);
    stats.any(|stat| stat.group == group && runs(stat))
}

#[cfg(all(unix, not(target_os = "linux")))]
pub(super) fn has_members(group: u32) -> bool {
    number_of(group).is_some_and(|group| rustix::process::test_kill_process_group(group).is_ok())
}

#[cfg(not(unix))]
pub(super) fn has_members(_: u32) -> bool {
    false
}

/// Group of a program that is about to start.
#[cfg(unix)]
const STARTING: u32 = u32::MAX;
/// Time within which a repeated signal counts as one: closing terminals and `timeout` send two.
#[cfg(unix)]
const REPEAT: Duration = Duration::from_millis(200);

#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// A request to stop, by a signal.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The first signal; 0 while there is none.
    #[cfg(unix)]
    signal: AtomicI32,
    #[cfg(unix)]
    since: OnceLock<Instant>,
    /// A flag for each of the signals.
    #[cfg(not(unix))]
    sent: [Arc<AtomicBool>; SIGNALS.len()],
    /// Process group of the running program; 0 without one.
    group: AtomicU32,
}

impl Stop {
    /// Listens to signals, except those that our parent ignores. A second signal ends us and the program at once.
    pub(crate) fn on_signals() -> Result<Self, Error> {
        static LISTENING: OnceLock<Stop> = OnceLock::new();
        if let Some(stop) = LISTENING.get() {
            return Ok(stop.clone());
        }
        let stop = Self::default();
        stop.listen().map_err(Error::Signals)?;
        Ok(LISTENING.get_or_init(|| stop).clone())
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.signal().is_some()
    }

    #[cfg(unix)]
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.0.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    #[cfg(not(unix))]
    pub(crate) fn signal(&self) -> Option<i32> {
        let mut all = SIGNALS.into_iter().zip(&self.0.sent);
        all.find_map(|(signal, is_sent)| is_sent.load(Ordering::Relaxed).then_some(signal))
    }

    /// Starts a program whose group a second signal ends.
    pub(crate) fn guarding(&self, start: impl FnOnce() -> io::Result<Child>) -> io::Result<Child> {
        #[cfg(unix)]
        self.0.group.store(STARTING, Ordering::Relaxed);
        let child = start();
        self.0.group.store(child.as_ref().map_or(0, Child::id), Ordering::Relaxed);
        child
    }

    /// Forgets the program, which has ended.
    pub(crate) fn forget_program(&self) {
        self.0.group.store(0, Ordering::Relaxed);
    }

    #[cfg(unix)]
    fn listen(&self) -> io::Result<()> {
        use signal_hook::consts::{SIGHUP, SIGQUIT};
        let ignored = ignored();
        let heard = [SIGINT, SIGTERM, SIGHUP, SIGQUIT].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let mut signals = signal_hook::iterator::Signals::new(heard)?;
        let state = Arc::clone(&self.0);
        let listener = std::thread::Builder::new().name("signals".to_owned());
        listener.spawn(move || signals.forever().for_each(|signal| state.take(signal))).map(drop)
    }

    #[cfg(not(unix))]
    fn listen(&self) -> io::Result<()> {
        for (signal, is_sent) in SIGNALS.into_iter().zip(&self.0.sent) {
            // The order matters: the first signal only sets the flag.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(is_sent))?;
            signal_hook::flag::register(signal, Arc::clone(is_sent))?;
        }
        Ok(())
    }
}

#[cfg(unix)]
impl State {
    fn take(&self, signal: i32) {
        let since = self.since.get_or_init(Instant::now);
        match self.signal.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => return,
            Err(first) if first == signal && since.elapsed() < REPEAT => return,
            Err(_) => {}
        }
        let group = || self.group.load(Ordering::Relaxed);
        while group() == STARTING {
            std::thread::sleep(Duration::from_millis(1));
        }
        match group() {
            0 => {}
            group => drop(send(Signal::Kill, group)),
        }
        end_by(signal);
    }
}

/// Signals that are passed on to programs, and end nothing: Slurm announces the end of a job with one of them.
#[derive(Default)]
pub(crate) struct PassedOn(Vec<(i32, Arc<AtomicBool>)>);

impl PassedOn {
    /// Listens to the signals, except those that our parent ignores.
    #[cfg(unix)]
    pub(crate) fn listen() -> Result<Self, Error> {
        use signal_hook::consts::{SIGUSR1, SIGUSR2};
        let ignored = ignored();
        let heard = [SIGUSR1, SIGUSR2].into_iter().filter(|signal| ignored >> (signal - 1) & 1 == 0);
        let listen = |signal| {
            let is_sent = Arc::default();
            signal_hook::flag::register(signal, Arc::clone(&is_sent)).map_err(Error::Signals)?;
            Ok((signal, is_sent))
        };
        heard.map(listen).collect::<Result<_, _>>().map(Self)
    }

    /// Other systems have no such signals.
    #[cfg(not(unix))]
    pub(crate) fn listen() -> Result<Self, Error> {
        Ok(Self::default())
    }

    /// Returns the signals since the last call.
    pub(crate) fn take(&self) -> impl Iterator<Item = i32> {
        self.0.iter().filter(|(_, is_sent)| is_sent.swap(false, Ordering::Relaxed)).map(|(signal, _)| *signal)
    }
}

/// Signals that our parent ignores, as `nohup` does; the lowest bit is signal 1.
#[cfg(target_os = "linux")]
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or_default()
}

#[cfg(all(unix, not(target_os = "linux")))]
const fn ignored() -> u64 {
    0
}

/// Ends us as the signal would have, so that our parent sees the signal.
pub(crate) fn end_by(signal: i32) {
    // If that fails, the exit code reports the stop.
    let _ = emulate_default_handler(signal);
}
