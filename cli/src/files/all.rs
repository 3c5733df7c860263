//! Writes several files, all or none.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use gpu_tuned_core::atomic_file::Draft;
use gpu_tuned_core::regular_file::{LARGEST, read_text};

use super::Change;
use crate::error::Error;

/// Writes drafts of all files, then renames them. When a rename fails, earlier files are restored.
pub(crate) fn write_all(changes: &[Change]) -> Result<(), Error> {
    let mut drafts = Vec::new();
    for change in changes {
        check_unchanged(change)?;
        let draft = draft(&change.path, &change.after);
        drafts.push((draft.map_err(|source| Error::Write { path: change.path.clone(), source })?, change));
    }
    commit_all(drafts)
}

fn commit_all(drafts: Vec<(Draft, &Change)>) -> Result<(), Error> {
    let mut done: Vec<(PathBuf, &Change)> = Vec::new();
    for (draft, change) in drafts {
        let path = draft.destination().to_owned();
        if let Err(error) = draft.commit() {
            return Err(restore(&done, path, error));
        }
        done.push((path, change));
    }
    Ok(())
}

/// Refuses a file whose text is no longer the one that was edited.
fn check_unchanged(change: &Change) -> Result<(), Error> {
    let now = match read_text(&change.path, LARGEST) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        Err(source) => return Err(Error::Read { path: change.path.clone(), source }),
    };
    if now == change.before { Ok(()) } else { Err(Error::Changed { path: change.path.clone() }) }
}

fn draft(path: &Path, text: &str) -> io::Result<Draft> {
    let mut draft = Draft::new(path)?;
    draft.file().write_all(text.as_bytes())?;
    Ok(draft)
}

/// Restores the files that were renamed, and returns the error.
fn restore(done: &[(PathBuf, &Change)], path: PathBuf, source: io::Error) -> Error {
    let is_lost = |(path, change): &&(PathBuf, &Change)| match &change.before {
        Some(before) => draft(path, before).and_then(Draft::commit).is_err(),
        None => fs::remove_file(path).is_err(),
    };
    let left: Vec<_> = done.iter().filter(is_lost).map(|(path, _)| path.clone()).collect();
    if left.is_empty() { Error::Write { path, source } } else { Error::HalfWritten { path, source, left } }
}

#[cfg(test)]
mod tests {
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
        let changes = [
            change(folder.path(), "first", Some("was\n"), "is\n"),
            change(folder.path(), "second", Some("was\n"), "is\n"),
        ];
        fs::write(&changes[1].path, "other\n").expect("a file can be written");
        assert!(matches!(write_all(&changes), Err(Error::Changed { .. })));
        assert_eq!(fs::read_to_string(&changes[0].path).expect("it is there"), "was\n");
        assert_eq!(names(folder.path()), ["first", "second"]);
    }
}
