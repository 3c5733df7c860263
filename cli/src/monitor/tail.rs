//! What a program writes into the recording while it is watched.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use gpu_tuned::recording::Record;

/// Follows a recording that others write, too.
#[derive(Debug, Default)]
pub(super) struct Tail {
    path: PathBuf,
    file: Option<File>,
    /// The beginning of a line whose end is not there yet.
    begun: Vec<u8>,
}

impl Tail {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), ..Self::default() }
    }

    /// What programs have written since the last call: runs, steps and values. What cannot be read is passed over.
    pub(super) fn news(&mut self) -> Vec<Record> {
        // A pipe has nothing to go back to, and a device may never end.
        if self.file.is_none() && self.path.is_file() {
            self.file = File::open(&self.path).ok();
        }
        let Some(file) = &mut self.file else { return Vec::new() };
        if file.read_to_end(&mut self.begun).is_err() {
            return Vec::new();
        }
        let end = self.begun.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.begun.drain(..end).collect();
        let records = lines.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        records.filter(|record| matches!(record, Record::Run(_) | Record::Step(_) | Record::Value(_))).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::Tail;

    #[test]
    fn lines_are_read_once_and_when_they_are_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        let mut tail = Tail::new(&path);
        assert!(tail.news().is_empty());
        let append = |text: &str| {
            let mut file = OpenOptions::new().create(true).append(true).open(&path).expect("a file");
            file.write_all(text.as_bytes()).expect("it is written");
        };
        append("{\"kind\":\"step\",\"at\":1.0,\"step\":1}\n{\"kind\":\"host\",\"at\":1.0}\nnonsense\n{\"kind\":\"va");
        assert_eq!(tail.news().len(), 1);
        assert_eq!(tail.news().len(), 0);
        append("lue\",\"at\":2.0,\"name\":\"loss\",\"value\":1.0}\n");
        assert_eq!(tail.news().len(), 1);
    }
}
