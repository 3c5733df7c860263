//! Signals that stop a command: Ctrl-C and others.

use std::io;
use std::process::Child;
#[cfg(not(unix))]
use std::sync::atomic::AtomicBool;
#[cfg(unix)]
use std::sync::atomic::AtomicI32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
#[cfg(unix)]
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

#[cfg(unix)]
use super::group::{Signal, send};
use crate::error::Error;

/// Group of a program that is about to start.
#[cfg(unix)]
const STARTING: u32 = u32::MAX;
/// Time within which a repeated signal counts as one: closing terminals and `timeout` send two.
#[cfg(unix)]
const REPEAT: Duration = Duration::from_millis(200);

/// Signals of this system.
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
    /// Time of the first signal.
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
