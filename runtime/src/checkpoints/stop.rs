//! Requests to stop: signals and a time limit.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Signals that the process has got.
static SIGNALS: Mutex<Option<Arc<Signals>>> = Mutex::new(None);

#[derive(Debug, Default)]
struct Signals {
    sent: [Arc<AtomicBool>; 2],
    /// True if SIGTERM has its default action.
    is_over: Arc<AtomicBool>,
}

/// Names in the order of [`Signals::sent`].
const NAMES: [&str; 2] = ["SIGTERM", "SIGUSR1"];

/// Listens to signals. Once all are dropped, SIGTERM ends the process as before, and SIGUSR1 does nothing.
#[derive(Debug)]
pub(super) struct Stop {
    begin: Instant,
    pub limit: Option<Duration>,
    signals: Arc<Signals>,
}

impl Stop {
    pub(super) fn listen() -> io::Result<Self> {
        let mut known = SIGNALS.lock().unwrap_or_else(PoisonError::into_inner);
        let signals = known.clone().map_or_else(register, Ok)?;
        signals.is_over.store(false, Ordering::Relaxed);
        *known = Some(Arc::clone(&signals));
        Ok(Self { begin: Instant::now(), limit: None, signals })
    }

    /// Why the run has to stop now.
    pub(super) fn reason(&self) -> Option<String> {
        let sent = NAMES.iter().zip(&self.signals.sent).find(|(_, is_sent)| is_sent.load(Ordering::Relaxed));
        let is_over = || self.limit.is_some_and(|limit| self.begin.elapsed() >= limit);
        sent.map(|(name, _)| (*name).to_owned()).or_else(|| is_over().then(|| "the time limit".to_owned()))
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        let _known = SIGNALS.lock();
        // This one, and the process's.
        self.signals.is_over.store(Arc::strong_count(&self.signals) == 2, Ordering::Relaxed);
    }
}

fn register() -> io::Result<Arc<Signals>> {
    let signals = Arc::<Signals>::default();
    #[cfg(unix)]
    {
        use signal_hook::consts::{SIGTERM, SIGUSR1};
        use signal_hook::flag;
        // SIGUSR1 only warns: a program that evaluates its model goes on.
        flag::register_conditional_default(SIGTERM, Arc::clone(&signals.is_over))?;
        for (number, is_sent) in [SIGTERM, SIGUSR1].into_iter().zip(&signals.sent) {
            flag::register(number, Arc::clone(is_sent))?;
        }
    }
    Ok(signals)
}
