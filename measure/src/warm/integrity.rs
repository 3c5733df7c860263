//! Inspection of a kernel cache's database, before `CubeCL` opens it.
//!
//! `CubeCL` reads nothing from a damaged database and fails each write, with warnings in the log alone. Every start is then
//! slower than without a cache.

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

use cubecl_environment::future::block_on;
use gpu_tuned_train::device::catching;
use turso::transaction::TransactionBehavior;
use turso::{Builder, Connection, Error};

/// Longest wait for a write lock of another process. `CubeCL` waits 5 s in every operation.
const LOCK_WAIT: Duration = Duration::from_secs(2);

/// Condition of a database.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Condition {
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
pub(super) fn inspect(path: &Path, largest: u64, is_writable: bool) -> io::Result<Condition> {
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
        Ok(Ok(Content::Entries)) => Condition::Whole,
        Ok(Ok(Content::NoTable)) => Condition::Empty,
        Ok(Ok(Content::Faulty(fault))) => Condition::Damaged(first_line(&fault)),
        Ok(Err(Error::Busy(_) | Error::BusySnapshot(_))) => Condition::Locked,
        Ok(Err(error)) => Condition::Damaged(first_line(&error.to_string())),
        Err(panic) => Condition::Damaged(first_line(&panic)),
    })
}

/// Result of reading a database without an error.
enum Content {
    Entries,
    NoTable,
    /// Message of the integrity check.
    Faulty(String),
}

/// Reads a database as `CubeCL` does: with its options, by its index, with all values.
async fn read_all(path: &str, is_writable: bool) -> Result<Content, Error> {
    let options = Builder::new_local(path);
    let options = if is_writable { options.experimental_multiprocess_wal(true) } else { options.read_only(true) };
    let database = options.build().await?;
    let mut connection = database.connect()?;
    connection.busy_timeout(LOCK_WAIT)?;
    if let Some(fault) = integrity_fault(&connection).await? {
        return Ok(Content::Faulty(fault));
    }
    if is_writable {
        // A damaged header can make a database read-only.
        connection.transaction_with_behavior(TransactionBehavior::Immediate).await?.rollback().await?;
    }
    if connection.query("SELECT 1 FROM sqlite_schema WHERE name = 'entries'", ()).await?.next().await?.is_none() {
        return Ok(Content::NoTable);
    }
    // The integrity check compares no rows with their index.
    let entries = "SELECT namespace, key, value, origin FROM entries ORDER BY namespace, key";
    let mut rows = connection.query(entries, ()).await?;
    while let Some(row) = rows.next().await? {
        let _: (String, Vec<u8>, Vec<u8>, i64) = (row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?);
    }
    Ok(Content::Entries)
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
