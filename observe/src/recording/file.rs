//! Files of recordings: reader, writer, and reader of a file that grows.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file::read_any;
use gpu_tuned_core::source::{FileError, Position};
use thiserror::Error;

use super::{Gpu, Record, VERSION};
use crate::metrics::{Figure, HOST_FIGURES, gpu_figures, step_figures};

/// Number of incomplete lines that a remark lists.
const MAX_LISTED: usize = 5;

/// The contents of a recording.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recording {
    /// Records in the order of the file.
    pub records: Vec<Record>,
    /// Numbers, from 1, of lines with an unfinished record: the last line, or one that another program continued.
    pub torn: Vec<usize>,
    /// The sampled GPUs and slices, with the description of the last monitor.
    gpus: BTreeMap<(u32, Option<u32>), Gpu>,
}

/// A recording that cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the messages describe the fields")]
pub enum RecordingError {
    /// The file cannot be read.
    #[error("cannot read `{}`: {cause}", path.display())]
    Read { path: PathBuf, cause: io::Error },
    /// A line is no record.
    #[error(transparent)]
    Line(#[from] FileError),
}

/// Bytes of the largest recording that is read: 1 GiB.
pub const LARGEST: u64 = 1 << 30;

/// GPUs and slices in a recording, at most. A host has fewer.
const MOST_GPUS: usize = 1024;
/// Seconds from 1970, at most, before and after: 31 million years, so that differences are finite.
const FARTHEST: f64 = 1e15;

/// Reads the recording at `path`: a file, or a pipe such as that of a program that unpacks it.
///
/// # Errors
///
/// [`RecordingError`] if the file cannot be read, or a line is no record.
pub fn read(path: &Path) -> Result<Recording, RecordingError> {
    let bytes = read_any(path, LARGEST).map_err(|cause| RecordingError::Read { path: path.to_owned(), cause })?;
    Ok(parse(&path.display().to_string(), &String::from_utf8_lossy(&bytes))?)
}

/// The recording of a running process by the variable `GPU_TUNED_RECORD` of its environment, where that is readable.
pub fn of_process(pid: u32) -> Option<PathBuf> {
    let process = Path::new("/proc").join(pid.to_string());
    let variables = fs::read(process.join("environ")).ok()?;
    let named = variables.split(|byte| *byte == 0).find_map(|variable| variable.strip_prefix(b"GPU_TUNED_RECORD="))?;
    let file = String::from_utf8(named.to_vec()).ok()?;
    // A pipe would wait for its writer.
    Some(fs::read_link(process.join("cwd")).ok()?.join(file)).filter(|path| path.is_file())
}

/// Parses the text of a recording; `file` is the name in messages.
///
/// # Errors
///
/// The position of a line that is no record, unless the record is unfinished.
pub fn parse(file: &str, text: &str) -> Result<Recording, FileError> {
    let mut recording = Recording::default();
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let line_number = index + 1;
        let is_torn = recording.add(line).map_err(|Mistake { byte, message }| {
            let place = Position { line: line_number, column: Position::from_offset(byte, line).column };
            FileError { file: file.to_owned(), place, message }
        })?;
        if is_torn {
            recording.torn.push(line_number);
        }
    }
    Ok(recording)
}

/// Begin of every record. It occurs nowhere else, since quotes within texts are escaped.
const BEGIN: &str = "{\"kind\":";

/// Programs that write recordings.
const WRITERS: &str = "GPU_TUNED_RECORD=FILE records a program, `cargo gpu-tuned monitor --record FILE` the GPUs";

/// An error in a line, at one of its bytes.
struct Mistake {
    byte: usize,
    message: String,
}

impl Recording {
    /// Returns remarks about incomplete records; `cut_off` is the number of a last line without a line break.
    pub fn remarks(&self, cut_off: Option<usize>) -> Vec<String> {
        let (last, within): (Vec<usize>, Vec<_>) = self.torn.iter().partition(|line| Some(**line) == cut_off);
        let numbers: Vec<_> = within.iter().take(MAX_LISTED).map(ToString::to_string).collect();
        let more = within.len() - numbers.len();
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let within = match numbers.as_slice() {
            [] => None,
            [line] => Some(format!("line {line} has an incomplete record, which is left out")),
            lines => Some(format!("lines {}{more} have incomplete records, which are left out", lines.join(", "))),
        };
        let within = within.map(|said| format!("{said}: a program was killed, or could not write"));
        let last = last
            .first()
            .map(|_| "the last line is incomplete and left out: the program is running, or was killed".to_owned());
        within.into_iter().chain(last).collect()
    }

    /// Adds the records of a line; returns whether one of them is unfinished.
    fn add(&mut self, line: &str) -> Result<bool, Mistake> {
        let text = line.trim_end();
        if text.is_empty() {
            return Ok(false);
        }
        if let Ok(record) = serde_json::from_str(text) {
            return self.push(record, 0).map(|()| false);
        }
        let mut is_torn = false;
        for (begin, part) in parts(text) {
            let is_last = begin + part.len() == text.len();
            match serde_json::from_str(part) {
                Ok(record) => self.push(record, begin)?,
                Err(mistake) if mistake.is_eof() || (is_last && !line.ends_with('\n')) => is_torn = true,
                Err(mistake) => return Err(Mistake::from_json(&mistake, begin)),
            }
        }
        Ok(is_torn)
    }

    /// Adds a record that begins at this byte of the line, without figures that its GPU cannot have.
    fn push(&mut self, record: Record, byte: usize) -> Result<(), Mistake> {
        let is_new = matches!(&record, Record::Gpu(it) if !self.gpus.contains_key(&(it.gpu, it.mig_slot)));
        let message = match (&record, too_large(&record)) {
            (Record::Start(start), _) if start.version > VERSION => {
                format!(
                    "the recording has format {}; this release reads up to {VERSION}: update gpu-tuned",
                    start.version
                )
            }
            (record, _) if record.at().is_some_and(|at| at.abs() > FARTHEST) => {
                format!("the time is more than {FARTHEST:e} s from 1970")
            }
            (_, Some(key)) => format!("`{key}` is negative, or more than {FARTHEST:e}"),
            _ if is_new && self.gpus.len() >= MOST_GPUS => {
                format!("the recording has more than {MOST_GPUS} GPUs, the most that is read")
            }
            _ => {
                let record = self.without_impossible(record);
                self.records.push(record);
                return Ok(());
            }
        };
        Err(Mistake { byte, message })
    }

    fn without_impossible(&mut self, record: Record) -> Record {
        match record {
            Record::Start(mut start) => {
                start.gpus = start.gpus.into_iter().map(Gpu::without_impossible).collect();
                self.gpus.extend(start.gpus.iter().map(|gpu| ((gpu.gpu, gpu.mig_slot), gpu.clone())));
                Record::Start(start)
            }
            Record::Gpu(sample) => {
                let gpu = self.gpus.entry((sample.gpu, sample.mig_slot)).or_default();
                Record::Gpu(sample.without_impossible(gpu))
            }
            record => record,
        }
    }
}

/// Returns the key of a figure that no machine has, and that sums would not hold.
fn too_large(record: &Record) -> Option<&'static str> {
    fn find<'a, S: 'static>(figures: impl IntoIterator<Item = &'a Figure<S>>, sample: &S) -> Option<&'static str> {
        let is_possible = |figure: f64| (0.0..=FARTHEST).contains(&figure);
        let mut figures = figures.into_iter();
        figures.find(|figure| (figure.of)(sample).is_some_and(|it| !is_possible(it))).map(|figure| figure.key)
    }
    match record {
        Record::Gpu(sample) => find(gpu_figures(), sample),
        Record::Host(sample) => find(&HOST_FIGURES, sample),
        Record::Step(step) => {
            let is_time = |key: &str| key == "seconds" || key.ends_with("_s");
            let mut times = step_figures(step).filter(|(_, key, _)| is_time(key));
            times.find(|(.., time)| time.is_some_and(|it| !(0.0..=FARTHEST).contains(&it))).map(|(_, key, _)| key)
        }
        _ => None,
    }
}

impl Mistake {
    /// Converts the parser's error in a record that begins at this byte of the line.
    fn from_json(mistake: &serde_json::Error, begin: usize) -> Self {
        let text = mistake.to_string();
        // The parser counts lines within the record, which is always one line.
        let reason = match text.rsplit_once(" at line ") {
            _ if mistake.is_syntax() => "it is not JSON",
            _ if text.contains("field `kind`") || text.contains("variant identifier") => "it is JSON, but no record",
            Some((reason, _)) => reason,
            None => &text,
        };
        // The parser's columns are bytes.
        let byte = begin + mistake.column().saturating_sub(1);
        Self { byte, message: format!("not a line of a recording: {reason}; {WRITERS}") }
    }
}

/// Splits a line into records, each with the byte of its begin. Another program may have continued an unfinished record.
fn parts(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let later = line.match_indices(BEGIN).map(|(at, _)| at).filter(|at| *at > 0);
    let ends = later.clone().chain([line.len()]);
    std::iter::once(0).chain(later).zip(ends).map(|(begin, end)| (begin, &line[begin..end]))
}

/// Bytes of the buffer that are written at once.
const BUFFER_BYTES: usize = 32 * 1024;

/// Maximum length of a line in bytes.
const MAX_LINE: u64 = 1 << 24;

/// Appends to a recording. [`flush`](Self::flush) writes the buffer, and so does dropping the writer.
#[derive(Debug)]
pub struct Writer {
    file: File,
    buffer: Vec<u8>,
}

impl Writer {
    /// Opens a file to append to, and creates it if needed.
    ///
    /// # Errors
    ///
    /// If the file cannot be opened, is a pipe, or is no recording (`InvalidData`): such a file is left alone.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        if is_pipe(path) {
            // Opening would wait for a reader, and the monitor would read its own records.
            return Err(io::Error::other("it is a pipe, and a recording is also read; name a file"));
        }
        if path.is_file() && !could_be_recording(path) {
            return Err(io::Error::new(ErrorKind::InvalidData, "it exists and is no recording; name another file"));
        }
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        // An unfinished line must not damage the next one.
        let buffer = if ends_within_a_line(path) { vec![b'\n'] } else { Vec::new() };
        Ok(Self { file, buffer })
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// If the file cannot be written.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        serde_json::to_writer(&mut self.buffer, record)?;
        self.buffer.push(b'\n');
        if self.buffer.len() >= BUFFER_BYTES { self.flush() } else { Ok(()) }
    }

    /// Writes the buffer in one call, so that lines of several processes do not mix.
    ///
    /// # Errors
    ///
    /// If the file cannot be written; the buffer is then discarded.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

#[cfg(unix)]
fn is_pipe(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt as _;
    fs::metadata(path).is_ok_and(|facts| facts.file_type().is_fifo())
}

#[cfg(not(unix))]
fn is_pipe(_: &Path) -> bool {
    false
}

fn ends_within_a_line(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()))?;
        file.seek(SeekFrom::End(-1)).ok()?;
        let mut last = [0];
        file.read_exact(&mut last).ok()?;
        Some(last[0])
    };
    last().is_some_and(|last| last != b'\n')
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Callers that need the error call `flush`.
        let _ = self.flush();
    }
}

/// Returns true if a file is empty or begins with a record, complete or not. A file that cannot be read counts as one.
fn could_be_recording(path: &Path) -> bool {
    let mut first = Vec::new();
    let read = File::open(path).and_then(|file| BufReader::new(file.take(MAX_LINE)).read_until(b'\n', &mut first));
    read.is_err()
        || first.is_empty()
        || first.starts_with(BEGIN.as_bytes())
        || serde_json::from_slice::<Record>(&first).is_ok()
}

/// Bytes that are read at a time.
const PIECE: u64 = 1 << 20;
/// Bytes of the longest line that is kept until it is whole.
const LONGEST_LINE: usize = 16 << 20;

/// Reader of a recording that grows.
#[derive(Debug, Default)]
pub struct Tail {
    path: PathBuf,
    /// Start of watching, in seconds since 1970.
    since: f64,
    file: Option<File>,
    /// Begin of an incomplete line.
    begun: Vec<u8>,
}

impl Tail {
    /// A reader of this file, which may not exist yet. `since` is the start of watching, in seconds since 1970.
    pub fn new(path: &Path, since: f64) -> Self {
        Self { path: path.to_owned(), since, ..Self::default() }
    }

    /// Returns the runs, steps and values since the last call, and the last run from before. Unreadable lines are skipped.
    pub fn news(&mut self) -> Vec<Record> {
        // Pipes and devices cannot be reread.
        if self.file.is_none() && self.path.is_file() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        let (mut before, mut news) = (None, Vec::new());
        loop {
            let known = self.begun.len();
            match file.take(PIECE).read_to_end(&mut self.begun) {
                Ok(read) if read > 0 => {}
                _ => return before.into_iter().chain(news).collect(),
            }
            let end = self.begun[known..].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| known + end + 1);
            for line in self.begun[..end].split(|byte| *byte == b'\n') {
                let Ok(record) = serde_json::from_slice(line) else { continue };
                if !matches!(record, Record::Run(_) | Record::Step(_) | Record::Value(_)) {
                    continue;
                }
                if record.at().is_none_or(|at| at >= self.since) {
                    news.push(record);
                } else if matches!(record, Record::Run(_)) {
                    before = Some(record);
                }
            }
            self.begun.drain(..end);
            if self.begun.len() > LONGEST_LINE {
                self.begun.clear();
            }
        }
    }
}
