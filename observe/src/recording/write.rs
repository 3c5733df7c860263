//! Writing.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::Path;

use crate::recording::Record;

/// Lines are gathered up to so many bytes before they are written.
const GATHERED: usize = 32 * 1024;

/// Appends to a recording. What is gathered is written by [`flush`](Self::flush), and when the writer is dropped.
#[derive(Debug)]
pub struct Writer {
    file: File,
    gathered: Vec<u8>,
}

impl Writer {
    /// Goes on with the file, or makes it.
    ///
    /// # Errors
    ///
    /// When it cannot be opened.
    pub fn append(path: impl AsRef<Path>) -> io::Result<Self> {
        let path = path.as_ref();
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        // A line that somebody could not write to its end is not to take the next one with it.
        let gathered = if ends_within_a_line(path) { vec![b'\n'] } else { Vec::new() };
        Ok(Self { file, gathered })
    }

    /// Adds a record.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn write(&mut self, record: &Record) -> io::Result<()> {
        serde_json::to_writer(&mut self.gathered, record)?;
        self.gathered.push(b'\n');
        if self.gathered.len() >= GATHERED { self.flush() } else { Ok(()) }
    }

    /// Writes what is gathered, in one call: lines of several processes do not mix.
    ///
    /// # Errors
    ///
    /// When the file cannot be written; what was gathered is given up then.
    pub fn flush(&mut self) -> io::Result<()> {
        let written = self.file.write_all(&self.gathered);
        self.gathered.clear();
        written
    }
}

fn ends_within_a_line(path: &Path) -> bool {
    let last = || {
        let mut file = File::open(path).ok().filter(|file| file.metadata().is_ok_and(|facts| facts.is_file()))?;
        file.seek(SeekFrom::End(-1)).ok()?;
        let mut last = [0];
        file.read_exact(&mut last).ok()?;
        Some(last[0])
    };
    last().is_some_and(|last| last != b'\n')
}

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever has to know calls `flush`.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use crate::recording::{Record, StepRecord, Value};

    use super::Writer;
    use crate::recording::read;

    #[test]
    fn a_line_without_an_end_takes_no_other_with_it_and_what_is_no_number_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        std::fs::write(&path, "{\"kind\":\"value\",\"at\":1.0,\"name\":\"a\",\"val").unwrap();
        let mut file = Writer::append(&path).unwrap();
        file.write(&Record::Value(Value::new(2.0, "valid/loss", f64::NAN))).unwrap();
        drop(file);
        let recording = read(&path).unwrap();
        let [Record::Value(value)] = recording.records.as_slice() else { panic!("{recording:?}") };
        assert!(recording.torn == [1] && value.at > 1.5 && value.value.is_nan(), "{recording:?}");
    }

    #[test]
    fn lines_of_several_writers_stay_whole() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run.jsonl");
        thread::scope(|scope| {
            for writer in 0..4 {
                let path = &path;
                scope.spawn(move || {
                    let mut file = Writer::append(path).unwrap();
                    for step in 0..500 {
                        file.write(&Record::Step(Box::new(StepRecord::new(f64::from(writer), step)))).unwrap();
                        if step % 7 == 0 {
                            file.flush().unwrap();
                        }
                    }
                });
            }
        });
        let recording = read(&path).unwrap();
        assert_eq!((recording.records.len(), recording.torn), (2000, Vec::new()));
    }
}
