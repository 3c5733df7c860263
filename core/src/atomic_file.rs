//! Files that are written completely or not at all. The only I/O of this crate: every crate above it writes files so.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, fchown};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file beside its destination (`.NAME.….tmp`) that is renamed when it is complete. Without [`commit`](Self::commit) it is
/// removed.
#[derive(Debug)]
pub struct Draft {
    file: File,
    path: PathBuf,
    destination: PathBuf,
    is_renamed: bool,
}

impl Draft {
    /// Creates the draft of a file, with the permissions and, where allowed, the owner of the file that it replaces. Links are
    /// followed. Drafts that killed processes left behind are removed: see [`sweep`].
    ///
    /// # Errors
    ///
    /// A folder in which no file can be created, a read-only file, or a link to a file that is not there.
    pub fn new(path: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let destination = match fs::canonicalize(path) {
            Ok(destination) => destination,
            Err(_) if path.is_symlink() => {
                return Err(io::Error::new(ErrorKind::NotFound, "it is a link to a file that is not there"));
            }
            Err(_) => path.to_owned(),
        };
        let replaced = fs::metadata(&destination).ok();
        if replaced.as_ref().is_some_and(|there| there.permissions().readonly()) {
            return Err(io::Error::new(ErrorKind::PermissionDenied, "the file is read-only"));
        }
        let mut options = File::options();
        options.write(true).create_new(true);
        // Whoever may not read the file may not read its draft at any time.
        #[cfg(unix)]
        if let Some(replaced) = &replaced {
            options.mode(replaced.mode() & 0o777);
        }
        sweep(&destination);
        let (file, path) = loop {
            let mut name = prefix(&destination);
            name.push(format!("{}-{}{SUFFIX}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed)));
            let path = folder(&destination).join(name);
            match options.open(&path) {
                // Another process may sweep it before it is locked.
                Ok(file) if is_kept(&file, &path) => break (file, path),
                Ok(_) => {}
                // Left behind by a process with this number.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        };
        let draft = Self { file, path, destination, is_renamed: false };
        if let Some(replaced) = replaced {
            // Only root can give files away.
            #[cfg(unix)]
            drop(fchown(&draft.file, Some(replaced.uid()), Some(replaced.gid())));
            // Some file systems have no permissions.
            drop(draft.file.set_permissions(replaced.permissions()));
        }
        Ok(draft)
    }

    /// The file to write.
    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// The file that the draft becomes, behind links.
    pub fn destination(&self) -> &Path {
        &self.destination
    }

    /// Flushes the draft to the disk and renames it.
    ///
    /// # Errors
    ///
    /// The first error. The draft is removed.
    pub fn commit(mut self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &self.destination)?;
        self.is_renamed = true;
        // Some systems cannot sync a folder; the file is complete in any case.
        drop(File::open(folder(&self.destination)).and_then(|folder| folder.sync_all()));
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After the rename, the name may be that of another process's draft.
        if !self.is_renamed {
            drop(fs::remove_file(&self.path));
        }
    }
}

/// Writes a file completely or not at all: see [`replace_with`].
///
/// # Errors
///
/// The reason why the file cannot be written.
pub fn replace(path: &Path, contents: impl AsRef<[u8]>) -> io::Result<()> {
    replace_with(path, |file| file.write_all(contents.as_ref()))
}

/// Writes a file piece by piece, completely or not at all. Pipes and devices, such as `/dev/null`, are written directly.
///
/// # Errors
///
/// The writer's error, or the reason why the file cannot be written.
pub fn replace_with<E: From<io::Error>>(path: &Path, write: impl FnOnce(&mut File) -> Result<(), E>) -> Result<(), E> {
    let Some(mut draft) = draft(path)? else { return write(&mut File::options().write(true).open(path)?) };
    write(draft.file())?;
    Ok(draft.commit()?)
}

/// Returns an error if [`replace_with`] could not write a file now.
///
/// # Errors
///
/// The reason why the file cannot be written.
pub fn check(path: &Path) -> io::Result<()> {
    draft(path).map(drop)
}

/// The draft of a file; `None` for a pipe or a device.
fn draft(path: &Path) -> io::Result<Option<Draft>> {
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => Err(ErrorKind::IsADirectory.into()),
        Ok(there) if !there.is_file() => Ok(None),
        _ => Draft::new(path).map(Some),
    }
}

/// Removes drafts of a file that killed processes left behind. Writers lock their drafts, so drafts of living ones stay.
/// Nothing is removed where files have no locks, and on systems other than Unix.
pub fn sweep(path: &Path) {
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let prefix = prefix(path);
    let is_draft = |name: OsString| {
        let number = name.as_encoded_bytes().strip_prefix(prefix.as_encoded_bytes());
        let number = number.and_then(|rest| rest.strip_suffix(SUFFIX.as_bytes()));
        number.is_some_and(|number| number.iter().all(|byte| byte.is_ascii_digit() || *byte == b'-'))
    };
    let entries = fs::read_dir(folder(path)).into_iter().flatten().flatten();
    // Opening a pipe would wait, and a link may lead to a device.
    let is_file = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|it| it.is_file());
    for draft in entries.filter(|entry| cfg!(unix) && is_draft(entry.file_name()) && is_file(entry)) {
        // Locks of some network file systems need a file that is opened to write.
        let file = File::options().write(true).open(draft.path());
        let is_abandoned = file.as_ref().is_ok_and(|file| file.try_lock().is_ok());
        drop(is_abandoned.then(|| fs::remove_file(draft.path())));
    }
}

/// Locks a new draft until it is closed, where there are locks. Returns false if the draft was removed before.
fn is_kept(draft: &File, path: &Path) -> bool {
    !cfg!(unix) || draft.lock().is_err() || is_at(draft, path)
}

/// Returns false if the open file is no longer at this path, as far as the system identifies files.
#[cfg(unix)]
pub fn is_at(file: &File, path: &Path) -> bool {
    let id = |metadata: fs::Metadata| (metadata.dev(), metadata.ino());
    match (file.metadata().map(id), fs::metadata(path).map(id)) {
        (Ok(open), Ok(there)) => open == there,
        (_, there) => !there.is_err_and(|error| error.kind() == ErrorKind::NotFound),
    }
}

/// Returns true: other systems do not identify files.
#[cfg(not(unix))]
pub fn is_at(_: &File, _: &Path) -> bool {
    true
}

const SUFFIX: &str = ".tmp";

fn prefix(path: &Path) -> OsString {
    let mut prefix = OsString::from(".");
    prefix.push(path.file_name().unwrap_or_default());
    prefix.push(".");
    prefix
}

fn folder(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
