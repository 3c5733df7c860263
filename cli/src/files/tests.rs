use std::fs;
use std::path::Path;

use super::{Change, commit_all, write_all};
use crate::error::Error;

fn change(folder: &Path, name: &str, before: Option<&str>, after: &str) -> Change {
    let path = folder.join(name);
    if let Some(before) = before {
        fs::write(&path, before).expect("a file can be written");
    }
    Change { path, name: name.to_owned(), before: before.map(str::to_owned), after: after.to_owned() }
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder can be read");
    let mut names: Vec<_> = entries.map(|entry| entry.expect("an entry").file_name()).collect();
    names.sort();
    names.into_iter().map(|name| name.into_string().expect("UTF-8")).collect()
}

#[test]
fn when_a_rename_fails_earlier_files_are_restored() {
    let folder = tempfile::tempdir().expect("a folder");
    let changes = [
        change(folder.path(), "old", Some("was\n"), "is\n"),
        change(folder.path(), "new", None, "is\n"),
        change(folder.path(), "blocked", None, "is\n"),
    ];
    let draft = |change| (super::draft(&Change::clone(change).path, &change.after).expect("a draft"), change);
    let drafts = changes.iter().map(draft).collect();
    // Between draft and rename somebody makes a folder of that name.
    fs::create_dir_all(changes[2].path.join("full")).expect("a folder can be made");
    let error = commit_all(drafts).expect_err("the name is taken");
    assert!(matches!(error, Error::Write { .. }), "{error}");
    assert_eq!(fs::read_to_string(&changes[0].path).expect("it is there"), "was\n");
    assert_eq!(names(folder.path()), ["blocked", "old"]);
}

#[test]
fn a_file_that_changed_meanwhile_stops_all() {
    let folder = tempfile::tempdir().expect("a folder");
    let changes =
        [change(folder.path(), "first", Some("was\n"), "is\n"), change(folder.path(), "second", Some("was\n"), "is\n")];
    fs::write(&changes[1].path, "other\n").expect("a file can be written");
    assert!(matches!(write_all(&changes), Err(Error::Changed { .. })));
    assert_eq!(fs::read_to_string(&changes[0].path).expect("it is there"), "was\n");
    assert_eq!(names(folder.path()), ["first", "second"]);
}

/// Two commands with the same view of a file: only one of them writes the file.
#[cfg(unix)]
#[test]
fn of_two_writers_at_once_one_is_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    for round in 0..100 {
        let name = format!("file{round}");
        let [one, other] = ["one\n", "other\n"].map(|after| [change(folder.path(), &name, Some("was\n"), after)]);
        let barrier = std::sync::Barrier::new(2);
        let write = |changes: &[Change]| {
            barrier.wait();
            write_all(changes)
        };
        let (first, second) = std::thread::scope(|scope| {
            let first = scope.spawn(|| write(&one));
            let second = write(&other);
            (first.join().expect("no panic"), second)
        });
        let written = fs::read_to_string(&one[0].path).expect("it is there");
        match (first, second) {
            (Ok(()), Err(Error::Changed { .. })) => assert_eq!(written, "one\n"),
            (Err(Error::Changed { .. }), Ok(())) => assert_eq!(written, "other\n"),
            both => panic!("round {round}: {both:?}"),
        }
    }
}
