//! Ctrl-C and the like: what was begun is brought to its end.

use std::io;
#[cfg(not(unix))]
use std::sync::atomic::AtomicBool;
#[cfg(unix)]
use std::sync::atomic::AtomicI32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::emulate_default_handler;

#[cfg(unix)]
use crate::child::{Signal, send};

/// What can be sent.
#[cfg(not(unix))]
const SIGNALS: [i32; 2] = [SIGINT, SIGTERM];

/// Whether somebody wants this to end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Stop(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The first signal; 0 while there is none.
    #[cfg(unix)]
    signal: AtomicI32,
    /// Whether each of the signals that there are has been sent.
    #[cfg(not(unix))]
    sent: [Arc<AtomicBool>; SIGNALS.len()],
    /// The process group of a program that was started; 0 while there is none.
    group: AtomicU32,
}

impl Stop {
    /// Listens to signals. A second one ends the program at once, and what it has started.
    pub(crate) fn on_signals() -> io::Result<Self> {
        static LISTENING: OnceLock<Stop> = OnceLock::new();
        if let Some(stop) = LISTENING.get() {
            return Ok(stop.clone());
        }
        let stop = Self::default();
        stop.listen()?;
        Ok(LISTENING.get_or_init(|| stop).clone())
    }

    pub(crate) fn is_wanted(&self) -> bool {
        self.signal().is_some()
    }

    /// The signal that somebody has sent.
    #[cfg(unix)]
    pub(crate) fn signal(&self) -> Option<i32> {
        Some(self.0.signal.load(Ordering::Relaxed)).filter(|signal| *signal != 0)
    }

    /// The signal that somebody has sent.
    #[cfg(not(unix))]
    pub(crate) fn signal(&self) -> Option<i32> {
        let mut all = SIGNALS.into_iter().zip(&self.0.sent);
        all.find_map(|(signal, is_sent)| is_sent.load(Ordering::Relaxed).then_some(signal))
    }

    /// Says which process group is to end with this program; 0 is none.
    pub(crate) fn guard(&self, group: u32) {
        self.0.group.store(group, Ordering::Relaxed);
    }

    #[cfg(unix)]
    fn listen(&self) -> io::Result<()> {
        use signal_hook::consts::{SIGHUP, SIGQUIT};
        let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP, SIGQUIT])?;
        let state = Arc::clone(&self.0);
        let listener = std::thread::Builder::new().name("signals".to_owned());
        listener.spawn(move || signals.forever().for_each(|signal| state.take(signal))).map(drop)
    }

    #[cfg(not(unix))]
    fn listen(&self) -> io::Result<()> {
        for (signal, is_sent) in SIGNALS.into_iter().zip(&self.0.sent) {
            // In this order: the first signal only sets the flag.
            signal_hook::flag::register_conditional_default(signal, Arc::clone(is_sent))?;
            signal_hook::flag::register(signal, Arc::clone(is_sent))?;
        }
        Ok(())
    }
}

#[cfg(unix)]
impl State {
    fn take(&self, signal: i32) {
        if self.signal.compare_exchange(0, signal, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
            return;
        }
        match self.group.load(Ordering::Relaxed) {
            0 => {}
            group => drop(send(Signal::Kill, group)),
        }
        end_by(signal);
    }
}

/// Ends this program as the signal would have: whoever started it sees that it was stopped.
pub(crate) fn end_by(signal: i32) {
    // Where it cannot be done, the exit code has to say it.
    let _ = emulate_default_handler(signal);
}
