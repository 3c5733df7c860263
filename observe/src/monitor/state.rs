//! State of a monitor.

use std::collections::{BTreeMap, VecDeque};
use std::io;

use crate::recording::{GpuSample, HostSample, Record, Start, Value};
use serde::Serialize;

use super::summary::Gathering;
use crate::recording::Writer;

/// The last record of each device and value.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Latest {
    /// Descriptions of the devices, and reasons for missing ones.
    pub start: Start,
    /// GPUs, each followed by its MIG slices; empty before the first sample.
    pub gpus: Vec<GpuSample>,
    /// Host and program.
    pub host: Option<HostSample>,
    /// Last values that the program recorded, by name.
    pub values: BTreeMap<String, Value>,
}

/// State that a monitor and its thread share.
pub(super) struct State {
    pub(super) latest: Latest,
    pub(super) history: VecDeque<Record>,
    /// Records that were dropped from the history.
    dropped: u64,
    max_history: usize,
    pub(super) gathering: Gathering,
    writer: Option<Writer>,
    /// The error that ended the recording.
    pub(super) write_error: Option<io::Error>,
}

impl Latest {
    /// Replaces the last record of its kind.
    pub fn observe(&mut self, record: &Record) {
        match record {
            Record::Start(start) => self.start = start.clone(),
            Record::Gpu(sample) => {
                let key = (sample.gpu, sample.mig_slot);
                match self.gpus.binary_search_by_key(&key, |gpu| (gpu.gpu, gpu.mig_slot)) {
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
    pub(super) fn new(max_history: usize, writer: Option<Writer>) -> Self {
        Self {
            latest: Latest::default(),
            history: VecDeque::new(),
            dropped: 0,
            max_history,
            gathering: Gathering::default(),
            writer,
            write_error: None,
        }
    }

    /// Adds records, and writes them to the recording.
    pub(super) fn observe(&mut self, records: Vec<Record>) {
        for record in records {
            self.latest.observe(&record);
            self.gathering.observe(&record);
            self.write(|writer| writer.write(&record));
            self.history.push_back(record);
            while self.history.len() > self.max_history {
                self.history.pop_front();
                self.dropped += 1;
            }
        }
    }

    /// Writes the buffer of the recording to the file.
    pub(super) fn flush(&mut self) {
        self.write(Writer::flush);
    }

    /// Returns the kept records from number `from` on, and the number of the next record.
    pub(super) fn since(&self, from: u64) -> (u64, Vec<Record>) {
        let next = self.dropped + self.history.len() as u64;
        let skipped = usize::try_from(from.saturating_sub(self.dropped)).unwrap_or(usize::MAX);
        (next, self.history.iter().skip(skipped).cloned().collect())
    }

    /// Writes to the recording. If that fails, the recording ends, and monitoring goes on.
    fn write(&mut self, act: impl FnOnce(&mut Writer) -> io::Result<()>) {
        let Some(Err(error)) = self.writer.as_mut().map(act) else { return };
        tracing::warn!("the recording ends: {error}");
        (self.writer, self.write_error) = (None, Some(error));
    }
}
