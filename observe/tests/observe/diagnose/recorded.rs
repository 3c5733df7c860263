//! A made-up recording of a healthy run, to be changed.

use gpu_tuned_core::{Provenance, Settings};
use gpu_tuned_observe::recording::{
    Expected, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, parse,
};

pub(super) const GIB: u64 = 1 << 30;

/// 200 steps of 100 ms on an H200: 5 ms launching, 95 ms on the device, in two micro-batches of 64.
#[derive(Clone, Debug)]
pub(super) struct Made {
    pub start: Start,
    pub run: Run,
    pub steps: Vec<StepRecord>,
    /// Samples before the run began.
    pub before: Vec<GpuSample>,
    pub gpu: Vec<GpuSample>,
    pub host: Vec<HostSample>,
}

impl Made {
    /// Repeats the step and the samples of a recording.
    pub(super) fn healthy() -> Self {
        let recording = parse("healthy.jsonl", include_str!("healthy.jsonl")).expect("a recording");
        let Ok([Record::Start(start), Record::Run(run), Record::Step(step), Record::Gpu(gpu), Record::Host(host)]) =
            <[Record; 5]>::try_from(recording.records)
        else {
            panic!("other records");
        };
        let mut steps = vec![*step; 200];
        (1..).zip(&mut steps).for_each(|(number, step)| step.step = number);
        Self { start, run: *run, steps, before: Vec::new(), gpu: vec![gpu; 40], host: vec![host; 40] }.timed()
    }

    pub(super) fn each_step(mut self, change: impl Fn(&mut StepRecord)) -> Self {
        self.steps.iter_mut().for_each(change);
        self.timed()
    }

    pub(super) fn each_sample(mut self, change: impl Fn(&mut GpuSample)) -> Self {
        self.gpu.iter_mut().for_each(change);
        self
    }

    pub(super) fn each_process(mut self, change: impl Fn(&mut ProcessSample)) -> Self {
        self.host.iter_mut().filter_map(|sample| sample.process.as_mut()).for_each(change);
        self
    }

    pub(super) fn started(mut self, change: impl FnOnce(&mut Run)) -> Self {
        change(&mut self.run);
        self
    }

    pub(super) fn with_settings(self, change: impl FnOnce(&mut Settings)) -> Self {
        self.started(|run| change(run.settings.as_mut().unwrap()))
    }

    /// The run of a program that records nothing.
    pub(super) fn without_steps(mut self) -> Self {
        self.steps.clear();
        self
    }

    /// Moves the ends of the steps and the samples to fit the steps' lengths.
    fn timed(mut self) -> Self {
        let mut at = 0.0;
        for step in &mut self.steps {
            at += step.seconds;
            step.at = at;
        }
        let samples = self.gpu.len() as f64;
        for (number, (gpu, host)) in self.gpu.iter_mut().zip(&mut self.host).enumerate() {
            gpu.at = at * (number + 1) as f64 / samples;
            host.at = gpu.at;
        }
        self
    }

    pub(super) fn records(self) -> Vec<Record> {
        let mut records = vec![Record::Start(self.start)];
        records.extend(self.before.into_iter().map(Record::Gpu));
        records.extend((!self.steps.is_empty()).then(|| Record::Run(Box::new(self.run))));
        records.extend(self.steps.into_iter().map(|step| Record::Step(Box::new(step))));
        records.extend(self.gpu.into_iter().map(Record::Gpu));
        records.extend(self.host.into_iter().map(Record::Host));
        records
    }
}

pub(super) fn expected(batch: u64, samples_per_s: f64, gib: u64) -> Expected {
    let mut point = Expected::default();
    (point.batch, point.samples_per_s, point.memory_bytes) = (batch, samples_per_s, gib * GIB);
    (point.fits, point.provenance) = (gib <= 120, Some(Provenance::Measured));
    point
}
