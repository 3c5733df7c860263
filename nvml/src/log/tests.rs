use std::sync::mpsc::channel;
use std::time::Duration;

use super::warn_if_slow;

#[test]
fn work_that_hangs_is_reported_while_it_hangs() {
    let (warned, warning) = channel();
    let warn = || warned.send(()).expect("somebody waits");
    // The work ends only after the warning.
    let result = warn_if_slow(Duration::from_millis(1), warn, || warning.recv_timeout(Duration::from_secs(60)));
    assert_eq!(result, Ok(()));
}

#[test]
fn quick_work_is_not_reported_and_not_delayed() {
    let begin = std::time::Instant::now();
    assert_eq!(warn_if_slow(Duration::from_secs(60), || panic!("it was quick"), || 7), 7);
    assert!(begin.elapsed() < Duration::from_secs(30));
}
