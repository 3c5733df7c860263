//! Preparation of a kernel cache before `CubeCL` opens it.

use std::env;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::mem;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use cubecl::environment;
use sysinfo::System;

use super::event::CacheEvent;
use super::file_system::{SPACE, is_full, network_file_system, try_writing};
use super::integrity::{Condition, inspect};

/// Largest size of a database, in bytes. Every build of a program adds kernels, which nothing removes.
const LARGEST: u64 = 2 << 30;

/// Longest wait for another process that prepares the same cache.
const PREPARATION_WAIT: Duration = Duration::from_secs(30);
/// Interval between two attempts to lock.
const POLL: Duration = Duration::from_millis(10);

/// How `CubeCL` may use a database.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Access {
    Full,
    /// Entries can be read, but not written, for this reason.
    ReadOnly(String),
    /// Use would slow the process down or end it, for this reason.
    Unusable(String),
}

/// Database that is ready for `CubeCL`.
pub(super) struct Prepared {
    /// Name of the environment.
    pub name: String,
    /// Path of the database.
    pub path: PathBuf,
    pub access: Access,
    pub events: Vec<CacheEvent>,
    /// Folder that `CubeCL` uses.
    root: PathBuf,
    /// Keeps other processes from preparing the database until it is open.
    lock: Option<File>,
}

/// Prepares the database of environment `name` in a folder.
pub(super) fn prepare(folder: &Path, name: String) -> Prepared {
    let created = fs::create_dir_all(folder);
    let network = network_file_system(folder);
    prepare_on(network, folder, name, created)
}

/// `network` is the kind of the folder's network file system, and `created` the result of creating the folder.
fn prepare_on(network: Option<&str>, folder: &Path, name: String, created: io::Result<()>) -> Prepared {
    let host = || System::host_name().unwrap_or_else(|| "unknown-host".to_owned());
    let name = if network.is_some() { format!("{name}-on-{}", host()) } else { name };
    let mut database = Prepared::new(folder, name);
    database.events.extend(network.map(|kind| CacheEvent::OneHost { file_system: kind.to_owned() }));
    let written =
        created.and_then(|()| try_writing(folder, network.is_some())).and_then(|()| open_files(&database.path));
    match written {
        Ok(()) => database.mend(LARGEST),
        Err(error) => database.access = without_writing(&database.path, &error),
    }
    if matches!(database.access, Access::Unusable(_)) {
        // CubeCL caches in memory where it cannot create a folder: below a file.
        database.root = env::current_exe().unwrap_or_else(|_| PathBuf::from("/dev/null"));
    }
    database
}

impl Prepared {
    /// A database of environment `name` in a folder, as it is.
    pub(super) fn new(folder: &Path, name: String) -> Self {
        let path = folder.join(environment::file_name(&name));
        Self { name, path, access: Access::Full, events: Vec::new(), root: folder.to_owned(), lock: None }
    }

    /// Folder that `CubeCL` uses. Without a usable database, `CubeCL` caches in memory.
    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Makes the database the active one.
    pub(super) fn activate(&self) {
        if environment::root() != self.root {
            environment::set_root(&self.root);
        }
        if *environment::active() != *self.name {
            environment::activate(&self.name);
        }
    }

    /// Ends the preparation after `CubeCL` has opened the database, and returns its events.
    pub(super) fn finish(&mut self) -> Vec<CacheEvent> {
        self.lock = None;
        mem::take(&mut self.events)
    }

    /// Replaces a database of unusable content or of more than `largest` bytes, while no other process does so.
    fn mend(&mut self, largest: u64) {
        let guard = sibling(&self.path, ".lock");
        // Processes that start at once inspect a database side by side.
        let Ok(shared) = lock(&guard, File::try_lock_shared) else { return self.access = locked() };
        match inspect(&self.path, largest, true) {
            Ok(Condition::Whole) => return,
            Ok(Condition::Locked) => return self.access = locked(),
            _ => {}
        }
        drop(shared);
        let Ok(lock) = lock(&guard, File::try_lock) else { return self.access = locked() };
        let path = &self.path;
        let replaced = match inspect(path, largest, true) {
            Ok(Condition::Whole) => Ok(None),
            Ok(Condition::Missing) => remove(path).map(|()| None),
            Ok(Condition::Empty) => remove(path).map(|()| Some(CacheEvent::Emptied)),
            Ok(Condition::TooLarge(bytes)) => remove(path).map(|()| Some(CacheEvent::Outgrown { bytes })),
            Ok(Condition::Damaged(because)) => set_aside(path).map(|path| Some(CacheEvent::SetAside { path, because })),
            Ok(Condition::Locked) => return self.access = locked(),
            Err(error) => Err(error),
        };
        match replaced {
            Ok(event) => {
                self.events.extend(event);
                self.lock = lock;
            }
            Err(error) => self.access = Access::Unusable(format!("it cannot be replaced: {error}")),
        }
    }
}

/// Opens the database's files for writing, where they exist.
fn open_files(path: &Path) -> io::Result<()> {
    let all = [path.to_owned(), sibling(path, "-wal"), sibling(path, "-tshm")];
    all.iter().try_for_each(|file| match OpenOptions::new().write(true).open(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    })
}

/// Access to a database that cannot be written.
fn without_writing(path: &Path, error: &io::Error) -> Access {
    if is_full(error) {
        // CubeCL would map a file of shared memory, for which there is no space.
        return Access::Unusable(format!("its disk has less than {} MiB free", SPACE >> 20));
    }
    let reason = fault(path, error);
    match inspect(path, LARGEST, false) {
        Ok(Condition::Damaged(because)) => {
            Access::Unusable(format!("it is damaged ({because}), and cannot be replaced, because {reason}"))
        }
        Ok(Condition::Locked) => locked(),
        _ => Access::ReadOnly(reason),
    }
}

/// Reason of an error of the system, with the owner where permission is missing.
fn fault(path: &Path, error: &io::Error) -> String {
    #[cfg(unix)]
    if error.kind() == io::ErrorKind::PermissionDenied {
        use std::os::unix::fs::MetadataExt;

        let owner = path.ancestors().find_map(|path| Some((path, path.metadata().ok()?.uid())));
        if let Some((path, owner)) = owner {
            return format!("this user may not write {}, which belongs to user id {owner}", path.display());
        }
    }
    #[cfg(not(unix))]
    let _ = path;
    error.to_string()
}

fn locked() -> Access {
    Access::Unusable("another process keeps it locked".to_owned())
}

/// Locks the file `guard` among processes. `None` where files cannot be locked.
///
/// # Errors
///
/// Another process has locked it for [`PREPARATION_WAIT`].
fn lock(guard: &Path, attempt: impl Fn(&File) -> Result<(), TryLockError>) -> Result<Option<File>, TryLockError> {
    let Ok(file) = OpenOptions::new().create(true).append(true).open(guard) else { return Ok(None) };
    let begin = Instant::now();
    loop {
        match attempt(&file) {
            Ok(()) => return Ok(Some(file)),
            Err(TryLockError::Error(_)) => return Ok(None),
            Err(busy @ TryLockError::WouldBlock) if begin.elapsed() > PREPARATION_WAIT => return Err(busy),
            Err(TryLockError::WouldBlock) => thread::sleep(POLL),
        }
    }
}

/// Renames a database in place of the one that was set aside before.
fn set_aside(path: &Path) -> io::Result<PathBuf> {
    let aside = sibling(path, ".damaged");
    fs::rename(path, &aside)?;
    remove(path)?;
    Ok(aside)
}

/// Removes a database, after its log and shared memory: a leftover log would be read into the next database.
///
/// A process that has the database open keeps its files.
fn remove(path: &Path) -> io::Result<()> {
    [sibling(path, "-wal"), sibling(path, "-tshm"), path.to_owned()].iter().try_for_each(|file| {
        match fs::remove_file(file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        }
    })
}

/// Path of a file beside a database.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::{Access, prepare_on};

    #[test]
    fn hosts_share_no_database_on_a_network_file_system() {
        let folder = tempfile::tempdir().expect("a folder");
        let [mut shared, mut local] =
            [Some("NFS"), None].map(|network| prepare_on(network, folder.path(), "gpu".to_owned(), Ok(())));
        assert_eq!((&shared.access, &local.access), (&Access::Full, &Access::Full));
        let host = sysinfo::System::host_name().expect("a name");
        assert_eq!(shared.name, format!("gpu-on-{host}"));
        assert_eq!(local.path, folder.path().join("gpu.db"));
        let [event] = &shared.finish()[..] else { panic!("one event") };
        assert!(!event.is_slow() && event.to_string().ends_with("is on a network file system (NFS)"), "{event}");
        assert_eq!(local.finish(), []);
    }
}
