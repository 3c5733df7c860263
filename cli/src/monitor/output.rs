//! Output while the machine is watched.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use gpu_tuned_observe::monitor::{Summary, csv_header, csv_line};
use gpu_tuned_observe::recording::Record;

use super::args::MonitorArgs;
use super::lines;
use super::seen::{Seen, Track};
use crate::error::Error;
use crate::output::print;

pub(super) enum Ended {
    Whole(Box<Seen>),
    /// The reader has closed the output.
    NobodyReads,
}

/// Records on their way to the standard output and a table.
pub(super) struct Output {
    kind: Kind,
    table: Option<Table>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Lines,
    Json,
    Csv,
}

/// A file of comma-separated values, written a line at a time.
pub(super) struct Table {
    path: PathBuf,
    file: File,
}

impl Output {
    pub(super) fn new(is_json: bool, args: &MonitorArgs) -> Result<Self, Error> {
        let kind = match (is_json, args.prints_csv()) {
            (true, _) => Kind::Json,
            (_, true) => Kind::Csv,
            _ => Kind::Lines,
        };
        let table = args.csv_file().map(|path| Table::create(path)).transpose()?;
        if kind == Kind::Csv {
            print(&csv_header()).map_err(Error::Print)?;
        }
        Ok(Self { kind, table })
    }

    /// Writes a record that is in `seen`. Returns false when the reader has closed the output.
    pub(super) fn write(&mut self, record: &Record, seen: &Seen) -> Result<bool, Error> {
        if let Some(table) = &mut self.table {
            table.write(record, seen)?;
        }
        let text = match self.kind {
            Kind::Lines => lines::line(record, seen),
            Kind::Json => Some(format!("{}\n", serde_json::to_string(record).expect("BUG: records are always JSON"))),
            Kind::Csv => csv_line(record, uuid(record, seen)),
        };
        text.map_or(Ok(true), |text| print(&text)).map_err(Error::Print)
    }
}

impl Table {
    pub(super) fn create(path: &Path) -> Result<Self, Error> {
        let failure = |source| Error::Write { path: path.to_owned(), source };
        let mut file = File::create(path).map_err(failure)?;
        file.write_all(csv_header().as_bytes()).map_err(failure)?;
        Ok(Self { path: path.to_owned(), file })
    }

    pub(super) fn write(&mut self, record: &Record, seen: &Seen) -> Result<(), Error> {
        let Some(line) = csv_line(record, uuid(record, seen)) else { return Ok(()) };
        let written = self.file.write_all(line.as_bytes());
        written.map_err(|source| Error::Write { path: self.path.clone(), source })
    }
}

pub(super) fn summary_line(summary: &Summary) -> String {
    let mut json = serde_json::to_value(summary).expect("BUG: a summary is always JSON");
    json["kind"] = "summary".into();
    format!("{json}\n")
}

fn uuid<'a>(record: &Record, seen: &'a Seen) -> Option<&'a str> {
    let Record::Gpu(sample) = record else { return None };
    let is_it = |track: &&Track| (track.gpu.gpu, track.gpu.mig_slot) == (sample.gpu, sample.mig_slot);
    seen.gpus.iter().find(is_it)?.gpu.uuid.as_deref()
}
