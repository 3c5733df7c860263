//! Limit of open files of this process.

use std::io;

/// Raises the limit of open files to at least `needed`, if the operating system allows that.
///
/// # Errors
/// If the hard limit is lower.
#[cfg(unix)]
pub(crate) fn allow(needed: usize) -> io::Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let needed = needed as u64;
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    if let Some(maximum) = maximum.filter(|maximum| *maximum < needed) {
        return Err(io::Error::other(format!("rank 0 needs {needed} open files, but the hard limit is {maximum}")));
    }
    Ok(setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })?)
}

/// Other systems have no such limit for sockets.
#[cfg(not(unix))]
pub(crate) fn allow(_: usize) -> io::Result<()> {
    Ok(())
}
