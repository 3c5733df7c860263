//! Reports at intervals during silence.

use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// Reports progress during silence, until dropped. `T` is the current step.
pub struct Heartbeat<T> {
    /// Sends the step that begins, or `None` after other output.
    events: Option<Sender<Option<T>>>,
    thread: Option<JoinHandle<()>>,
}

impl<T: Copy + Send + 'static> Heartbeat<T> {
    /// Calls `report` after a first silence, and after each `interval` of silence from then on, with the time since the last
    /// output and the current step.
    pub fn begin(
        first: Duration,
        interval: Duration,
        report: impl FnMut(Duration, Option<T>) + Send + 'static,
    ) -> Self {
        let (events, received) = channel();
        let report = move || run(first, interval, &received, report);
        let thread = thread::Builder::new().name("heartbeat".to_owned()).spawn(report);
        Self { events: Some(events), thread: thread.ok() }
    }

    /// Restarts the silence after other output.
    pub fn output(&self) {
        self.send(None);
    }

    /// Sets the current step.
    pub fn at(&self, step: T) {
        self.send(Some(step));
    }

    fn send(&self, event: Option<T>) {
        if let Some(events) = &self.events {
            // Without a thread there are no reports.
            events.send(event).ok();
        }
    }
}

fn run<T: Copy>(
    first: Duration,
    interval: Duration,
    received: &Receiver<Option<T>>,
    mut report: impl FnMut(Duration, Option<T>),
) {
    let (mut since, mut step) = (Instant::now(), None);
    let mut due = since + first;
    loop {
        // Events that wait in the channel do not delay a report.
        let now = Instant::now();
        if now >= due {
            report(now - since, step);
            due = now + interval;
        }
        match received.recv_timeout(due.saturating_duration_since(now)) {
            Ok(next @ Some(_)) => step = next,
            Ok(None) => {
                since = Instant::now();
                due = since + first;
            }
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

impl<T> Drop for Heartbeat<T> {
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

    use super::Heartbeat;

    #[test]
    fn silence_is_reported_until_the_heartbeat_is_dropped() {
        let (sender, reports) = channel();
        let quiet = Duration::from_millis(20);
        let heartbeat =
            Heartbeat::begin(quiet, quiet, move |since, at| sender.send((since, at)).expect("the test listens"));
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
        let step = 64;
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
