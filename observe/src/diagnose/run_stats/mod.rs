//! Statistics of the run that a recording is judged by.

mod gpu_stats;
mod steps;

use std::collections::BTreeSet;

use crate::recording::{GpuSample, HostSample, Record, Run, Start, StepRecord, is_of_process, last_run, set_back};
use crate::stats::mean;
pub(super) use gpu_stats::{GpuStats, MIN_SAMPLES};
pub(super) use steps::{MIN_STEPS, Memory, Parts, Steps};

/// Statistics of the run that began last.
#[derive(Clone, Debug)]
pub(super) struct RunStats<'a> {
    pub start: Option<&'a Start>,
    pub run: Option<&'a Run>,
    /// The run's process, where it is known.
    pub pid: Option<u32>,
    /// Steps after warm-up; their number where they are too few.
    pub steps: Result<Steps, usize>,
    /// A reason to doubt that the steps are those of the run.
    pub doubt: Option<Doubt>,
    /// The run's GPUs that have enough samples.
    pub gpus: Vec<GpuStats<'a>>,
    /// The last reason for a sample without figures.
    pub trouble: Option<&'a str>,
    pub host: Vec<&'a HostSample>,
    /// Begin and end of the judged time, in seconds since 1970 (UTC).
    pub span: (f64, f64),
}

impl<'a> RunStats<'a> {
    pub(super) fn from_records(records: &'a [Record]) -> Self {
        let run = last_run(records);
        let (steps, doubt) = steps_of_run(run, records);
        let began = run.map_or(f64::NEG_INFINITY, |run| run.at);
        let ended = records.iter().filter_map(|record| match record {
            Record::Step(step) if step.at < began => Some(step.at),
            _ => None,
        });
        let idle = (ended.fold(f64::NEG_INFINITY, f64::max), began);
        let steps = Steps::from_records(&steps);
        let gpus: Vec<&GpuSample> = sorted_by_time(records, |record| match record {
            Record::Gpu(sample) => Some((sample.at, sample)),
            _ => None,
        });
        let span = steps.as_ref().map_or_else(|_| sampled_span(records, began), |steps| steps.span);
        let start = last_start(records, span.1);
        let host: Vec<&HostSample> = sorted_by_time(records, |record| match record {
            Record::Host(sample) if (span.0..=span.1).contains(&sample.at) => Some((sample.at, sample)),
            _ => None,
        });
        let monitored = host.iter().find_map(|sample| sample.process.as_ref()).map(|process| process.pid);
        let pid = run.map(|run| run.pid).or(monitored);
        let trouble = gpus.iter().rev().find_map(|sample| sample.trouble.as_deref());
        let gpus = gpu_stats::of_run(start, run, pid, &gpus, span, idle);
        Self { start, run, pid, steps, doubt, gpus, trouble, host, span }
    }

    /// Part of the time in which kernels ran, averaged over the GPUs.
    pub(super) fn busy(&self) -> Option<f64> {
        mean(self.gpus.iter().filter_map(GpuStats::busy))
    }

    /// Part of the SMs that worked, averaged over the GPUs.
    pub(super) fn sm_activity(&self) -> Option<f64> {
        mean(self.gpus.iter().filter_map(GpuStats::sm_activity))
    }

    /// CPU cores that the program keeps busy.
    pub(super) fn busy_cores(&self) -> Option<f64> {
        let of = |sample: &&HostSample| sample.process.as_ref().and_then(|process| process.cpu_percent);
        let figures: Vec<_> = self.host.iter().filter_map(of).collect();
        (figures.len() >= MIN_SAMPLES).then(|| mean(figures)).flatten().map(|percent| percent / 100.0)
    }

    /// CPU cores of the host.
    pub(super) fn cores(&self) -> Option<f64> {
        self.start.map(|start| start.cores as f64).filter(|cores| *cores > 0.0)
    }

    /// Largest reservation of the run's pools in bytes.
    pub(super) fn reserved(&self) -> Option<u64> {
        self.steps.as_ref().ok()?.memory.iter().filter_map(|memory| memory.reserved).max()
    }

    /// Returns whether a recorded run trains on a GPU.
    pub(super) fn is_on_gpu(&self) -> bool {
        self.run.is_some_and(|run| run.device.is_gpu)
    }

    /// Ranks that train together.
    pub(super) fn ranks(&self) -> f64 {
        self.run.map_or(1.0, |run| run.world_size.max(1) as f64)
    }
}

/// Returns the time from the first sample after `began` to the last.
fn sampled_span(records: &[Record], began: f64) -> (f64, f64) {
    let times = records.iter().filter_map(|record| match record {
        Record::Gpu(_) | Record::Host(_) => record.at().filter(|at| *at >= began),
        _ => None,
    });
    times.fold((f64::INFINITY, f64::NEG_INFINITY), |(first, last), at| (first.min(at), last.max(at)))
}

/// Selects records and sorts them by time, since several processes write one file.
fn sorted_by_time<'a, T>(records: &'a [Record], of: impl Fn(&'a Record) -> Option<(f64, &'a T)>) -> Vec<&'a T> {
    let mut found: Vec<(f64, &T)> = records.iter().filter_map(of).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.into_iter().map(|(_, record)| record).collect()
}

/// A reason to doubt that the steps are those of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doubt {
    /// No recorded step is of the run: some ended `before` it began, and some are of `others`.
    NoOwnSteps { before: usize, others: usize },
    /// Step numbers repeat, from this one on.
    Repeated { from: u64 },
    /// So many steps ended before the run began: the clock was set back.
    SetBack { count: usize },
}

/// Returns the steps of `run` and of its first recorded rank, in the order of time, and a reason to doubt them.
fn steps_of_run<'a>(run: Option<&Run>, records: &'a [Record]) -> (Vec<&'a StepRecord>, Option<Doubt>) {
    let all = sorted_by_time(records, |record| match record {
        Record::Step(step) => Some((step.at, &**step)),
        _ => None,
    });
    let (own, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|step| run.is_none_or(|run| is_of_process(run, step)));
    let (steps, before): (Vec<_>, Vec<_>) = own.into_iter().partition(|step| run.is_none_or(|run| step.at >= run.at));
    let rank = steps.iter().map(|step| step.rank).min();
    let steps: Vec<_> = steps.into_iter().filter(|step| Some(step.rank) == rank).collect();
    let none = Doubt::NoOwnSteps { before: before.len(), others: others.len() };
    let are_elsewhere = steps.is_empty() && before.len() + others.len() > 0;
    let count = set_back(run, records).len();
    let doubt = match repeated(&steps) {
        _ if are_elsewhere => Some(none),
        Some(from) => Some(Doubt::Repeated { from }),
        None => (count > 0).then_some(Doubt::SetBack { count }),
    };
    (steps, doubt)
}

/// Returns the first step number that repeats: a session gives each number once.
fn repeated(steps: &[&StepRecord]) -> Option<u64> {
    let mut numbers = BTreeSet::new();
    steps.iter().map(|step| step.step).find(|number| !numbers.insert(*number))
}

/// Returns the last monitor that started before `end`, else the last.
fn last_start(records: &[Record], end: f64) -> Option<&Start> {
    let starts = records.iter().filter_map(|record| match record {
        Record::Start(start) => Some(start),
        _ => None,
    });
    starts.max_by(|a, b| (a.at <= end).cmp(&(b.at <= end)).then(a.at.total_cmp(&b.at)))
}
