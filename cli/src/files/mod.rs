//! Files that commands read and write.

mod all;

use std::fs;
use std::io::{self, Read as _, Write};
use std::path::{Path, PathBuf, absolute};

use gpu_tuned_core::atomic_file;
use gpu_tuned_propose::diff::unified;

use crate::error::Error;
use crate::output::{BAD, BOLD, FAINT, GOOD, PLAIN, styled};
use crate::stdio::is_standard;
pub(crate) use all::write_all;

/// Refuses to read the standard input twice.
pub(crate) fn once<'a>(inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<(), Error> {
    let count = inputs.into_iter().filter(|path| is_standard(path)).count();
    if count > 1 { Err(Error::TwiceStandardInput) } else { Ok(()) }
}

/// Refuses to write an output to the standard output together with JSON.
pub(crate) fn alone(output: &Path, is_json: bool) -> Result<(), Error> {
    if is_standard(output) && is_json { Err(Error::NotAlone) } else { Ok(()) }
}

/// Refuses to overwrite an input.
pub(crate) fn distinct(input: &Path, output: &Path) -> Result<(), Error> {
    let same =
        |of: fn(&Path) -> io::Result<PathBuf>| of(input).is_ok_and(|it| of(output).is_ok_and(|other| it == other));
    // Files that are not there yet have no canonical path.
    let same = || same(|path| fs::canonicalize(path)) || same(|path| absolute(path));
    if !is_standard(input) && !is_standard(output) && same() {
        return Err(Error::SameFile { path: output.to_owned() });
    }
    Ok(())
}

/// Begin of a table of samples or steps.
pub(crate) const CSV_BEGIN: &str = "at_s,";

/// Refuses to overwrite a file that does not begin as a result of this kind.
pub(crate) fn check_replaceable(path: &Path, kind: &'static str, begin: &str) -> Result<(), Error> {
    // Opening a pipe would wait for its reader.
    if is_standard(path) || !fs::metadata(path).is_ok_and(|there| there.is_file()) {
        return Ok(());
    }
    let mut found = Vec::new();
    // An unreadable file fails when it is written.
    let read = fs::File::open(path).and_then(|file| file.take(begin.len() as u64).read_to_end(&mut found));
    if read.is_ok_and(|count| count > 0) && found != begin.as_bytes() {
        return Err(Error::OtherContent { path: path.to_owned(), kind });
    }
    Ok(())
}

/// Writes a file completely or not at all. Pipes and devices are written directly.
pub(crate) fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), Error> {
    let written = atomic_file::replace_with(path, |file| {
        let mut buffer = io::BufWriter::new(file);
        write(&mut buffer)?;
        buffer.flush()
    });
    written.map_err(|source| Error::Write { path: path.to_owned(), source })
}

/// A changed file. Without a text before, the file is new.
#[derive(Clone, Debug)]
pub(crate) struct Change {
    pub path: PathBuf,
    /// Path from the folder of the workspace on, with slashes.
    pub name: String,
    pub before: Option<String>,
    pub after: String,
}

impl Change {
    pub(crate) fn is_needed(&self) -> bool {
        self.before.as_deref() != Some(&self.after)
    }

    /// Returns true if the file is in the folder, links followed.
    pub(crate) fn is_below(&self, folder: &Path) -> bool {
        let path = self.path.canonicalize().or_else(|_| self.path.parent().unwrap_or(folder).canonicalize());
        matches!((path, folder.canonicalize()), (Ok(path), Ok(folder)) if path.starts_with(&folder))
    }

    pub(crate) fn diff(&self) -> String {
        let (old, new) = (self.before.as_deref().unwrap_or_default(), &self.after);
        let from = if self.before.is_some() { format!("a/{}", self.name) } else { "/dev/null".to_owned() };
        unified(old, new, &from, &format!("b/{}", self.name))
    }
}

pub(crate) fn colored(diff: &str) -> String {
    let style = |line: &str| match line.as_bytes() {
        [b'-', b'-', b'-', b' ', ..] | [b'+', b'+', b'+', b' ', ..] => BOLD,
        [b'+', ..] => GOOD,
        [b'-', ..] => BAD,
        [b'@', ..] => FAINT,
        _ => PLAIN,
    };
    diff.lines().flat_map(|line| [styled(style(line), line), "\n".to_owned()]).collect()
}
