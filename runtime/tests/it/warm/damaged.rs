//! Kernel caches that cannot be used as they are.

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::thread;

use cubecl_environment::bytes::Bytes;
use cubecl_environment::persistence::{Origin, open};
use serde_json::{Value, json};

use super::{KERNELS, Machine};

/// Puts as many kernels into the cache as make the engine write its log into the database.
pub(super) fn put_many() {
    let kernel = |number: u16| [number.to_le_bytes().as_slice(), &[7; 8000]].concat();
    let entries = (0..1000_u16)
        .map(|number| (Bytes::from_bytes_vec(number.to_le_bytes().to_vec()), Bytes::from_bytes_vec(kernel(number))));
    for batch in entries.collect::<Vec<_>>().chunks(100) {
        open(KERNELS).insert_many(&mut batch.iter().cloned(), Origin::Local);
    }
}

/// Keeps the database's write lock until this process is ended.
pub(super) fn hold() -> ! {
    let mut entries = std::iter::once_with(|| {
        println!("\nheld");
        loop {
            thread::park();
        }
    });
    open("held").insert_many(&mut entries, Origin::Local);
    unreachable!("it is held for ever")
}

/// Filled cache of a machine, and its path.
fn filled(machine: &Machine) -> PathBuf {
    let filled = machine.run("fill-many", &[]);
    let path = PathBuf::from(filled["warm"]["path"].as_str().expect("a path"));
    assert!(path.metadata().expect("a file").len() > 4 << 20, "the log is in the database");
    path
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    PathBuf::from(format!("{}{suffix}", path.display()))
}

fn truncate(path: &Path, share: f64) {
    let file = OpenOptions::new().write(true).open(path).expect("a file");
    let bytes = file.metadata().expect("a length").len();
    file.set_len((bytes as f64 * share) as u64).expect("it is cut");
}

/// Fills a part of the file, in thousandths of its length.
fn overwrite(path: &Path, part: std::ops::Range<usize>, value: u8) {
    let mut bytes = fs::read(path).expect("a file");
    let thousandth = bytes.len() / 1000;
    bytes[part.start * thousandth..part.end * thousandth].fill(value);
    fs::write(path, bytes).expect("it is written");
}

fn without_log(path: &Path) {
    fs::remove_file(beside(path, "-wal")).expect("a log");
    fs::remove_file(beside(path, "-tshm")).expect("shared memory");
}

/// Changes the database of a path.
type Damage = fn(&Path);

#[test]
fn a_damaged_cache_is_replaced_once() {
    let damages: [(&str, Damage, &str); 7] = [
        ("cut", |path| truncate(path, 2.0 / 3.0), "set_aside"),
        ("cut, without its log", |path| (truncate(path, 2.0 / 3.0), without_log(path)).1, "set_aside"),
        ("zeros", |path| (overwrite(path, 0..1000, 0), without_log(path)).1, "set_aside"),
        ("zeros at its end", |path| (overwrite(path, 600..1000, 0), without_log(path)).1, "set_aside"),
        ("garbage at its beginning", |path| (overwrite(path, 0..1, 171), without_log(path)).1, "set_aside"),
        ("emptied", |path| (truncate(path, 0.0), without_log(path)).1, "emptied"),
        (
            "emptied, with its shared memory",
            |path| {
                truncate(path, 0.0);
                truncate(&beside(path, "-wal"), 0.0);
            },
            "emptied",
        ),
    ];
    let whole = Machine::new();
    let source = filled(&whole);
    for (name, damage, event) in damages {
        let machine = Machine::new();
        let path = machine.0.path().join(source.strip_prefix(whole.0.path()).expect("it is in the folder"));
        fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
        for suffix in ["", "-wal", "-tshm"] {
            fs::copy(beside(&source, suffix), beside(&path, suffix)).expect("it is copied");
        }
        damage(&path);
        let first = machine.run("fill", &[]);
        assert_eq!((&first["warm"]["caches"], &first["tuned"]), (&json!("on"), &Value::Null), "{name}: {first:#}");
        assert_eq!(first["warm"]["events"][0]["event"], event, "{name}: {first:#}");
        assert_eq!(first["warm"]["events"].as_array().map(Vec::len), Some(1), "{name}: {first:#}");
        assert_eq!(beside(&path, ".damaged").exists(), event == "set_aside", "{name}");

        let second = machine.run("begin", &[]);
        assert_eq!(
            (&second["tuned"], &second["warm"]["events"]),
            (&json!("the third is fastest"), &json!([])),
            "{name}"
        );
    }
}

#[test]
fn users_are_warned_of_a_damaged_cache() {
    let machine = Machine::new();
    let path = filled(&machine);
    truncate(&path, 0.5);
    let output = own_process::run(&mut machine.command("begin", &[]));
    let warning = "gpu-tuned: the kernel cache was damaged (";
    let aside = format!(") and is now {}; this process compiles and tunes again", beside(&path, ".damaged").display());
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(errors.contains(warning) && errors.contains(&aside), "{errors}");
    // The next damaged one takes its place.
    fs::write(&path, "no database").expect("it is written");
    machine.run("begin", &[]);
    assert_eq!(fs::read_to_string(beside(&path, ".damaged")).expect("a file"), "no database");
}

#[test]
fn processes_that_start_at_once_replace_a_damaged_cache_once() {
    let machine = Machine::new();
    truncate(&filled(&machine), 0.4);
    let begun: Vec<_> = thread::scope(|scope| {
        let started: Vec<_> = (0..6).map(|_| scope.spawn(|| machine.run("fill", &[]))).collect();
        started.into_iter().map(|process| process.join().expect("it ends")).collect()
    });
    assert!(begun.iter().all(|begun| begun["warm"]["caches"] == "on"), "{begun:#?}");
    let events: Vec<_> = begun.iter().flat_map(|begun| begun["warm"]["events"].as_array().expect("events")).collect();
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(machine.run("begin", &[])["tuned"], "the third is fastest");
}

#[test]
fn a_cache_that_another_process_keeps_locked_is_not_used() {
    let machine = Machine::new();
    let path = filled(&machine);
    let mut holder = machine.command("hold", &[]).stdout(Stdio::piped()).spawn().expect("a process");
    let output = BufReader::new(holder.stdout.take().expect("its output"));
    assert!(output.lines().map_while(Result::ok).any(|line| line == "held"), "the lock is taken");
    let beside_it = machine.run("fill", &[]);
    holder.kill().expect("it is there");
    holder.wait().expect("it has ended");
    assert_eq!(beside_it["warm"]["caches"], "not_writable", "{beside_it:#}");
    let expected = format!(
        "nothing is kept in {}, because another process keeps it locked; this process compiles and tunes again",
        path.display()
    );
    assert_eq!(beside_it["said"], expected);
    // The holder's lock ends with it.
    let alone = machine.run("fill", &[]);
    assert_eq!((&alone["warm"]["caches"], &alone["warm"]["events"]), (&json!("on"), &json!([])), "{alone:#}");
    assert_eq!(machine.run("begin", &[])["tuned"], "the third is fastest");
}

#[test]
fn a_cache_that_cannot_be_written_keeps_nothing_and_stops_nothing() {
    let machine = Machine::new();
    // A file in the place of the folder.
    fs::write(machine.0.path().join("cache"), "").expect("it is written");
    let begun = machine.run("fill", &[]);
    assert_eq!(begun["warm"]["caches"], "not_writable", "{begun:#}");
    assert!(begun["warm"]["because"].as_str().is_some_and(|because| because.contains("os error")), "{begun:#}");

    // A folder in the place of the file.
    let machine = Machine::new();
    let path = filled(&machine);
    fs::remove_file(&path).expect("a file");
    fs::create_dir(&path).expect("a folder");
    let begun = machine.run("fill", &[]);
    assert_eq!(
        (&begun["warm"]["caches"], &begun["warm"]["is_read"]),
        (&json!("not_writable"), &json!(false)),
        "{begun:#}"
    );
    assert_eq!(fs::read_dir(&path).expect("a folder").count(), 0);
}

#[test]
fn a_read_only_cache_is_read() {
    let machine = Machine::new();
    let path = filled(&machine);
    let folder = path.parent().expect("a folder");
    let writable = |is_writable: bool| {
        for path in [folder, &path] {
            let mut permissions = path.metadata().expect("metadata").permissions();
            permissions.set_readonly(!is_writable);
            fs::set_permissions(path, permissions).expect("they are set");
        }
    };
    writable(false);
    // No permission restrains root.
    if OpenOptions::new().append(true).open(&path).is_err() {
        let read = machine.run("fill", &[]);
        assert_eq!(
            (&read["warm"]["caches"], &read["warm"]["is_read"]),
            (&json!("not_writable"), &json!(true)),
            "{read:#}"
        );
        assert_eq!(read["tuned"], "the third is fastest");
    }
    writable(true);
    assert_eq!(machine.run("begin", &[])["tuned"], "the third is fastest");
}

#[test]
fn a_cache_that_has_grown_is_begun_anew_with_its_log() {
    let machine = Machine::new();
    let path = filled(&machine);
    // A hole takes no space.
    File::options().write(true).open(&path).and_then(|file| file.set_len((2 << 30) + 1)).expect("it grows");
    let mut other = File::create(beside(&path, "-other.db")).expect("a file");
    other.write_all(b"another").expect("it is written");
    let begun = machine.run("fill", &[]);
    assert_eq!(begun["warm"]["events"], json!([{ "event": "outgrown", "bytes": (2_u64 << 30) + 1 }]), "{begun:#}");
    assert_eq!(begun["tuned"], Value::Null);
    assert!(path.metadata().expect("a file").len() < 1 << 30 && beside(&path, "-other.db").exists());
    assert_eq!(machine.run("begin", &[])["tuned"], "the third is fastest");
}
