use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use super::{Details, Heartbeat, Progress, set_details};

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn print(line: &str) {
    LINES.lock().expect("no panic").push(line.to_owned());
}

fn lines() -> Vec<String> {
    LINES.lock().expect("no panic").clone()
}

/// One test, as a process reports one piece of work at a time.
#[test]
fn long_work_is_reported_at_intervals_and_at_its_end() {
    let short = Duration::from_millis(10);
    let quick = Progress::begin_with("quick".to_owned(), Duration::from_mins(10), short, print);
    drop(Progress::begin_with("within".to_owned(), Duration::ZERO, short, print));
    drop(quick);
    assert_eq!(lines(), [""; 0]);

    let long = Progress::begin_with("first step".to_owned(), short, short, print);
    let begin = Instant::now();
    while lines().len() < 2 && begin.elapsed() < Duration::from_mins(1) {
        thread::sleep(short);
    }
    set_details(|| Some(Details { counts: "7 kernels".to_owned(), outcome: "kept".to_owned() }));
    drop(long);
    let lines = lines();
    assert!(lines.len() > 2 && lines[0].starts_with("first step: ") && lines[0].ends_with(" s so far"), "{lines:?}");
    assert!(lines.last().is_some_and(|line| line.ends_with(" s, 7 kernels; kept")), "{lines:?}");
}

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
        assert!(begin.elapsed() < Duration::from_mins(1), "no report");
        heartbeat.at(step);
        thread::sleep(quiet / 10);
    }
    drop(heartbeat);
    // Earlier reports may be left in the channel.
    while reports.try_recv().is_ok() {}
    assert!(reports.recv().is_err());
}
