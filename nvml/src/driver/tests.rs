use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::time::Duration;

use super::{Limited, candidates, within};

#[test]
fn the_callers_path_goes_before_the_variable_and_both_before_the_system() {
    let (path, variable) = (Path::new("/a/nvml.so"), OsStr::new("/b/nvml.so"));
    assert_eq!(candidates(Some(path), Some(variable)), [PathBuf::from(path)]);
    assert_eq!(candidates(None, Some(variable)), [PathBuf::from(variable)]);
    for unset in [None, Some(OsStr::new(""))] {
        let candidates = candidates(None, unset);
        assert!(candidates.len() > 1 && !candidates.contains(&PathBuf::new()), "{candidates:?}");
    }
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn results_and_the_handle_come_back() {
    let mut counter = Limited::new(0);
    let mut next = || counter.call(LONG, |count| std::mem::replace(count, *count + 1));
    assert_eq!([next(), next(), next()], [Some(0), Some(1), Some(2)]);
    assert_eq!(within(LONG, || 7), Some(7));
}

#[test]
fn a_call_that_hangs_is_left_and_its_result_taken_later() {
    let (go, gone) = channel::<()>();
    let mut handle = Limited::new("handle");
    assert_eq!(handle.call(Duration::from_millis(1), move |_| gone.recv().is_ok()), None);
    // The call in progress counts, not the new one.
    assert_eq!(handle.call(Duration::from_millis(1), |_| false), None);
    go.send(()).expect("it waits");
    assert_eq!(handle.call(LONG, |_| false), Some(true));
    assert_eq!(handle.call(LONG, |_| false), Some(false));
}

#[test]
fn a_panic_ends_the_handle() {
    let mut handle = Limited::new(());
    assert_eq!(handle.call(LONG, |()| panic!("the library is broken")), None::<()>);
    assert_eq!(handle.call(LONG, |()| ()), None);
}
