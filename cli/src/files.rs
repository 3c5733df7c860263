//! Files that commands read and write, recordings, and paths that mean standard streams.

#[cfg(test)]
mod tests;

use std::fs::{self, File};
use std::io::{self, ErrorKind, Read as _, Write};
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;

use gpu_tuned_core::atomic_file::{self, Draft};
use gpu_tuned_core::regular_file::{self, LARGEST, read_all, read_text};
use gpu_tuned_observe::recording::{self, Record};
use gpu_tuned_propose::diff::unified;

use crate::error::Error;
use crate::output::{BAD, BOLD, FAINT, GOOD, PLAIN, styled};

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

/// Writes drafts of all files, then renames them. When a rename fails, earlier files are restored.
pub(crate) fn write_all(changes: &[Change]) -> Result<(), Error> {
    let mut drafts = Vec::new();
    for change in changes {
        let draft = draft(&change.path, &change.after);
        drafts.push((draft.map_err(|source| Error::Write { path: change.path.clone(), source })?, change));
    }
    // Another command waits for its turn, and then finds the files changed. Some file systems lock no folders.
    let folder = changes.first().and_then(|change| change.path.parent());
    let turn = folder.and_then(|folder| File::open(folder).ok());
    let _locked = turn.as_ref().map(File::lock);
    changes.iter().try_for_each(check_unchanged)?;
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

/// Returns true if a path means the standard input or output. A file of this name is `./-`.
pub(crate) fn is_standard(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Name of an input in messages.
pub(crate) fn input_name(path: &Path) -> String {
    if is_standard(path) { "standard input".to_owned() } else { path.display().to_string() }
}

/// Name of an input within a sentence.
pub(crate) fn quoted(path: &Path) -> String {
    if is_standard(path) { input_name(path) } else { format!("`{}`", path.display()) }
}

/// Records, and remarks about damaged ones.
#[derive(Default)]
pub(crate) struct Recorded {
    pub records: Vec<Record>,
    pub notes: Vec<String>,
}

/// Reads a recording with at least one record.
pub(crate) fn read_recording(path: &Path) -> Result<Recorded, Error> {
    let recorded = read_any_recording(path)?;
    if recorded.records.is_empty() { Err(Error::EmptyRecording { path: path.to_owned() }) } else { Ok(recorded) }
}

/// Reads a recording that may be empty.
pub(crate) fn read_any_recording(path: &Path) -> Result<Recorded, Error> {
    let bytes = if is_standard(path) {
        read_all(io::stdin(), recording::LARGEST)
    } else {
        regular_file::read_any(path, recording::LARGEST)
    };
    let bytes = bytes.map_err(|source| Error::Read { path: path.to_owned(), source })?;
    let text = String::from_utf8_lossy(&bytes);
    let parsed = recording::parse(&input_name(path), &text);
    let recording = parsed.map_err(|mistake| Error::Files { mistakes: vec![(mistake, Arc::from(&*text))] })?;
    let is_cut_off = !text.ends_with('\n');
    let notes = recording.remarks(is_cut_off.then(|| text.lines().count()));
    let notes = notes.into_iter().map(|note| format!("{}: {note}", quoted(path))).collect();
    Ok(Recorded { records: recording.records, notes })
}
