//! Reading.

use std::path::{Path, PathBuf};
use std::{fs, io};

use crate::recording::{Record, VERSION};
use gpu_tuned_core::source::{FileError, Position};
use thiserror::Error;

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recording {
    /// In the order in which it was written.
    pub records: Vec<Record>,
    /// The lines, from 1, in which a record was not written to its end: the last one, or one where another program went on.
    pub torn: Vec<usize>,
}

/// Why a recording cannot be read.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordingError {
    /// The file.
    #[error("cannot read `{}`: {cause}", path.display())]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        cause: io::Error,
    },
    /// A line of it.
    #[error(transparent)]
    Line(#[from] FileError),
}

/// Reads the recording at `path`.
///
/// # Errors
///
/// [`RecordingError`] where the file cannot be read, and with the line of what is no record.
pub fn read(path: &Path) -> Result<Recording, RecordingError> {
    let bytes = fs::read(path).map_err(|cause| RecordingError::Read { path: path.to_owned(), cause })?;
    Ok(parse(&path.display().to_string(), &String::from_utf8_lossy(&bytes))?)
}

/// Reads the text of a recording; `file` is its name in messages.
///
/// # Errors
///
/// With the line of what is no record, unless it was not written to its end.
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

/// What every record begins with, and nothing within one that is known here: quotes in texts are escaped.
const BEGIN: &str = "{\"kind\":";

/// What is wrong with a line, and at which of its bytes.
struct Mistake {
    byte: usize,
    message: String,
}

impl Recording {
    /// Adds what a line has; returns whether a record in it was not written to its end.
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
                Err(mistake) => return Err(Mistake::of(&mistake, begin)),
            }
        }
        Ok(is_torn)
    }

    /// Adds a record that begins at this byte of its line.
    fn push(&mut self, record: Record, byte: usize) -> Result<(), Mistake> {
        match record {
            Record::Start(start) if start.version > VERSION => {
                let message = format!("a recording of format {}: this release reads {VERSION}", start.version);
                Err(Mistake { byte, message })
            }
            record => {
                self.records.push(record);
                Ok(())
            }
        }
    }
}

impl Mistake {
    /// The parser's, in what begins at this byte of the line.
    fn of(mistake: &serde_json::Error, begin: usize) -> Self {
        let said = mistake.to_string();
        // What is parsed is the only line that the parser knows.
        let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
        // It counts bytes.
        let byte = begin + mistake.column().saturating_sub(1);
        Self { byte, message: format!("no record of a run: {said}") }
    }
}

/// The records of a line, each with the byte that it begins at: right behind one that was not written to its end, another
/// program may have gone on.
fn parts(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let later = line.match_indices(BEGIN).map(|(at, _)| at).filter(|at| *at > 0);
    let ends = later.clone().chain([line.len()]);
    std::iter::once(0).chain(later).zip(ends).map(|(begin, end)| (begin, &line[begin..end]))
}

#[cfg(test)]
mod tests {
    use crate::recording::{GpuSample, Record};

    use super::parse;

    #[test]
    fn kinds_and_figures_of_newer_versions_are_passed_over() {
        let text = "{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":0,\"smell\":3}\n{\"kind\":\"weather\",\"at\":2.0}\n";
        let recording = parse("run.jsonl", text).unwrap();
        assert_eq!(recording.records, [Record::Gpu(GpuSample::new(1.5, 0)), Record::Unknown]);
    }

    #[test]
    fn a_torn_last_line_is_left_out() {
        let recording =
            parse("run.jsonl", "{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":0}\n{\"kind\":\"gpu\",\"at\":1.").unwrap();
        assert_eq!((recording.records.len(), recording.torn), (1, vec![2]));
    }

    #[test]
    fn of_a_torn_line_that_another_program_went_on_behind_its_record_is_read() {
        let gpu = |at| Record::Gpu(GpuSample::new(at, 0));
        let [first, second] = [1.5, 2.5].map(|at| format!("{{\"kind\":\"gpu\",\"at\":{at},\"gpu\":0}}"));
        for torn in
            ["{", "{\"ki", "{\"kind\":\"step\",\"at\":1000.5,\"st", "{\"kind\":\"st{\"kind\":\"value\",\"at\":1."]
        {
            let recording = parse("run.jsonl", &format!("{first}\n{torn}{second}\n{first}\n")).expect(torn);
            assert_eq!(recording.records, [gpu(1.5), gpu(2.5), gpu(1.5)], "{torn}");
            assert_eq!(recording.torn, [2], "{torn}");
        }
        let without_newline = parse("run.jsonl", &format!("{first}{second}\n")).expect("two records");
        assert_eq!((without_newline.records, without_newline.torn), (vec![gpu(1.5), gpu(2.5)], Vec::new()));
        let both =
            parse("run.jsonl", &format!("{first}\n{{\"kind\":\"gp{{\"kind\":\"gpu\",\"at\":1.")).expect("a torn line");
        assert_eq!((both.records.len(), both.torn), (1, vec![2]));
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error_at_its_place() {
        let error =
            parse("run.jsonl", "{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":0}\n{\"kind\":\"gpu\",\"at\":x}\n").unwrap_err();
        assert_eq!(error.to_string(), "run.jsonl:2:20: no record of a run: expected value");
        let error =
            parse("run.jsonl", "{\"kind\":\"value\",\"name\":\"потери\",\"value\":x}\n").expect_err("it is no number");
        assert_eq!(error.to_string(), "run.jsonl:1:41: no record of a run: expected value");
        let behind = "{\"kind\":\"step\",\"st{\"kind\":\"gpu\",\"at\":x}\n";
        let error = parse("run.jsonl", behind).expect_err("it is no number");
        assert_eq!(error.to_string(), "run.jsonl:1:38: no record of a run: expected value");
        let before = parse("run.jsonl", "nonsense{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":0}\n").expect_err("nonsense");
        assert_eq!(before.to_string(), "run.jsonl:1:2: no record of a run: expected ident");
    }

    #[test]
    fn a_newer_format_is_refused() {
        let error = parse("run.jsonl", "{\"kind\":\"start\",\"at\":1.5,\"version\":99}\n").unwrap_err();
        assert_eq!(error.to_string(), "run.jsonl:1:1: a recording of format 99: this release reads 1");
    }
}
