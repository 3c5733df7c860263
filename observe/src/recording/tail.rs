//! Records of a program that runs.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use super::Record;

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

#[cfg(test)]
mod tests {
    use std::fs::OpenOptions;
    use std::io::Write;

    use super::{Record, Tail};

    #[test]
    fn lines_are_read_once_and_when_they_are_whole() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        let mut tail = Tail::new(&path, 0.0);
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

    #[test]
    fn a_file_without_lines_is_not_kept_in_memory() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        let file = std::fs::File::create(&path).expect("a file");
        file.set_len(super::LONGEST_LINE as u64 * 3 + 5).expect("a size");
        let mut tail = Tail::new(&path, 0.0);
        assert_eq!(tail.news().len(), 0);
        assert!(tail.begun.len() <= super::LONGEST_LINE, "{}", tail.begun.len());
        let mut file = OpenOptions::new().append(true).open(&path).expect("a file");
        file.write_all(b"\n{\"kind\":\"step\",\"at\":1.0,\"step\":1}\n").expect("it is written");
        assert_eq!(tail.news().len(), 1);
    }

    #[test]
    fn of_what_was_before_only_the_last_run_is_news() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("run.jsonl");
        let line = |kind: &str, at: f64| format!("{{\"kind\":\"{kind}\",\"at\":{at}}}\n");
        let text =
            [("run", 1.0), ("step", 2.0), ("run", 3.0), ("step", 4.0), ("value", 9.0), ("step", 10.0), ("run", 11.0)];
        std::fs::write(&path, text.map(|(kind, at)| line(kind, at)).concat()).expect("it is written");
        let times: Vec<_> = Tail::new(&path, 10.0).news().iter().filter_map(Record::at).collect();
        assert_eq!(times, [3.0, 10.0, 11.0]);
    }
}
