//! Files that are written whole or not at all.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Writes the file under a temporary name beside it (`.NAME.….tmp`), and renames it when it is on the disk. It has the
/// permissions of the file that it replaces.
pub(crate) fn replace(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    replace_with(path, |file| file.write_all(contents.as_ref()))
}

/// The same for a file that is written piece by piece.
pub(crate) fn replace_with<E: From<io::Error>>(
    path: &Path,
    write: impl FnOnce(&mut File) -> Result<(), E>,
) -> Result<(), E> {
    let directory = directory(path);
    let (prefix, suffix) = draft(path);
    // Made with `File` rather than by the crate, whose files nobody but their owner may read: what is written is shared.
    let mut file = tempfile::Builder::new()
        .prefix(&prefix)
        .suffix(suffix)
        .make_in(directory, |path| File::options().write(true).create_new(true).open(path))?;
    if let Ok(replaced) = fs::metadata(path) {
        // Not every file system knows permissions, and the contents are what matters.
        drop(file.as_file().set_permissions(replaced.permissions()));
    }
    write(file.as_file_mut())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    // Makes the new name last; not every system can open or sync a directory, and the file is complete either way.
    drop(File::open(directory).and_then(|directory| directory.sync_all()));
    Ok(())
}

/// Removes what writers left behind who were killed. None may be writing.
pub(crate) fn sweep(path: &Path) {
    let (prefix, suffix) = draft(path);
    let is_draft = |name: OsString| {
        let name = name.as_encoded_bytes();
        name.starts_with(prefix.as_encoded_bytes()) && name.ends_with(suffix.as_bytes())
    };
    let entries = fs::read_dir(directory(path)).into_iter().flatten().flatten();
    for draft in entries.filter(|entry| is_draft(entry.file_name())) {
        // What cannot be removed is in nobody's way.
        drop(fs::remove_file(draft.path()));
    }
}

fn draft(path: &Path) -> (OsString, &'static str) {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    (prefix, ".tmp")
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}
