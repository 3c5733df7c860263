//! Writes all changes, or none.

use std::fs;
use std::io::{self, ErrorKind, Write as _};
use std::path::{Path, PathBuf};

use tempfile::{NamedTempFile, TempPath};

use super::change::Change;
use crate::error::Error;

/// Writes the files beside their places first, and renames them when all of them are there. When a rename fails, those
/// before it are taken back.
pub(crate) fn all(changes: &[Change]) -> Result<(), Error> {
    let mut staged = Vec::new();
    for change in changes {
        let path = target(change)?;
        let text = stage(&path, &change.after).map_err(|source| Error::Write { path: path.clone(), source })?;
        staged.push((path, text, change));
    }
    let mut done: Vec<(PathBuf, &Change)> = Vec::new();
    for (path, text, change) in staged {
        if let Err(error) = text.persist(&path) {
            return Err(taken_back(&done, path, error.error));
        }
        done.push((path, change));
    }
    Ok(())
}

/// Writes one file, whole or not at all.
pub(crate) fn replace(path: &Path, text: &str) -> Result<(), Error> {
    let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let written = stage(&path, text).and_then(|text| text.persist(&path).map_err(|error| error.error));
    written.map_err(|source| Error::Write { path, source })
}

/// Where the file is, behind links; it must be as it was when the change was made.
fn target(change: &Change) -> Result<PathBuf, Error> {
    let changed = || Error::Changed { path: change.path.clone() };
    match (&change.before, fs::read_to_string(&change.path)) {
        (None, Err(error)) if error.kind() == ErrorKind::NotFound => Ok(change.path.clone()),
        (None, Ok(_)) => Err(changed()),
        (Some(before), Ok(now)) if now != *before => Err(changed()),
        (Some(_), Err(error)) if error.kind() == ErrorKind::NotFound => Err(changed()),
        (_, Err(source)) => Err(Error::Read { path: change.path.clone(), source }),
        (Some(_), Ok(_)) => {
            fs::canonicalize(&change.path).map_err(|source| Error::Read { path: change.path.clone(), source })
        }
    }
}

fn stage(path: &Path, text: &str) -> io::Result<TempPath> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    // A temporary file is for its owner only; these are as files are that editors make.
    let mut file = new_file(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    if let Ok(old) = fs::metadata(path) {
        if old.permissions().readonly() {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "it is read-only"));
        }
        file.as_file().set_permissions(old.permissions())?;
    }
    Ok(file.into_temp_path())
}

/// A temporary file in a folder, with the permissions of any file that is made.
#[cfg(unix)]
pub(crate) fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    use std::os::unix::fs::PermissionsExt as _;
    tempfile::Builder::new().prefix(".gpu-tuned-").permissions(fs::Permissions::from_mode(0o666)).tempfile_in(folder)
}

/// A temporary file in a folder.
#[cfg(not(unix))]
pub(crate) fn new_file(folder: &Path) -> io::Result<NamedTempFile> {
    tempfile::Builder::new().prefix(".gpu-tuned-").tempfile_in(folder)
}

/// The error, after the files that were renamed are as they were.
fn taken_back(done: &[(PathBuf, &Change)], path: PathBuf, source: io::Error) -> Error {
    let restore = |(path, change): &&(PathBuf, &Change)| match &change.before {
        Some(before) => stage(path, before).and_then(|text| text.persist(path).map_err(|error| error.error)).is_err(),
        None => fs::remove_file(path).is_err(),
    };
    let left: Vec<_> = done.iter().filter(restore).map(|(path, _)| path.clone()).collect();
    if left.is_empty() { Error::Write { path, source } } else { Error::HalfWritten { path, source, left } }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::{Change, all};
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
    fn when_the_last_rename_fails_the_others_are_taken_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let changes = [
            change(folder.path(), "old", Some("was\n"), "is\n"),
            change(folder.path(), "new", None, "is\n"),
            change(folder.path(), "blocked", None, "is\n"),
        ];
        // Between the look and the rename somebody makes a folder of that name.
        let blocked = &changes[2].path;
        let staged = changes.iter().map(|change| (change.path.clone(), super::stage(&change.path, &change.after)));
        let staged: Vec<_> = staged.map(|(path, text)| (path, text.expect("it can be staged"))).collect();
        fs::create_dir_all(blocked.join("full")).expect("a folder can be made");
        let mut done = Vec::new();
        for ((path, text), change) in staged.into_iter().zip(&changes) {
            match text.persist(&path) {
                Ok(()) => done.push((path, change)),
                Err(error) => {
                    let error = super::taken_back(&done, path, error.error);
                    assert!(matches!(error, Error::Write { .. }), "{error}");
                }
            }
        }
        assert_eq!(done.len(), 2);
        assert_eq!(fs::read_to_string(&changes[0].path).expect("it is there"), "was\n");
        assert_eq!(names(folder.path()), ["blocked", "old"]);
    }

    #[test]
    fn a_file_that_was_changed_meanwhile_stops_all_of_them() {
        let folder = tempfile::tempdir().expect("a folder");
        let changes = [
            change(folder.path(), "first", Some("was\n"), "is\n"),
            change(folder.path(), "second", Some("was\n"), "is\n"),
        ];
        fs::write(&changes[1].path, "other\n").expect("a file can be written");
        assert!(matches!(all(&changes), Err(Error::Changed { .. })));
        assert_eq!(fs::read_to_string(&changes[0].path).expect("it is there"), "was\n");
        assert_eq!(names(folder.path()), ["first", "second"]);
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = tempfile::tempdir().expect("a folder");
        let mut changes = [change(folder.path(), "file", Some("was\n"), "is\n")];
        fs::set_permissions(&changes[0].path, fs::Permissions::from_mode(0o640)).expect("a mode can be set");
        let link = folder.path().join("link");
        symlink(&changes[0].path, &link).expect("a link can be made");
        let file = std::mem::replace(&mut changes[0].path, link.clone());
        all(&changes).expect("it can be written");
        assert!(fs::symlink_metadata(&link).expect("it is there").is_symlink());
        assert_eq!(fs::read_to_string(&file).expect("it is there"), "is\n");
        assert_eq!(fs::metadata(&file).expect("it is there").permissions().mode() & 0o777, 0o640);
    }
}
