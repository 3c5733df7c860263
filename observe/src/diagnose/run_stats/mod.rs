//! What a recording shows of a run, as far as it can be judged.

mod gpus;
mod runs;
mod steps;

use crate::recording::{GpuSample, HostSample, Record, Run, Start};

use crate::stats::mean;
pub(super) use gpus::{GpuStats, LEAST_SAMPLES};
pub(super) use runs::Doubt;
use runs::{Last, started};
pub(super) use steps::{LEAST_STEPS, Memory, Parts, Steps};

/// The run of a recording that began last.
#[derive(Clone, Debug)]
pub(super) struct RunStats<'a> {
    pub start: Option<&'a Start>,
    pub run: Option<&'a Run>,
    /// Its process, as far as is known.
    pub pid: Option<u32>,
    /// Those after warm-up; else how many there are.
    pub steps: Result<Steps, usize>,
    /// Whether they are those of the run.
    pub doubt: Option<Doubt>,
    /// Its GPUs; empty where none was watched for long enough.
    pub gpus: Vec<GpuStats<'a>>,
    pub host: Vec<&'a HostSample>,
    /// From when to when is judged.
    pub span: (f64, f64),
}

impl<'a> RunStats<'a> {
    pub(super) fn from_records(records: &'a [Record]) -> Self {
        let Last { run, steps, doubt } = Last::of(records);
        let began = run.map_or(f64::NEG_INFINITY, |run| run.at);
        let ended = records.iter().filter_map(|record| match record {
            Record::Step(step) if step.at < began => Some(step.at),
            _ => None,
        });
        let idle = (ended.fold(f64::NEG_INFINITY, f64::max), began);
        let steps = Steps::of(&steps);
        let gpus: Vec<&GpuSample> = in_time(records, |record| match record {
            Record::Gpu(sample) => Some((sample.at, sample)),
            _ => None,
        });
        let span = steps.as_ref().map_or_else(|_| whole(records, began), |steps| steps.span);
        let start = started(records, span.1);
        let host: Vec<&HostSample> = in_time(records, |record| match record {
            Record::Host(sample) if (span.0..=span.1).contains(&sample.at) => Some((sample.at, sample)),
            _ => None,
        });
        let watched = host.iter().find_map(|sample| sample.process.as_ref()).map(|process| process.pid);
        let pid = run.map(|run| run.pid).or(watched);
        let gpus = gpus::of_run(start, run, pid, &gpus, span, idle);
        Self { start, run, pid, steps, doubt, gpus, host, span }
    }

    /// The part of the time in which kernels ran, over its GPUs.
    pub(super) fn busy(&self) -> Option<f64> {
        mean(self.gpus.iter().filter_map(GpuStats::busy))
    }

    /// The part of the multiprocessors that worked.
    pub(super) fn sm_activity(&self) -> Option<f64> {
        mean(self.gpus.iter().filter_map(GpuStats::sm_activity))
    }

    /// Processors that the program keeps busy.
    pub(super) fn busy_cores(&self) -> Option<f64> {
        let of = |sample: &&HostSample| sample.process.as_ref().and_then(|process| process.cpu_percent);
        let figures: Vec<_> = self.host.iter().filter_map(of).collect();
        (figures.len() >= LEAST_SAMPLES).then(|| mean(figures)).flatten().map(|percent| percent / 100.0)
    }

    /// Processors of the host.
    pub(super) fn cores(&self) -> Option<f64> {
        self.start.map(|start| start.cores as f64).filter(|cores| *cores > 0.0)
    }

    /// Whether it trains on a GPU, as far as is known.
    pub(super) fn is_on_gpu(&self) -> bool {
        self.run.is_some_and(|run| run.device.is_gpu)
    }

    /// Ranks that train together.
    pub(super) fn ranks(&self) -> f64 {
        self.run.map_or(1.0, |run| run.world_size.max(1) as f64)
    }
}

/// From the first look to the last.
fn whole(records: &[Record], began: f64) -> (f64, f64) {
    let looks = records.iter().filter_map(|record| match record {
        Record::Gpu(_) | Record::Host(_) => record.at().filter(|at| *at >= began),
        _ => None,
    });
    looks.fold((f64::INFINITY, f64::NEG_INFINITY), |(first, last), at| (first.min(at), last.max(at)))
}

/// Records of a kind in the order of time: several processes write one file.
fn in_time<'a, T>(records: &'a [Record], of: impl Fn(&'a Record) -> Option<(f64, &'a T)>) -> Vec<&'a T> {
    let mut found: Vec<(f64, &T)> = records.iter().filter_map(of).collect();
    found.sort_by(|a, b| a.0.total_cmp(&b.0));
    found.into_iter().map(|(_, record)| record).collect()
}
