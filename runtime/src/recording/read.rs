//! Reading.

use std::path::{Path, PathBuf};
use std::{fs, io};

use gpu_tuned_core::recording::{Record, VERSION};
use gpu_tuned_core::source::{FileError, Place};
use thiserror::Error;

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Recording {
    /// In the order in which it was written.
    pub records: Vec<Record>,
    /// Whether a line was not written to its end: the last one, or one before another program went on.
    pub is_torn: bool,
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
    let mut recording = Recording { records: Vec::new(), is_torn: false };
    for (index, line) in text.split_inclusive('\n').enumerate() {
        let error =
            |column, message| FileError { file: file.to_owned(), place: Place { line: index + 1, column }, message };
        match serde_json::from_str(line.trim_end()) {
            Ok(Record::Start(start)) if start.version > VERSION => {
                let message = format!("a recording of format {}: this release reads {VERSION}", start.version);
                return Err(error(1, message));
            }
            Ok(record) => recording.records.push(record),
            Err(_) if line.trim().is_empty() => {}
            Err(mistake) if mistake.is_eof() || !line.ends_with('\n') => recording.is_torn = true,
            Err(mistake) => {
                let said = mistake.to_string();
                // The line that is parsed is the only one that the parser knows.
                let said = said.rsplit_once(" at line ").map_or(said.as_str(), |(said, _)| said);
                // It counts bytes.
                let column = Place::of(mistake.column().saturating_sub(1), line).column;
                return Err(error(column, format!("no record of a run: {said}")));
            }
        }
    }
    Ok(recording)
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::recording::{GpuSample, Record};

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
        assert_eq!((recording.records.len(), recording.is_torn), (1, true));
    }

    #[test]
    fn a_line_that_is_no_record_is_an_error_at_its_place() {
        let error =
            parse("run.jsonl", "{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":0}\n{\"kind\":\"gpu\",\"at\":x}\n").unwrap_err();
        assert_eq!(error.to_string(), "run.jsonl:2:20: no record of a run: expected value");
        let error =
            parse("run.jsonl", "{\"kind\":\"value\",\"name\":\"потери\",\"value\":x}\n").expect_err("it is no number");
        assert_eq!(error.to_string(), "run.jsonl:1:41: no record of a run: expected value");
    }

    #[test]
    fn a_newer_format_is_refused() {
        let error = parse("run.jsonl", "{\"kind\":\"start\",\"at\":1.5,\"version\":99}\n").unwrap_err();
        assert_eq!(error.to_string(), "run.jsonl:1:1: a recording of format 99: this release reads 1");
    }
}
