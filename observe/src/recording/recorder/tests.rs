use super::{MAX_BUFFERED, Recorder, locked};
use crate::recording::read;

#[test]
fn the_buffer_is_bounded() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let recorder = Recorder::append(&path).unwrap();
    (0..2 * MAX_BUFFERED + 10).for_each(|_| recorder.value("one", 1.0));
    assert!(locked(&recorder.0.0.buffer).len() < MAX_BUFFERED);
    drop(recorder);
    assert_eq!(read(&path).unwrap().records.len(), 2 * MAX_BUFFERED + 10);
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_ends_the_recording_and_nothing_else() {
    let recorder = Recorder::append("/dev/full").unwrap();
    recorder.value("one", 1.0);
    recorder.flush();
    recorder.value("two", 2.0);
    assert!(locked(&recorder.0.0.sinks).file.is_none());
}
