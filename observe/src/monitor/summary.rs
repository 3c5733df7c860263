//! The summary of a run.

use std::collections::BTreeMap;

use serde::Serialize;

use super::amounts::watts;
use crate::metrics::{Figure, GPU_FIGURES, HOST_FIGURES};
use crate::recording::{Gpu, GpuSample, Record, Start, StepRecord, Throttle};
use crate::stats::{Series, Stats};

/// Collects records, in their order, into a [`Summary`]. Its memory does not grow with the records.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    /// Seconds over all monitors.
    seconds: f64,
    /// Time of the last sample of the present monitor.
    last: Option<f64>,
    gpus: BTreeMap<(u32, Option<u32>), Device>,
    host: Device,
    values: BTreeMap<String, Series>,
    steps: Steps,
}

/// The summary of a run. Means are over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// Seconds from the first sample to the last, summed over consecutive monitors.
    pub seconds: f64,
    /// Samples of the host.
    pub polls: u64,
    /// GPUs, each followed by its MIG slices.
    pub gpus: Vec<GpuSummary>,
    /// Figures of the host and the monitored program, by the keys of [`HOST_FIGURES`].
    pub host: BTreeMap<&'static str, Stats>,
    /// Values that the program recorded.
    pub values: BTreeMap<String, Stats>,
    /// Optimizer steps, if the program recorded them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepSummary>,
}

/// The summary of a GPU.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GpuSummary {
    /// The description.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// Figures by the keys of [`GPU_FIGURES`], without those that the driver does not report.
    pub figures: BTreeMap<&'static str, Stats>,
    /// Energy in joules, integrated over the power of consecutive samples.
    pub energy_j: Option<f64>,
    /// Seconds with lowered clocks, by throttle reason.
    pub throttled_s: BTreeMap<Throttle, f64>,
    /// Samples without an answer of the driver.
    pub lost_polls: u64,
}

/// The summary of optimizer steps.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepSummary {
    /// Steps of the rank that is recorded first.
    pub steps: u64,
    /// Training samples over all ranks.
    pub samples: u64,
    /// Samples per second.
    pub samples_per_s: Stats,
    /// The loss.
    pub loss: Option<Stats>,
    /// The loss of the last step that had one.
    pub last_loss: Option<f64>,
}

/// A GPU or the host.
#[derive(Clone, Debug, Default)]
struct Device {
    gpu: Gpu,
    polls: u64,
    last: Option<f64>,
    series: BTreeMap<&'static str, Series>,
    /// Time and watts of the last sample.
    power: Option<(f64, f64)>,
    energy_j: Option<f64>,
    throttled_s: BTreeMap<Throttle, f64>,
    lost_polls: u64,
}

#[derive(Clone, Debug, Default)]
struct Steps {
    rank: Option<u64>,
    taken: u64,
    samples: u64,
    samples_per_s: Series,
    loss: Series,
    last_loss: Option<f64>,
}

impl Gathering {
    /// Adds a record.
    pub fn observe(&mut self, record: &Record) {
        match record {
            Record::Start(start) => self.start(start),
            Record::Gpu(sample) => self.gpu(sample),
            Record::Host(sample) => {
                self.advance(sample.at);
                self.host.observe(sample.at, sample, &HOST_FIGURES);
            }
            Record::Step(step) => self.steps.observe(step),
            // Values come at irregular times: each counts alike.
            Record::Value(value) => self.values.entry(value.name.clone()).or_default().observe(value.value, Some(1.0)),
            _ => {}
        }
    }

    /// Returns the summary so far.
    pub fn summary(&self) -> Summary {
        let stats = |series: &BTreeMap<&'static str, Series>| {
            series.iter().filter_map(|(key, series)| Some((*key, series.stats()?))).collect()
        };
        let gpu = |device: &Device| GpuSummary {
            gpu: device.gpu.clone(),
            figures: stats(&device.series),
            energy_j: device.energy_j,
            throttled_s: device.throttled_s.clone(),
            lost_polls: device.lost_polls,
        };
        let value = |(name, series): (&String, &Series)| Some((name.clone(), series.stats()?));
        Summary {
            seconds: self.seconds,
            polls: self.host.polls,
            gpus: self.gpus.values().map(gpu).collect(),
            host: stats(&self.host.series),
            values: self.values.iter().filter_map(value).collect(),
            steps: self.steps.summary(),
        }
    }

    /// Starts a monitor. The time since the samples before does not count.
    fn start(&mut self, start: &Start) {
        self.last = None;
        for device in self.gpus.values_mut().chain([&mut self.host]) {
            (device.last, device.power) = (None, None);
        }
        for gpu in &start.gpus {
            self.gpus.entry((gpu.gpu, gpu.mig_slot)).or_default().gpu = gpu.clone();
        }
    }

    fn gpu(&mut self, sample: &GpuSample) {
        self.advance(sample.at);
        let device = self.gpus.entry((sample.gpu, sample.mig_slot)).or_default();
        (device.gpu.gpu, device.gpu.mig_slot) = (sample.gpu, sample.mig_slot);
        let seconds = device.observe(sample.at, sample, &GPU_FIGURES);
        for reason in &sample.throttle {
            *device.throttled_s.entry(*reason).or_default() += seconds.unwrap_or(0.0);
        }
        device.lost_polls += u64::from(sample.trouble.is_some());
        let drawn = sample.power_mw.map(watts);
        if let (Some((then, before)), Some(now)) = (device.power, drawn) {
            *device.energy_j.get_or_insert_default() += f64::midpoint(before, now) * (sample.at - then).max(0.0);
        }
        device.power = drawn.map(|watts| (sample.at, watts));
    }

    fn advance(&mut self, at: f64) {
        let last = self.last.unwrap_or(at);
        self.seconds += (at - last).max(0.0);
        self.last = Some(last.max(at));
    }
}

impl Device {
    /// Adds the figures of a sample, and returns the seconds since the last one.
    fn observe<S>(&mut self, at: f64, sample: &S, figures: &[Figure<S>]) -> Option<f64> {
        let seconds = self.last.replace(at).map(|last| at - last);
        self.polls += 1;
        for figure in figures {
            if let Some(value) = (figure.of)(sample) {
                self.series.entry(figure.key).or_default().observe(value, seconds);
            }
        }
        seconds.map(|seconds| seconds.max(0.0))
    }
}

impl Steps {
    fn observe(&mut self, step: &StepRecord) {
        // Every rank records its steps, with the samples of all ranks.
        if *self.rank.get_or_insert(step.rank) != step.rank {
            return;
        }
        self.taken += 1;
        self.samples = self.samples.saturating_add(step.samples);
        if step.seconds > 0.0 {
            self.samples_per_s.observe(step.samples as f64 / step.seconds, Some(step.seconds));
        }
        if let Some(loss) = step.loss {
            self.loss.observe(loss, Some(1.0));
            self.last_loss = Some(loss);
        }
    }

    fn summary(&self) -> Option<StepSummary> {
        Some(StepSummary {
            steps: self.taken,
            samples: self.samples,
            samples_per_s: self.samples_per_s.stats()?,
            loss: self.loss.stats(),
            last_loss: self.last_loss,
        })
    }
}

impl Summary {
    /// Summarizes a recording.
    pub fn from_records<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut gathering = Gathering::default();
        records.into_iter().for_each(|record| gathering.observe(record));
        gathering.summary()
    }
}
