//! Saying that something goes on, and what, where nothing else was said for a while.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Step;

/// Says so now and then until it is dropped.
pub(super) struct Patience {
    events: Option<Sender<Event>>,
    thread: Option<JoinHandle<()>>,
}

/// What is told of the work.
enum Event {
    /// Something else was said of it.
    Said,
    /// It is at this from now on.
    At(Step),
}

impl Patience {
    /// Calls `say` whenever nothing was said for so long, with the time since something was and what is being done.
    pub(super) fn begin(quiet: Duration, say: impl Fn(Duration, Option<Step>) + Send + 'static) -> Self {
        let (events, heard) = channel();
        let thread = thread::Builder::new().name("patience".to_owned()).spawn(move || wait(quiet, &heard, say));
        Self { events: Some(events), thread: thread.ok() }
    }

    /// Something else was said.
    pub(super) fn said(&self) {
        self.tell(Event::Said);
    }

    /// A step is measured from now on.
    pub(super) fn at(&self, step: Step) {
        self.tell(Event::At(step));
    }

    fn tell(&self, event: Event) {
        if let Some(events) = &self.events {
            // Nobody hears it where no thread could be had: then nothing is said of waiting, either.
            events.send(event).ok();
        }
    }
}

fn wait(quiet: Duration, heard: &Receiver<Event>, say: impl Fn(Duration, Option<Step>)) {
    let (mut since, mut step) = (Instant::now(), None);
    let mut due = since + quiet;
    loop {
        match heard.recv_timeout(due.saturating_duration_since(Instant::now())) {
            Ok(Event::At(next)) => step = Some(next),
            Ok(Event::Said) => {
                since = Instant::now();
                due = since + quiet;
            }
            Err(RecvTimeoutError::Timeout) => {
                say(since.elapsed(), step);
                due = Instant::now() + quiet;
            }
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        drop(self.events.take());
        if let Some(thread) = self.thread.take() {
            thread.join().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;
    use std::time::{Duration, Instant};

    use super::{Patience, Step};

    #[test]
    fn it_is_told_how_long_nothing_was_said_and_nothing_once_it_is_over() {
        let (sender, told) = channel();
        let quiet = Duration::from_millis(20);
        let patience = Patience::begin(quiet, move |since, at| sender.send((since, at)).expect("the test listens"));
        let [(first, nothing), (second, _)] = [told.recv().unwrap(), told.recv().unwrap()];
        assert!(first >= quiet && second >= first + quiet && nothing.is_none(), "{first:?}, {second:?}, {nothing:?}");
        // What is said begins it anew: sooner or later less is told than before.
        let mut before = second;
        loop {
            patience.said();
            let (since, _) = told.recv().expect("it goes on");
            assert!(since >= quiet, "{since:?}");
            if since < before {
                break;
            }
            before = since;
        }
        // What is being measured is told, too, and does not put it off however often it changes.
        let step = Step::single(64, true);
        let begin = Instant::now();
        while told.try_recv().map_or(true, |(_, at)| at != Some(step)) {
            assert!(begin.elapsed() < 500 * quiet, "it is put off");
            patience.at(step);
        }
        drop(patience);
        // What was told before it ended may be left; then nobody tells anything.
        while told.try_recv().is_ok() {}
        assert!(told.recv().is_err());
    }
}
