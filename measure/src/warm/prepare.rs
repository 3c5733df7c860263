//! Preparation of a kernel cache before `CubeCL` opens it.
//!
//! `CubeCL` reads nothing from a damaged database and fails each write, with warnings in the log alone. Every start is then
//! slower than without a cache.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{env, fmt, mem, thread};

use cubecl::environment;
use cubecl_environment::future::block_on;
use gpu_tuned_train::device::catching;
use serde::Serialize;
use sysinfo::System;
use turso::transaction::TransactionBehavior;
use turso::{Builder, Connection, Error};

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
    /// Folder that `CubeCL` uses. Without a usable database, `CubeCL` caches in memory.
    pub root: PathBuf,
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
    let written = created.and_then(|()| try_writing(folder, network.is_some())).and_then(|()| {
        // The database can be written if its files can.
        on_files(&database.path, |file| OpenOptions::new().write(true).open(file).map(drop))
    });
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
    on_files(path, |file| fs::remove_file(file))
}

/// Applies `action` to the files of a database that exist, to the database itself last.
fn on_files(path: &Path, action: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
    let files = [sibling(path, "-wal"), sibling(path, "-tshm"), path.to_owned()];
    files.iter().try_for_each(|file| match action(file) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    })
}

/// Path of a file beside a database.
fn sibling(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

/// Event in the preparation of a kernel cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[non_exhaustive]
pub enum CacheEvent {
    /// The database was damaged. A new one was begun.
    SetAside {
        /// New path of the damaged database.
        #[serde(serialize_with = "super::path_as_text")]
        path: PathBuf,
        /// Fault that was found.
        because: String,
    },
    /// The database's file was empty. A new one was begun.
    Emptied,
    /// The database was too large, and was deleted.
    Outgrown {
        /// Its size.
        bytes: u64,
    },
    /// The cache is on a network file system, and is used by this host alone.
    OneHost {
        /// Kind of file system, such as `NFS`.
        file_system: String,
    },
}

impl CacheEvent {
    /// Returns true if this start is slow because of the event.
    pub(super) fn is_slow(&self) -> bool {
        !matches!(self, Self::OneHost { .. })
    }
}

impl fmt::Display for CacheEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const ANEW: &str = "this process compiles and tunes again";
        match self {
            Self::SetAside { path, because } => {
                write!(f, "the kernel cache was damaged ({because}) and is now {}; {ANEW}", path.display())
            }
            Self::Emptied => {
                write!(
                    f,
                    "the file of the kernel cache was empty, as after an interrupted copy or on a full disk; {ANEW}"
                )
            }
            Self::Outgrown { bytes } => {
                write!(f, "the kernel cache had grown to {} MiB and was deleted; {ANEW}", bytes >> 20)
            }
            Self::OneHost { file_system } => {
                write!(f, "a cache for this host alone, because the folder is on a network file system ({file_system})")
            }
        }
    }
}

/// Longest wait for a write lock of another process. `CubeCL` waits 5 s in every operation.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Condition of a database.
#[derive(Debug, PartialEq, Eq)]
enum Condition {
    /// There is no file.
    Missing,
    /// The file has no tables. `CubeCL` creates them with the file.
    Empty,
    /// All entries can be read.
    Whole,
    /// The file is larger than the limit, in bytes.
    TooLarge(u64),
    /// The file cannot be read completely, for this reason.
    Damaged(String),
    /// Another process keeps the write lock.
    Locked,
}

/// Inspects the database in a file of at most `largest` bytes. Takes about 3 ms a MiB.
///
/// # Errors
///
/// The error of the system if the file cannot be accessed.
fn inspect(path: &Path, largest: u64, is_writable: bool) -> io::Result<Condition> {
    let bytes = match fs::metadata(path) {
        Ok(file) => file.len(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Condition::Missing),
        Err(error) => return Err(error),
    };
    if bytes > largest {
        return Ok(Condition::TooLarge(bytes));
    }
    let name = path.to_str().ok_or_else(|| io::Error::other("its path is not UTF-8"))?;
    // Some damaged pages make the engine panic.
    Ok(match catching(|| block_on(read_all(name, is_writable))) {
        Ok(Ok(condition)) => condition,
        Ok(Err(Error::Busy(_) | Error::BusySnapshot(_))) => Condition::Locked,
        Ok(Err(error)) => Condition::Damaged(first_line(&error.to_string())),
        Err(panic) => Condition::Damaged(first_line(&panic)),
    })
}

/// Reads a database as `CubeCL` does: with its options, by its index, with all values.
async fn read_all(path: &str, is_writable: bool) -> Result<Condition, Error> {
    let options = Builder::new_local(path);
    let options = if is_writable { options.experimental_multiprocess_wal(true) } else { options.read_only(true) };
    let database = options.build().await?;
    let mut connection = database.connect()?;
    connection.busy_timeout(LOCK_WAIT)?;
    if let Some(fault) = integrity_fault(&connection).await? {
        return Ok(Condition::Damaged(first_line(&fault)));
    }
    if is_writable {
        // A damaged header can make a database read-only.
        connection.transaction_with_behavior(TransactionBehavior::Immediate).await?.rollback().await?;
    }
    if connection.query("SELECT 1 FROM sqlite_schema WHERE name = 'entries'", ()).await?.next().await?.is_none() {
        return Ok(Condition::Empty);
    }
    // The integrity check compares no rows with their index.
    let entries = "SELECT namespace, key, value, origin FROM entries ORDER BY namespace, key";
    let mut rows = connection.query(entries, ()).await?;
    while let Some(row) = rows.next().await? {
        let _: (String, Vec<u8>, Vec<u8>, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    }
    Ok(Condition::Whole)
}

/// First fault that the engine's integrity check finds.
async fn integrity_fault(connection: &Connection) -> Result<Option<String>, Error> {
    let mut rows = connection.query("PRAGMA quick_check", ()).await?;
    let Some(row) = rows.next().await? else { return Ok(None) };
    let message: String = row.get(0)?;
    Ok((message != "ok").then_some(message))
}

fn first_line(message: &str) -> String {
    let lines = message.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("***"));
    lines.map(str::to_owned).next().unwrap_or_else(|| "no reason given".to_owned())
}

/// File systems whose locks and shared memory do not reach other hosts, by their magic numbers in Linux's `statfs`.
#[cfg(any(target_os = "linux", test))]
const NETWORK: [(u64, &str); 17] = [
    (0x6969, "NFS"),
    (0x517b, "SMB"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB"),
    (0x0bd0_0bd0, "Lustre"),
    (0x4750_4653, "GPFS"),
    (0x1983_0326, "BeeGFS"),
    (0x6573_5546, "FUSE"),
    (0x00c3_6400, "Ceph"),
    (0x5346_414f, "AFS"),
    (0x6b41_4653, "AFS"),
    (0x7375_7245, "Coda"),
    (0x564c, "NCP"),
    (0x0102_1997, "9P"),
    (0xaad7_aaea, "PanFS"),
    (0x7461_636f, "OCFS2"),
    (0x0116_1970, "GFS2"),
];

/// Bytes that a folder must have free: the first kernels, and the database's shared memory. Without space for that
/// memory, the system ends the process (`SIGBUS`).
const SPACE: usize = 1 << 20;

/// Name of the network file system that a folder is on; `None` for local folders and outside of Linux.
fn network_file_system(folder: &Path) -> Option<&'static str> {
    #[cfg(target_os = "linux")]
    {
        // The field's type depends on the architecture.
        #[allow(clippy::cast_lossless, clippy::unnecessary_cast)]
        network_name(u64::from(rustix::fs::statfs(folder).ok()?.f_type as u32))
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = folder;
        None
    }
}

#[cfg(any(target_os = "linux", test))]
fn network_name(magic: u64) -> Option<&'static str> {
    NETWORK.iter().find(|(number, _)| *number == magic).map(|(_, name)| *name)
}

/// Creates a folder, and writes a temporary file of [`SPACE`] into it.
fn try_writing(folder: &Path, is_network: bool) -> io::Result<()> {
    fs::create_dir_all(folder)?;
    let mut file = tempfile::tempfile_in(folder)?;
    file.write_all(&vec![1; SPACE])?;
    // Servers report a full disk late.
    if is_network { file.sync_data() } else { Ok(()) }
}

/// Returns true for a full disk or an exhausted quota.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

#[cfg(test)]
mod tests;
