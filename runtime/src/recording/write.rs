//! Writing.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use gpu_tuned_core::recording::Record;

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
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, gathered: Vec::new() })
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

impl Drop for Writer {
    fn drop(&mut self) {
        // Whoever has to know calls `flush`.
        let _ = self.flush();
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use gpu_tuned_core::recording::{Record, StepRecord};

    use super::Writer;
    use crate::recording::read;

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
        assert_eq!((recording.records.len(), recording.is_torn), (2000, false));
    }
}
