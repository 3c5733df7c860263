//! Samples of a monitor or a recording by device, as plots need them.

use std::collections::{BTreeMap, VecDeque};

use super::{Gathering, Summary};
use crate::recording::{Gpu, GpuSample, HostSample, Record, Run, Start, StepRecord, Value};

/// Maximum samples of each kind: over five hours at one a second.
const KEPT: usize = 20_000;

/// The last samples of each GPU, the host and the program.
#[derive(Clone, Debug, Default)]
pub struct Timeline {
    /// Begin of the last monitor.
    pub start: Start,
    /// GPUs in the order of their numbers and slots.
    pub gpus: Vec<GpuTimeline>,
    /// Samples of the host, the oldest first.
    pub host: VecDeque<HostSample>,
    /// The program.
    pub run: Option<Run>,
    /// Steps of the rank that is recorded first.
    pub steps: VecDeque<StepRecord>,
    /// The last value of each name.
    pub values: BTreeMap<String, Value>,
    /// Origin of times, in seconds since 1970.
    pub begun: f64,
    /// Time of the first sample, in seconds since 1970.
    pub first: Option<f64>,
    /// Time of the last sample, in seconds since 1970.
    pub last: Option<f64>,
    gathering: Gathering,
}

/// The last samples of one GPU or slice.
#[derive(Clone, Debug, Default)]
pub struct GpuTimeline {
    /// The GPU.
    pub gpu: Gpu,
    /// Samples, the oldest first.
    pub samples: VecDeque<GpuSample>,
}

impl Timeline {
    /// An empty timeline with this origin of times, in seconds since 1970.
    pub fn since(begun: f64) -> Self {
        Self { begun, ..Self::default() }
    }

    /// An empty timeline for a recording, from its first monitor or its first record on.
    pub fn before(records: &[Record]) -> Self {
        let monitor = records.iter().find(|record| matches!(record, Record::Start(_))).and_then(Record::at);
        Self::since(monitor.or_else(|| records.iter().find_map(Record::at)).unwrap_or_default())
    }

    /// Adds a record.
    pub fn observe(&mut self, record: &Record) {
        self.gathering.observe(record);
        match record {
            Record::Start(start) => {
                self.start = start.clone();
                for gpu in &start.gpus {
                    self.track(gpu.gpu, gpu.mig_slot).gpu = gpu.clone();
                }
            }
            Record::Gpu(sample) => {
                self.extend(sample.at);
                push(&mut self.track(sample.gpu, sample.mig_slot).samples, sample.clone());
            }
            Record::Host(sample) => {
                self.extend(sample.at);
                push(&mut self.host, sample.clone());
            }
            Record::Run(run) => self.run = Some((**run).clone()),
            Record::Step(step) if self.steps.front().is_none_or(|first| first.rank == step.rank) => {
                push(&mut self.steps, (**step).clone());
            }
            Record::Value(value) => {
                self.values.insert(value.name.clone(), value.clone());
            }
            _ => {}
        }
    }

    /// Summarizes all records.
    pub fn summary(&self) -> Summary {
        self.gathering.summary()
    }

    fn track(&mut self, gpu: u32, mig_slot: Option<u32>) -> &mut GpuTimeline {
        let found = self.gpus.binary_search_by_key(&(gpu, mig_slot), |track| (track.gpu.gpu, track.gpu.mig_slot));
        let place = found.unwrap_or_else(|between| {
            let mut known = Gpu::new(gpu);
            known.mig_slot = mig_slot;
            self.gpus.insert(between, GpuTimeline { gpu: known, samples: VecDeque::new() });
            between
        });
        &mut self.gpus[place]
    }

    fn extend(&mut self, at: f64) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
    }
}

impl GpuTimeline {
    /// `GPU 0 NVIDIA H200`.
    pub fn title(&self) -> String {
        let name = self.gpu.name.as_deref().unwrap_or("a GPU without a name");
        format!("{} {name}", self.number())
    }

    /// `GPU 0`, or `GPU 0.1` for a slice in slot 1.
    pub fn number(&self) -> String {
        let slot = self.gpu.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
        format!("GPU {}{slot}", self.gpu.gpu)
    }

    /// Returns the last sample up to this time, in seconds since 1970.
    pub fn at(&self, until: f64) -> Option<&GpuSample> {
        self.samples.iter().rev().find(|sample| sample.at <= until)
    }
}

fn push<T>(kept: &mut VecDeque<T>, new: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(new);
}
