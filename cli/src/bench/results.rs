//! The file of results.

use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use gpu_tuned_core::regular_file;
use gpu_tuned_observe::bench::{Line, Outcome, Record, Setup};

use crate::error::Error;

pub(super) struct Results {
    path: PathBuf,
}

impl Results {
    /// Name of the file, beside Cargo.toml.
    pub(super) const NAME: &'static str = "gpu-tuned.bench.jsonl";

    /// The results in a folder. A file with other content is refused.
    pub(super) fn below(root: &Path) -> Result<Self, Error> {
        let results = Self { path: root.join(Self::NAME) };
        let bytes = results.bytes()?;
        if !bytes.is_empty() && lines(&bytes).next().is_none() {
            return Err(Error::NoResults { path: results.path });
        }
        Ok(results)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn len(&self) -> Result<u64, Error> {
        Ok(self.bytes()?.len() as u64)
    }

    /// Results from this byte on.
    pub(super) fn since(&self, byte: u64) -> Result<Record, Error> {
        let bytes = self.bytes()?;
        let from = usize::try_from(byte).unwrap_or(usize::MAX).min(bytes.len());
        Ok(Record::from_lines(lines(&bytes[from..])))
    }

    /// Appends the result of a configuration.
    pub(super) fn add(&self, setup: Setup, outcome: Outcome) -> Result<(), Error> {
        let cut_off = self.bytes()?.last().is_some_and(|last| *last != b'\n');
        let line = serde_json::to_string(&Line::Ended { setup, outcome: Box::new(outcome) });
        let line = line.expect("BUG: a line is always JSON");
        let text = format!("{}{line}\n", if cut_off { "\n" } else { "" });
        let append = || File::options().append(true).open(&self.path)?.write_all(text.as_bytes());
        append().map_err(|source: io::Error| Error::Write { path: self.path.clone(), source })
    }

    fn bytes(&self) -> Result<Vec<u8>, Error> {
        match regular_file::read(&self.path, regular_file::LARGEST) {
            Ok(bytes) => Ok(bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
            Err(source) => Err(Error::Read { path: self.path.clone(), source }),
        }
    }
}

/// Complete lines.
fn lines(bytes: &[u8]) -> impl Iterator<Item = Line> {
    bytes.split(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok())
}
