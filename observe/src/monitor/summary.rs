//! What a run amounts to.

use std::collections::BTreeMap;

use crate::recording::{Gpu, GpuSample, HostSample, Record, Start, StepRecord, Throttle, Value};
use serde::Serialize;

use super::series::{Series, Stats};
use crate::metrics::{Figure, GPU_FIGURES, HOST_FIGURES};

/// Gathers records into a [`Summary`], in the order in which they were made; what it keeps does not grow with them.
#[derive(Clone, Debug, Default)]
pub struct Gathering {
    /// Over all monitors, in seconds.
    watched: f64,
    /// The last look of the monitor that looks.
    last: Option<f64>,
    gpus: BTreeMap<(u32, Option<u32>), Unit>,
    host: Unit,
    values: BTreeMap<String, Series>,
    steps: Steps,
}

/// What a run amounts to. Averages are over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Summary {
    /// From the first look to the last, in seconds; of several monitors one after the other, added up.
    pub seconds: f64,
    /// Looks at the host.
    pub looks: u64,
    /// The GPUs, each followed by its slices.
    pub gpus: Vec<GpuSummary>,
    /// Figures of the host and the watched program, by the keys of [`HOST_FIGURES`].
    pub host: BTreeMap<&'static str, Stats>,
    /// Figures that the program named.
    pub values: BTreeMap<String, Stats>,
    /// Optimizer steps, where the program recorded them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<StepSummary>,
}

/// A GPU over a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[non_exhaustive]
pub struct GpuSummary {
    /// What it is.
    #[serde(flatten)]
    pub gpu: Gpu,
    /// By the keys of [`GPU_FIGURES`]; a figure that the driver does not have is left out.
    pub figures: BTreeMap<&'static str, Stats>,
    /// Energy in joules, from the power of looks that follow each other.
    pub energy_j: Option<f64>,
    /// Seconds in which something held the clocks down, by what it was.
    pub throttled_s: BTreeMap<Throttle, f64>,
    /// Looks at which it could not be used.
    pub lost_looks: u64,
}

/// The optimizer steps of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct StepSummary {
    /// How many, on the first rank.
    pub steps: u64,
    /// Samples in all of them, over all ranks.
    pub samples: u64,
    /// Samples per second.
    pub samples_per_s: Stats,
    /// The loss.
    pub loss: Option<Stats>,
    /// The loss of the last step that had one.
    pub last_loss: Option<f64>,
}

/// A GPU or the host, as it is gathered.
#[derive(Clone, Debug, Default)]
struct Unit {
    gpu: Gpu,
    looks: u64,
    last: Option<f64>,
    series: BTreeMap<&'static str, Series>,
    /// When and how much was drawn at the last look.
    power: Option<(f64, f64)>,
    energy_j: Option<f64>,
    throttled_s: BTreeMap<Throttle, f64>,
    lost_looks: u64,
}

#[derive(Clone, Debug, Default)]
struct Steps {
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
            Record::Host(sample) => self.host(sample),
            Record::Step(step) => self.steps.observe(step),
            Record::Value(value) => self.value(value),
            _ => {}
        }
    }

    /// What was gathered so far.
    pub fn summary(&self) -> Summary {
        let stats = |series: &BTreeMap<&'static str, Series>| {
            series.iter().filter_map(|(key, series)| Some((*key, series.stats()?))).collect()
        };
        let gpu = |unit: &Unit| GpuSummary {
            gpu: unit.gpu.clone(),
            figures: stats(&unit.series),
            energy_j: unit.energy_j,
            throttled_s: unit.throttled_s.clone(),
            lost_looks: unit.lost_looks,
        };
        let value = |(name, series): (&String, &Series)| Some((name.clone(), series.stats()?));
        Summary {
            seconds: self.watched,
            looks: self.host.looks,
            gpus: self.gpus.values().map(gpu).collect(),
            host: stats(&self.host.series),
            values: self.values.iter().filter_map(value).collect(),
            steps: self.steps.summary(),
        }
    }

    /// A monitor begins: what was before does not last until its first look.
    fn start(&mut self, start: &Start) {
        self.last = None;
        for unit in self.gpus.values_mut().chain([&mut self.host]) {
            (unit.last, unit.power) = (None, None);
        }
        for gpu in &start.gpus {
            self.gpus.entry((gpu.gpu, gpu.mig_slot)).or_default().gpu = gpu.clone();
        }
    }

    fn gpu(&mut self, sample: &GpuSample) {
        self.saw(sample.at);
        let unit = self.gpus.entry((sample.gpu, sample.mig_slot)).or_default();
        (unit.gpu.gpu, unit.gpu.mig_slot) = (sample.gpu, sample.mig_slot);
        let seconds = unit.observe(sample.at, sample, &GPU_FIGURES);
        for reason in &sample.throttle {
            *unit.throttled_s.entry(*reason).or_default() += seconds.unwrap_or(0.0);
        }
        unit.lost_looks += u64::from(sample.trouble.is_some());
        let watts = sample.power_mw.map(|milliwatts| f64::from(milliwatts) / 1e3);
        if let (Some((then, before)), Some(now)) = (unit.power, watts) {
            *unit.energy_j.get_or_insert_default() += f64::midpoint(before, now) * (sample.at - then).max(0.0);
        }
        unit.power = watts.map(|watts| (sample.at, watts));
    }

    fn host(&mut self, sample: &HostSample) {
        self.saw(sample.at);
        self.host.observe(sample.at, sample, &HOST_FIGURES);
    }

    fn value(&mut self, value: &Value) {
        // Values come when the program has them: each counts alike.
        self.values.entry(value.name.clone()).or_default().observe(value.value, Some(1.0));
    }

    fn saw(&mut self, at: f64) {
        let last = self.last.unwrap_or(at);
        self.watched += (at - last).max(0.0);
        self.last = Some(last.max(at));
    }
}

impl Unit {
    /// Adds all figures that a sample has, and gives the time since the last look.
    fn observe<S>(&mut self, at: f64, sample: &S, figures: &[Figure<S>]) -> Option<f64> {
        let seconds = self.last.replace(at).map(|last| at - last);
        self.looks += 1;
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
        // Each rank writes its own steps; samples are those of all ranks.
        if step.rank != 0 {
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
    /// What a recording amounts to.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut gathering = Gathering::default();
        records.into_iter().for_each(|record| gathering.observe(record));
        gathering.summary()
    }
}

#[cfg(test)]
mod tests {
    use crate::recording::{Gpu, GpuSample, HostSample, Record, Start, StepRecord, Throttle, Value};

    use super::Summary;

    /// Looks at GPU 0 with its power in watts.
    fn looks(looks: &[(f64, Option<u32>)]) -> Vec<Record> {
        let look = |&(at, watts): &(f64, Option<u32>)| {
            let mut sample = GpuSample::new(at, 0);
            sample.power_mw = watts.map(|watts| watts * 1000);
            sample.trouble = watts.is_none().then(|| "lost".to_owned());
            Record::Gpu(sample)
        };
        looks.iter().map(look).collect()
    }

    #[test]
    fn energy_is_that_of_the_trapezes_between_looks() {
        let gpu = Summary::of(&looks(&[(0.0, Some(100)), (2.0, Some(300)), (3.0, Some(300))])).gpus.remove(0);
        assert_eq!(gpu.energy_j, Some(400.0 + 300.0));
        let power = gpu.figures["power_w"];
        // The first look is given the 2 s of the second.
        assert_eq!((power.mean, power.min, power.max), ((2.0 * 100.0 + 2.0 * 300.0 + 300.0) / 5.0, 100.0, 300.0));
        assert_eq!(Summary::of(&looks(&[(0.0, Some(100))])).gpus[0].energy_j, None);
    }

    #[test]
    fn while_it_is_lost_nothing_is_counted() {
        let all = [(0.0, Some(100)), (1.0, Some(100)), (2.0, None), (60.0, None), (61.0, Some(400)), (62.0, Some(400))];
        let gpu = Summary::of(&looks(&all)).gpus.remove(0);
        assert_eq!((gpu.energy_j, gpu.lost_looks), (Some(100.0 + 400.0), 2));
        assert_eq!((gpu.figures["power_w"].count, gpu.figures["power_w"].mean), (4, 250.0));
    }

    #[test]
    fn a_second_monitor_in_the_same_file_does_not_count_the_time_between() {
        let mut records = looks(&[(0.0, Some(100)), (1.0, Some(100))]);
        let mut start = Start::default();
        start.gpus = vec![Gpu::new(0)];
        start.gpus[0].name = Some("NVIDIA H200".to_owned());
        records.push(Record::Start(start));
        records.extend(looks(&[(1000.0, Some(200)), (1001.0, Some(200))]));
        let mut summary = Summary::of(&records);
        let gpu = summary.gpus.remove(0);
        assert_eq!((summary.seconds, gpu.energy_j, gpu.figures["power_w"].mean), (2.0, Some(300.0), 150.0));
        assert_eq!(gpu.gpu.name.as_deref(), Some("NVIDIA H200"));
    }

    #[test]
    fn time_under_each_reason_is_added_up() {
        let look = |at: f64, throttle: &[Throttle]| {
            let mut sample = GpuSample::new(at, 0);
            sample.throttle = throttle.to_vec();
            Record::Gpu(sample)
        };
        let (power, heat) = (Throttle::PowerCap, Throttle::ThermalSoftware);
        let gpu = Summary::of(&[look(0.0, &[]), look(1.0, &[power]), look(3.0, &[power, heat]), look(4.0, &[])]);
        assert_eq!(gpu.gpus[0].throttled_s, [(power, 3.0), (heat, 2.0)].into());
    }

    #[test]
    fn steps_of_the_first_rank_are_counted_with_the_samples_of_all() {
        let step = |number: u64, rank: u64, seconds: f64, loss: Option<f64>| {
            let mut step = StepRecord::new(number as f64, number);
            (step.rank, step.seconds, step.samples, step.loss) = (rank, seconds, 64, loss);
            Record::Step(Box::new(step))
        };
        let records =
            [step(1, 0, 0.5, Some(3.0)), step(1, 1, 0.5, None), step(2, 0, 2.0, Some(1.0)), step(3, 0, 0.5, None)];
        let steps = Summary::of(&records).steps.expect("there are steps");
        assert_eq!((steps.steps, steps.samples, steps.last_loss), (3, 192, Some(1.0)));
        assert_eq!((steps.samples_per_s.mean, steps.loss.map(|loss| loss.mean)), (64.0, Some(2.0)));
    }

    #[test]
    fn values_and_the_host_are_part_of_it() {
        let mut host = HostSample::new(5.0);
        host.cpu_percent = Some(40.0);
        let records = [
            Record::Host(HostSample::new(3.0)),
            Record::Value(Value::new(3.5, "valid/loss", 2.0)),
            Record::Value(Value::new(4.0, "valid/loss", 1.0)),
            Record::Host(host),
            Record::Unknown,
        ];
        let summary = Summary::of(&records);
        assert_eq!((summary.seconds, summary.looks, summary.host["cpu_percent"].mean), (2.0, 2, 40.0));
        assert_eq!((summary.values["valid/loss"].mean, summary.values["valid/loss"].count), (1.5, 2));
        assert!(summary.steps.is_none() && summary.gpus.is_empty());
    }
}
