//! `gpu-tuned.lock` under writers that meet, are killed, or find a file that is none.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned::Bytes;
use gpu_tuned::lock::{Lock, LockError, LockFile, LockedWorkload};
use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::measured::{Measured, MeasuredBatch, MeasuredMode, MeasuredOn, MeasurementMethod};
use tempfile::{TempDir, tempdir};

/// A workload that was measured `round` times.
fn measured(round: u64) -> LockedWorkload {
    let point =
        MeasuredBatch { reserved_bytes: Some(Bytes(1 << 30)), micro_step_ms: Some(12.5), ..MeasuredBatch::default() };
    let mode = MeasuredMode {
        method: MeasurementMethod::Executed,
        is_partial: false,
        batch: [(64, point), (1024, point)].into(),
    };
    let on = MeasuredOn {
        device: "NVIDIA H200".to_owned(),
        kind: DeviceKind::Gpu,
        memory_bytes: Bytes(150_754_820_096),
        sm_count: 132,
        fp32_tflops: None,
        bandwidth_gb_s: None,
        driver: Some("580.95.05".to_owned()),
        burn: "0.22.1".to_owned(),
        cubecl: Some("0.11.3".to_owned()),
        context_bytes: None,
        kernels_bytes: None,
        mode: [("f32".parse().expect("a mode"), mode)].into(),
    };
    let on = [("h200".to_owned(), on)].into();
    let measured = Measured { parameters: round, shape: "5e1f".to_owned(), host_ms_per_sample: None, on };
    LockedWorkload { described: None, goal: None, measured }
}

fn file(folder: &TempDir) -> LockFile {
    LockFile::new(folder.path().join(Lock::NAME))
}

fn read(file: &LockFile) -> Lock {
    match file.read() {
        Ok(lock) => lock.expect("it was written"),
        Err(error) => panic!("{error}"),
    }
}

fn round(lock: &Lock, name: &str) -> u64 {
    lock.workload.get(name).map_or(0, |entry| entry.measured.parameters)
}

fn names(folder: &TempDir) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder.path()).expect("a directory");
    let mut names: Vec<_> = entries.map(|entry| PathBuf::from(entry.expect("a name").file_name())).collect();
    names.sort();
    names
}

/// Task of a child process: the file, the workload, and the number of rounds.
const WRITES: [&str; 3] = ["LOCK_TEST_FILE", "LOCK_TEST_NAME", "LOCK_TEST_TIMES"];

fn child(path: &Path, name: &str, times: u64) -> Child {
    own_process::command(writes_when_a_test_asks_for_it)
        .env(WRITES[0], path)
        .env(WRITES[1], name)
        .env(WRITES[2], times.to_string())
        .stdout(Stdio::null())
        .spawn()
        .expect("this program starts")
}

#[test]
#[ignore = "the body of child processes"]
fn writes_when_a_test_asks_for_it() {
    let [Ok(path), Ok(name), Ok(times)] = WRITES.map(std::env::var) else { return };
    write(&LockFile::new(path), &name, times.parse().expect("a number"));
}

/// Measures a workload anew many times, and sees to it that nobody takes back what was written.
fn write(file: &LockFile, name: &str, times: u64) {
    let before = file.read().expect("it is whole").map_or(0, |lock| round(&lock, name));
    for now in before + 1..=before.saturating_add(times) {
        file.update(name, &measured(now)).expect("it can be written");
        assert_eq!(round(&read(file), name), now);
    }
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let folder = tempdir().expect("a directory");
    let file = &file(&folder);
    let mut processes = ["a", "b"].map(|name| child(file.path(), name, 50));
    thread::scope(|scope| {
        for name in ["c", "d"] {
            scope.spawn(move || write(file, name, 50));
        }
    });
    for process in &mut processes {
        assert!(process.wait().expect("it ran").success());
    }
    let lock = read(file);
    assert_eq!(["a", "b", "c", "d"].map(|name| round(&lock, name)), [50; 4]);
    #[cfg(unix)]
    assert_eq!(names(&folder), [Path::new(Lock::NAME)]);
}

#[test]
fn a_killed_writer_leaves_a_whole_file() {
    let folder = tempdir().expect("a directory");
    let file = file(&folder);
    for name in 0..10 {
        file.update(&format!("other-{name}"), &measured(1)).expect("it can be written");
    }
    let mut rounds = 0;
    for kill in 0..200 {
        let mut process = child(file.path(), "killed", u64::MAX);
        // Until the first write, and then any part of a write longer.
        let begins = Instant::now();
        while round(&read(&file), "killed") == rounds {
            assert!(begins.elapsed() < Duration::from_mins(1), "nothing is written");
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_micros(kill * 1_618 % 12_000));
        process.kill().expect("it writes for ever");
        process.wait().expect("it was killed");

        let lock = read(&file);
        let others = (0..10).all(|name| round(&lock, &format!("other-{name}")) == 1);
        let now = round(&lock, "killed");
        assert!(others && now >= rounds, "{lock:?}");
        rounds = now;
    }
    assert!(rounds >= 200, "{rounds} writes: not much was killed");
    file.update("killed", &measured(0)).expect("nobody holds it");
    #[cfg(unix)]
    assert_eq!(names(&folder), [Path::new(Lock::NAME)], "what was left behind is swept up");
}

#[test]
fn a_file_with_mistakes_is_left_as_it_is() {
    let folder = tempdir().expect("a directory");
    let file = file(&folder);
    file.update("digits", &measured(1)).expect("it can be written");
    let whole = fs::read(file.path()).expect("it was written");
    for end in 0..whole.len() - 1 {
        fs::write(file.path(), &whole[..end]).expect("it can be written");
        assert!(file.read().is_err(), "{end}");
        let error = file.update("digits", &measured(2)).expect_err("it cannot be read either");
        assert!(matches!(error, LockError::Damaged { .. }), "{error}");
        assert_eq!(fs::read(file.path()).expect("it is there"), whole[..end]);
    }
}

#[test]
fn a_mistake_is_shown_with_its_line_and_what_to_do() {
    let folder = tempdir().expect("a directory");
    let file = file(&folder);
    file.update("digits", &measured(1)).expect("it can be written");
    let text = fs::read_to_string(file.path()).expect("it was written");
    let remedy = "mend that, put back the file that was committed, or delete it and run `cargo gpu-tuned measure`";
    for (right, wrong, expected) in [
        (
            "method = \"executed\"",
            "method = \"low\"",
            format!(
                ":19:10: workload.digits.on.h200.mode.f32.method: expected one of executed, dry-run, simulated; {remedy}\n   19 | method = \"low\""
            ),
        ),
        ("= 132\n", "= 132\n<<<<<<< HEAD\n", ":17:1: a merge left both sides here: keep either side whole".to_owned()),
        ("format = 2", "format = 3", ":3:10: format 3 was written by a newer release".to_owned()),
    ] {
        fs::write(file.path(), text.replace(right, wrong)).expect("it can be written");
        for message in [
            file.read().expect_err("a mistake").to_string(),
            file.update("digits", &measured(1)).expect_err("a mistake").to_string(),
        ] {
            let expected = format!("{}{expected}", file.path().display());
            assert!(message.starts_with(&expected), "{message}");
        }
    }
    fs::write(file.path(), b"format = 2\n# \xff\n").expect("it can be written");
    let message = file.read().expect_err("no text").to_string();
    assert!(message.starts_with(&format!("{}:2:3: this is no UTF-8; put back", file.path().display())), "{message}");
}

#[test]
fn figures_that_cannot_be_are_not_written() {
    let folder = tempdir().expect("a directory");
    let file = file(&folder);
    let mut entry = measured(1);
    entry.measured.host_ms_per_sample = Some(f64::NAN);
    let message = file.update("digits", &entry).expect_err("a time is a number").to_string();
    let expected = "host_ms_per_sample: expected milliseconds from 1e-6 to 1e9; measure again";
    assert!(message.contains(expected), "{message}");
    assert!(names(&folder).is_empty());
}

#[test]
fn what_is_there_already_is_not_written_again() {
    let folder = tempdir().expect("a directory");
    let file = file(&folder);
    assert_eq!(file.read().expect("nothing is wrong"), None);
    assert!(file.update("digits", &measured(1)).expect("it can be written").is_changed);
    let old = fs::File::open(file.path()).expect("it was written");
    old.set_modified(std::time::UNIX_EPOCH).expect("it is ours");
    let update = file.update("digits", &measured(1)).expect("it can be read");
    assert!(!update.is_changed && update.dropped.is_empty());
    let modified = fs::metadata(file.path()).and_then(|metadata| metadata.modified()).expect("it is there");
    assert_eq!(modified, std::time::UNIX_EPOCH);
    assert_eq!(file.update("digits", &measured(2)).expect("it can be written").dropped, [""; 0]);
}

#[cfg(unix)]
#[test]
fn links_and_permissions_stay() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let folder = tempdir().expect("a directory");
    let (real, link) = (folder.path().join("real.lock"), folder.path().join(Lock::NAME));
    LockFile::new(&real).update("digits", &measured(1)).expect("it can be written");
    fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).expect("it is ours");
    symlink("real.lock", &link).expect("links are made");
    LockFile::new(&link).update("lm", &measured(1)).expect("it can be written");
    assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
    assert_eq!(fs::metadata(&real).expect("it is there").permissions().mode() & 0o777, 0o640);
    assert_eq!(read(&LockFile::new(&real)).workload.len(), 2);
}

#[cfg(unix)]
#[test]
fn a_folder_that_takes_no_file_is_an_error_that_names_the_lock() {
    let folder = tempdir().expect("a directory");
    let file = LockFile::new(folder.path().join("not/there").join(Lock::NAME));
    let error = file.update("digits", &measured(1)).expect_err("there is no directory");
    assert!(matches!(&error, LockError::Write { path, .. } if path == file.path()), "{error}");
    assert_eq!(file.read().expect("no file is no error"), None);
}
