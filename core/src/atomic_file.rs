//! Files that are written completely or not at all. The only I/O of this crate: every crate above it writes files so.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write as _};
#[cfg(unix)]
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

/// A file beside its destination (`.NAME.….tmp`) that is renamed when it is complete. Without [`commit`](Self::commit) it is
/// removed.
#[derive(Debug)]
pub struct Draft {
    file: File,
    path: PathBuf,
    destination: PathBuf,
}

impl Draft {
    /// Creates the draft of a file, with the permissions of the file that it replaces. Links are followed. Drafts that killed
    /// processes left behind are removed: see [`sweep`].
    ///
    /// # Errors
    ///
    /// A folder in which no file can be created, or a link to a file that is not there.
    pub fn new(path: &Path) -> io::Result<Self> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let destination = match fs::canonicalize(path) {
            Ok(destination) => destination,
            Err(_) if path.is_symlink() => {
                return Err(io::Error::new(ErrorKind::NotFound, "it is a link to a file that is not there"));
            }
            Err(_) => path.to_owned(),
        };
        let replaced = fs::metadata(&destination).ok().map(|there| there.permissions());
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
        let draft = Self { file, path, destination };
        if let Some(replaced) = replaced {
            // Some file systems have no permissions.
            drop(draft.file.set_permissions(replaced));
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
    pub fn commit(self) -> io::Result<()> {
        self.file.sync_all()?;
        fs::rename(&self.path, &self.destination)?;
        // Some systems cannot sync a folder; the file is complete in any case.
        drop(File::open(folder(&self.destination)).and_then(|folder| folder.sync_all()));
        Ok(())
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After the rename there is no such file.
        drop(fs::remove_file(&self.path));
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
    match fs::metadata(path) {
        Ok(there) if there.is_dir() => return Err(io::Error::from(ErrorKind::IsADirectory).into()),
        Ok(there) if !there.is_file() => return write(&mut File::options().write(true).open(path)?),
        _ => {}
    }
    let mut draft = Draft::new(path)?;
    write(draft.file())?;
    Ok(draft.commit()?)
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
    for draft in entries.filter(|entry| cfg!(unix) && is_draft(entry.file_name())) {
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
mod tests {
    use std::fs;
    use std::io::{self, Write as _};
    use std::path::{Path, PathBuf};

    use super::{Draft, replace, replace_with, sweep};

    /// An empty folder of this process.
    fn folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("gpu-tuned-{name}-{}", std::process::id()));
        drop(fs::remove_dir_all(&folder));
        fs::create_dir_all(&folder).expect("a folder");
        folder
    }

    fn names(folder: &PathBuf) -> Vec<String> {
        let entries = fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
        let mut names: Vec<_> = entries.map(|name| name.into_string().expect("UTF-8")).collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_file_as_it_was() {
        let folder = folder("failed-write");
        let path = folder.join("file");
        replace(&path, "before").expect("written");
        let failed = replace_with(&path, |file| {
            file.write_all(b"half")?;
            Err(io::Error::other("full"))
        });
        assert_eq!(failed.expect_err("failed").to_string(), "full");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "before");
        assert_eq!(names(&folder), ["file"]);
        replace(&path, "after").expect("written");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "after");
        fs::remove_dir_all(folder).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn a_draft_is_as_private_as_its_file_and_a_link_to_nothing_stays() {
        use std::os::unix::fs::{PermissionsExt, symlink};

        let folder = folder("private");
        let path = folder.join("file");
        fs::write(&path, "secret").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        let draft = Draft::new(&path).expect("a draft");
        assert_eq!(fs::metadata(&draft.path).expect("a file").permissions().mode() & 0o777, 0o600);
        drop(draft);
        let link = folder.join("link");
        symlink(folder.join("nowhere"), &link).expect("a link");
        let refused = replace(&link, "text").expect_err("a link to nothing").to_string();
        assert_eq!(refused, "it is a link to a file that is not there");
        assert!(link.is_symlink() && !folder.join("nowhere").exists());
        assert_eq!(names(&folder), ["file", "link"]);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn drafts_of_dead_writers_are_removed_and_of_living_ones_stay() {
        let folder = folder("left-behind");
        let path = folder.join("file");
        let mut living = Draft::new(&path).expect("a draft");
        // An editor's file, and another file's draft.
        assert!([".file.old.tmp", ".file.2.1-0.tmp"].iter().all(|kept| fs::write(folder.join(kept), "").is_ok()));
        for clean in [sweep, |path: &Path| replace(path, "first").expect("written")] {
            fs::write(folder.join(".file.1-0.tmp"), "half").expect("written");
            clean(&path);
            assert!(!folder.join(".file.1-0.tmp").exists());
        }
        living.file().write_all(b"last").expect("written");
        living.commit().expect("its draft is still there");
        assert_eq!(fs::read_to_string(&path).expect("a file"), "last");
        assert_eq!(names(&folder), [".file.2.1-0.tmp", ".file.old.tmp", "file"]);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn writers_that_sweep_each_other_all_write() {
        let folder = folder("many-writers");
        let path = &folder.join("file");
        std::thread::scope(|scope| {
            for text in ["one", "two", "three", "four"] {
                scope.spawn(move || (0..50).for_each(|_| replace(path, text).expect("written")));
            }
        });
        assert_eq!(names(&folder), ["file"]);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn only_files_are_replaced() {
        use std::os::unix::fs::FileTypeExt as _;
        use std::os::unix::net::UnixListener;
        let folder = folder("devices");
        let path = folder.join("socket");
        let _socket = UnixListener::bind(&path).expect("a socket");
        // A socket cannot be opened, unlike a pipe.
        replace(&path, "text").expect_err("no file");
        assert!(fs::metadata(&path).expect("a socket").file_type().is_socket());
        assert_eq!(replace(&folder, "text").expect_err("a folder").kind(), io::ErrorKind::IsADirectory);
        fs::remove_dir_all(folder).expect("removed");
    }

    #[cfg(unix)]
    #[test]
    fn links_and_permissions_stay() {
        use std::os::unix::fs::{PermissionsExt as _, symlink};
        let folder = folder("links");
        let (path, link) = (folder.join("file"), folder.join("link"));
        fs::write(&path, "before").expect("written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("a mode");
        symlink(&path, &link).expect("a link");
        replace(&link, "after").expect("written");
        assert!(fs::symlink_metadata(&link).expect("a link").is_symlink());
        assert_eq!(fs::read_to_string(&path).expect("a file"), "after");
        assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o640);
        fs::remove_dir_all(folder).expect("removed");
    }
}
