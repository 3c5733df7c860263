//! Output of children, read through pipes.

use std::io::{self, Read, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::children::POLL;
use crate::output::note;

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

/// Output of a child.
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
