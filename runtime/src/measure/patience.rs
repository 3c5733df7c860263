//! Saying that something goes on, where nothing else was said for a while.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Says so now and then until it is dropped.
pub(super) struct Patience {
    /// A message for everything else that was said.
    said: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Patience {
    /// Calls `say` whenever nothing was said for so long, with the time since something was.
    pub(super) fn begin(quiet: Duration, say: impl Fn(Duration) + Send + 'static) -> Self {
        let (said, heard) = channel();
        let thread = thread::Builder::new().name("patience".to_owned()).spawn(move || wait(quiet, &heard, say));
        Self { said: Some(said), thread: thread.ok() }
    }

    /// Something else was said.
    pub(super) fn said(&self) {
        if let Some(said) = &self.said {
            // Nobody hears it where no thread could be had: then nothing is said of waiting, either.
            said.send(()).ok();
        }
    }
}

fn wait(quiet: Duration, heard: &Receiver<()>, say: impl Fn(Duration)) {
    let mut since = Instant::now();
    loop {
        match heard.recv_timeout(quiet) {
            Ok(()) => since = Instant::now(),
            Err(RecvTimeoutError::Timeout) => say(since.elapsed()),
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        drop(self.said.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::Duration;

    use super::Patience;

    #[test]
    fn it_is_told_how_long_nothing_was_said_and_nothing_once_it_is_over() {
        let (sender, told) = channel();
        let quiet = Duration::from_millis(20);
        let patience = Patience::begin(quiet, move |since| sender.send(since).expect("the test listens"));
        let [first, second] = [told.recv().unwrap(), told.recv().unwrap()];
        assert!(first >= quiet && second >= first + quiet, "{first:?}, {second:?}");
        // What is said begins it anew: sooner or later less is told than before.
        let mut before = second;
        loop {
            patience.said();
            let since = told.recv().expect("it goes on");
            assert!(since >= quiet, "{since:?}");
            if since < before {
                break;
            }
            before = since;
        }
        drop(patience);
        // What was told before it ended may be left; then nobody tells anything.
        while told.try_recv().is_ok() {}
        assert!(told.recv().is_err());
    }
}
