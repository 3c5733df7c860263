//! Lines for users, with or without a log.

use std::io::{Write, stderr};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread;
use std::time::Duration;

use tracing::Level;

/// Writes a warning to the log, or to standard error where the log has warnings switched off.
pub fn warn_user(text: &str) {
    tracing::warn!("{text}");
    if !tracing::enabled!(Level::WARN) {
        print(text);
    }
}

/// Does `work` on this thread, and calls `warn` on another if the work has not ended after `patience`.
pub fn warn_if_slow<T>(patience: Duration, warn: impl FnOnce() + Send, work: impl FnOnce() -> T) -> T {
    thread::scope(|scope| {
        let (working, ended) = channel::<()>();
        let watch = move || {
            if ended.recv_timeout(patience) == Err(RecvTimeoutError::Timeout) {
                warn();
            }
        };
        // Without a thread there is no warning.
        drop(thread::Builder::new().name("gpu-tuned-patience".to_owned()).spawn_scoped(scope, watch));
        let result = work();
        drop(working);
        result
    })
}

/// Writes a message to the log, or to standard error where the log has no messages of this level.
pub fn inform_user(text: &str) {
    tracing::info!("{text}");
    if !tracing::enabled!(Level::INFO) {
        print(text);
    }
}

/// Prints a line while a redrawn line is off the terminal.
pub type Around = dyn Fn(&mut dyn FnMut()) + Send + Sync;

static AROUND: Mutex<Option<Weak<Around>>> = Mutex::new(None);

/// Prints lines through `around` from now on, while somebody holds it.
pub fn set_around(around: &Arc<Around>) {
    *AROUND.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::downgrade(around));
}

/// Writes a line to standard error, whatever the log.
pub fn print(text: &str) {
    // A closed standard error must not end training.
    let mut write = || drop(writeln!(stderr(), "gpu-tuned: {text}"));
    let around = AROUND.lock().unwrap_or_else(PoisonError::into_inner).as_ref().and_then(Weak::upgrade);
    match around {
        Some(around) => around(&mut write),
        None => write(),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::warn_if_slow;

    #[test]
    fn work_that_hangs_is_reported_while_it_hangs() {
        let (warned, warning) = channel();
        let warn = || warned.send(()).expect("somebody waits");
        // The work ends only after the warning.
        let result = warn_if_slow(Duration::from_millis(1), warn, || warning.recv_timeout(Duration::from_mins(1)));
        assert_eq!(result, Ok(()));
    }

    #[test]
    fn quick_work_is_not_reported_and_not_delayed() {
        let begin = std::time::Instant::now();
        assert_eq!(warn_if_slow(Duration::from_mins(1), || panic!("it was quick"), || 7), 7);
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
