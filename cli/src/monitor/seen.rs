//! State of the monitor: samples of each GPU, the host and the program.

use std::collections::{BTreeMap, VecDeque};

use gpu_tuned_observe::monitor::{Gathering, Summary};
use gpu_tuned_observe::recording::{Gpu, GpuSample, HostSample, Record, Run, Start, StepRecord, Value};

/// Maximum samples of each kind: over five hours at one a second.
const KEPT: usize = 20_000;

#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub start: Start,
    pub gpus: Vec<Track>,
    pub host: VecDeque<HostSample>,
    pub run: Option<Run>,
    /// Steps of the first rank.
    pub steps: VecDeque<StepRecord>,
    pub values: BTreeMap<String, Value>,
    /// Origin of times, in seconds since 1970.
    pub begun: f64,
    /// Times of the first and the last sample.
    pub first: Option<f64>,
    pub last: Option<f64>,
    gathering: Gathering,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Track {
    pub gpu: Gpu,
    pub samples: VecDeque<GpuSample>,
}

impl Seen {
    /// An empty state with this origin of times.
    pub(super) fn since(begun: f64) -> Self {
        Self { begun, ..Self::default() }
    }

    /// An empty state for a recording, from its first monitor or its first record on.
    pub(super) fn before(records: &[Record]) -> Self {
        let monitor = records.iter().find(|record| matches!(record, Record::Start(_))).and_then(Record::at);
        Self::since(monitor.or_else(|| records.iter().find_map(Record::at)).unwrap_or_default())
    }

    pub(super) fn observe(&mut self, record: &Record) {
        self.gathering.observe(record);
        match record {
            Record::Start(start) => self.begin(start),
            Record::Gpu(sample) => {
                self.saw(sample.at);
                let track = self.track(sample.gpu, sample.mig_slot);
                push(&mut track.samples, sample.clone());
            }
            Record::Host(sample) => {
                self.saw(sample.at);
                push(&mut self.host, sample.clone());
            }
            Record::Run(run) => self.run = Some((**run).clone()),
            Record::Step(step) if step.rank == 0 => push(&mut self.steps, (**step).clone()),
            Record::Value(value) => {
                self.values.insert(value.name.clone(), value.clone());
            }
            _ => {}
        }
    }

    pub(super) fn summary(&self) -> Summary {
        self.gathering.summary()
    }

    fn begin(&mut self, start: &Start) {
        self.start = start.clone();
        for gpu in &start.gpus {
            self.track(gpu.gpu, gpu.mig_slot).gpu = gpu.clone();
        }
    }

    fn track(&mut self, gpu: u32, mig_slot: Option<u32>) -> &mut Track {
        let found = self.gpus.binary_search_by_key(&(gpu, mig_slot), |track| (track.gpu.gpu, track.gpu.mig_slot));
        let place = found.unwrap_or_else(|between| {
            let mut known = Gpu::new(gpu);
            known.mig_slot = mig_slot;
            self.gpus.insert(between, Track { gpu: known, samples: VecDeque::new() });
            between
        });
        &mut self.gpus[place]
    }

    fn saw(&mut self, at: f64) {
        self.first = Some(self.first.map_or(at, |first| first.min(at)));
        self.last = Some(self.last.map_or(at, |last| last.max(at)));
    }
}

impl Track {
    pub(super) fn title(&self) -> String {
        let name = self.gpu.name.as_deref().unwrap_or("a GPU without a name");
        format!("{} {name}", self.number())
    }

    /// `GPU 0`, or `GPU 0.1` for a slice in slot 1.
    pub(super) fn number(&self) -> String {
        let slot = self.gpu.mig_slot.map(|slot| format!(".{slot}")).unwrap_or_default();
        format!("GPU {}{slot}", self.gpu.gpu)
    }

    /// Last sample up to this time.
    pub(super) fn at(&self, until: f64) -> Option<&GpuSample> {
        self.samples.iter().rev().find(|sample| sample.at <= until)
    }
}

fn push<T>(kept: &mut VecDeque<T>, new: T) {
    if kept.len() == KEPT {
        kept.pop_front();
    }
    kept.push_back(new);
}
