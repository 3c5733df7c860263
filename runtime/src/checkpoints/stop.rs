//! Requests to stop: signals and a time limit.

use std::io;
use std::time::{Duration, Instant};

/// Listens to signals until it is dropped; after that, they end the process as before.
#[derive(Debug)]
pub(super) struct Stop {
    begin: Instant,
    pub limit: Option<Duration>,
}

impl Stop {
    /// Listens to SIGTERM and SIGUSR1.
    pub(super) fn listen() -> io::Result<Self> {
        #[cfg(unix)]
        signals::listen()?;
        Ok(Self { begin: Instant::now(), limit: None })
    }

    /// Why the run has to stop now.
    pub(super) fn reason(&self) -> Option<String> {
        #[cfg(unix)]
        if let Some(name) = signals::sent() {
            return Some(name.to_owned());
        }
        self.limit.filter(|limit| self.begin.elapsed() >= *limit).map(|_| "the time limit".to_owned())
    }
}

#[cfg(unix)]
impl Drop for Stop {
    fn drop(&mut self) {
        signals::end();
    }
}

/// Signals of the process.
#[cfg(unix)]
mod signals {
    use std::io;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

    use signal_hook::consts::{SIGTERM, SIGUSR1};
    use signal_hook::flag::{register, register_conditional_default};

    static STATE: Mutex<State> = Mutex::new(State { listeners: 0, known: None });

    struct State {
        listeners: usize,
        known: Option<Known>,
    }

    struct Known {
        sent: [(&'static str, Arc<AtomicBool>); 2],
        /// True if signals have their default action.
        is_over: Arc<AtomicBool>,
    }

    fn state() -> MutexGuard<'static, State> {
        STATE.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn listen() -> io::Result<()> {
        let mut state = state();
        if state.known.is_none() {
            let is_over = Arc::<AtomicBool>::default();
            let heard = |(number, name)| {
                let is_sent = Arc::<AtomicBool>::default();
                register_conditional_default(number, Arc::clone(&is_over))?;
                register(number, Arc::clone(&is_sent))?;
                Ok::<_, io::Error>((name, is_sent))
            };
            let sent = [heard((SIGTERM, "SIGTERM"))?, heard((SIGUSR1, "SIGUSR1"))?];
            state.known = Some(Known { sent, is_over });
        }
        state.listeners += 1;
        state.set_over(false);
        Ok(())
    }

    pub(super) fn sent() -> Option<&'static str> {
        let state = state();
        let (name, _) = state.known.as_ref()?.sent.iter().find(|(_, is_sent)| is_sent.load(Ordering::Relaxed))?;
        Some(*name)
    }

    pub(super) fn end() {
        let mut state = state();
        state.listeners -= 1;
        let is_over = state.listeners == 0;
        state.set_over(is_over);
    }

    impl State {
        fn set_over(&self, is_over: bool) {
            self.known.iter().for_each(|known| known.is_over.store(is_over, Ordering::Relaxed));
        }
    }
}
