//! Progress reports during silence.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Step;

/// Reports progress after each interval without output, until dropped.
pub(super) struct Heartbeat {
    /// Sends the step that begins, or `None` after other output.
    events: Option<Sender<Option<Step>>>,
    thread: Option<JoinHandle<()>>,
}

impl Heartbeat {
    /// Calls `report` after each `interval` without output, with the time since the last output and the current step.
    pub(super) fn begin(interval: Duration, report: impl Fn(Duration, Option<Step>) + Send + 'static) -> Self {
        let (events, received) = channel();
        let thread =
            thread::Builder::new().name("heartbeat".to_owned()).spawn(move || run(interval, &received, report));
        Self { events: Some(events), thread: thread.ok() }
    }

    /// Restarts the interval after other output.
    pub(super) fn output(&self) {
        self.send(None);
    }

    /// Sets the current step.
    pub(super) fn at(&self, step: Step) {
        self.send(Some(step));
    }

    fn send(&self, event: Option<Step>) {
        if let Some(events) = &self.events {
            // Without a thread there are no reports.
            events.send(event).ok();
        }
    }
}

fn run(interval: Duration, received: &Receiver<Option<Step>>, report: impl Fn(Duration, Option<Step>)) {
    let (mut since, mut step) = (Instant::now(), None);
    let mut due = since + interval;
    loop {
        // Events that wait in the channel do not delay a report.
        let now = Instant::now();
        if now >= due {
            report(now - since, step);
            due = now + interval;
        }
        match received.recv_timeout(due - now) {
            Ok(next @ Some(_)) => step = next,
            Ok(None) => {
                since = Instant::now();
                due = since + interval;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl Drop for Heartbeat {
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
    use std::thread;
    use std::time::{Duration, Instant};

    use super::{Heartbeat, Step};

    #[test]
    fn silence_is_reported_until_the_heartbeat_is_dropped() {
        let (sender, reports) = channel();
        let quiet = Duration::from_millis(20);
        let heartbeat = Heartbeat::begin(quiet, move |since, at| sender.send((since, at)).expect("the test listens"));
        let [(first, nothing), (second, _)] = [reports.recv().unwrap(), reports.recv().unwrap()];
        assert!(first >= quiet && second >= first + quiet && nothing.is_none(), "{first:?}, {second:?}, {nothing:?}");
        // Output restarts the interval: sooner or later a report has a shorter time.
        let mut before = second;
        loop {
            heartbeat.output();
            let (since, _) = reports.recv().expect("a report");
            assert!(since >= quiet, "{since:?}");
            if since < before {
                break;
            }
            before = since;
        }
        // Reports have the current step, whose changes do not restart the interval.
        let step = Step::single(64, true);
        let begin = Instant::now();
        while reports.try_recv().map_or(true, |(_, at)| at != Some(step)) {
            assert!(begin.elapsed() < Duration::from_secs(60), "no report");
            heartbeat.at(step);
            thread::sleep(quiet / 10);
        }
        drop(heartbeat);
        // Earlier reports may be left in the channel.
        while reports.try_recv().is_ok() {}
        assert!(reports.recv().is_err());
    }
}
