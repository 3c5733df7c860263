//! What a monitor has seen.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use crate::recording::{GpuSample, HostSample, Record, Start, Value};
use serde::Serialize;

use super::summary::{Gathering, Summary};
use crate::recording::Writer;

/// The last that was seen of everything.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Latest {
    /// What is watched, and what is the matter with what is not.
    pub start: Start,
    /// The GPUs, each followed by its slices; none before the first look.
    pub gpus: Vec<GpuSample>,
    /// The host and the program.
    pub host: Option<HostSample>,
    /// Figures that the program named, each as it was last.
    pub values: BTreeMap<String, Value>,
}

/// What a monitor has seen, as its threads share it.
pub(super) struct State {
    latest: Latest,
    history: VecDeque<Record>,
    /// Records that are not kept any more.
    forgotten: u64,
    room: usize,
    gathering: Gathering,
    writer: Option<Writer>,
    /// Why the recording is not written any more.
    pub(super) write_error: Option<io::Error>,
}

impl Latest {
    /// Takes a record in.
    pub fn observe(&mut self, record: &Record) {
        match record {
            Record::Start(start) => self.start = start.clone(),
            Record::Gpu(sample) => {
                let place = (sample.gpu, sample.mig_slot);
                match self.gpus.binary_search_by_key(&place, |gpu| (gpu.gpu, gpu.mig_slot)) {
                    Ok(found) => self.gpus[found] = sample.clone(),
                    Err(between) => self.gpus.insert(between, sample.clone()),
                }
            }
            Record::Host(sample) => self.host = Some(sample.clone()),
            Record::Value(value) => {
                self.values.insert(value.name.clone(), value.clone());
            }
            _ => {}
        }
    }
}

impl State {
    pub(super) fn new(room: usize, writer: Option<Writer>) -> Self {
        Self {
            latest: Latest::default(),
            history: VecDeque::new(),
            forgotten: 0,
            room,
            gathering: Gathering::default(),
            writer,
            write_error: None,
        }
    }

    /// Takes records in, and writes them down.
    pub(super) fn observe(&mut self, records: Vec<Record>) {
        for record in records {
            self.latest.observe(&record);
            self.gathering.observe(&record);
            self.write(|writer| writer.write(&record));
            self.history.push_back(record);
            while self.history.len() > self.room {
                self.history.pop_front();
                self.forgotten += 1;
            }
        }
    }

    /// Has what was written reach the file.
    pub(super) fn flush(&mut self) {
        self.write(Writer::flush);
    }

    pub(super) const fn latest(&self) -> &Latest {
        &self.latest
    }

    pub(super) const fn history(&self) -> &VecDeque<Record> {
        &self.history
    }

    pub(super) fn summary(&self) -> Summary {
        self.gathering.summary()
    }

    /// The records from number `from` on, as far as they are kept, and the number of the next one.
    pub(super) fn since(&self, from: u64) -> (u64, Vec<Record>) {
        let next = self.forgotten + self.history.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(self.forgotten)).unwrap_or(usize::MAX);
        (next, self.history.iter().skip(skipped).cloned().collect())
    }

    /// A file that cannot be written is given up, and watching goes on.
    fn write(&mut self, act: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(Err(error)) = self.writer.as_mut().map(act) else { return };
        tracing::warn!("the recording is given up: {error}");
        (self.writer, self.write_error) = (None, Some(error));
    }
}
