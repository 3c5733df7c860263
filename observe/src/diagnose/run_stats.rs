//! Statistics of the run that a recording is judged by.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use gpu_tuned_core::profile::{Profile, ProfileTable};

use crate::recording::{
    Gpu, GpuProcess, GpuSample, HostSample, Record, Run, Start, StepRecord, Throttle, is_of_process, last_run, set_back,
};
use crate::stats::{mean, median};

/// Statistics of the run that began last.
#[derive(Clone, Debug)]
pub(super) struct RunStats<'a> {
    pub start: Option<&'a Start>,
    pub run: Option<&'a Run>,
    /// The run's process, where it is known.
    pub pid: Option<u32>,
    /// Steps after warm-up; their number where they are too few.
    pub steps: Result<Steps<'a>, usize>,
    /// A reason to doubt that the steps are those of the run.
    pub doubt: Option<Doubt>,
    /// The run's GPUs that have enough samples.
    pub gpus: Vec<GpuStats<'a>>,
    /// The whole GPUs: power, clocks and link of a MIG slice are those of its GPU.
    pub boards: Vec<GpuStats<'a>>,
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
        let ended = records.iter().filter_map(Record::step).map(|step| step.at).filter(|at| *at < began);
        let idle = (ended.fold(f64::NEG_INFINITY, f64::max), began);
        let steps = Steps::from_records(&steps);
        let gpus = sorted_by_time(records, |record| if let Record::Gpu(sample) = record { Some(sample) } else { None });
        let span = steps.as_ref().map_or_else(|_| sampled_span(records, began), |steps| steps.span);
        let start = last_start(records, span.1);
        let host = sorted_by_time(records, |record| match record {
            Record::Host(sample) if (span.0..=span.1).contains(&sample.at) => Some(sample),
            _ => None,
        });
        let monitored = host.iter().find_map(|sample| sample.process.as_ref()).map(|process| process.pid);
        let pid = run.map(|run| run.pid).or(monitored);
        let trouble = gpus.iter().rev().find_map(|sample| sample.trouble.as_deref());
        let all = gpu_stats(start, &gpus, span, idle, steps.is_ok());
        let gpus = gpus_of_run(run, pid, &all);
        let is_board = |board: &&GpuStats<'_>| {
            board.gpu.mig_slot.is_none() && gpus.iter().any(|unit| unit.gpu.gpu == board.gpu.gpu)
        };
        let boards = all.iter().filter(is_board).cloned().collect();
        Self { start, run, pid, steps, doubt, gpus, boards, trouble, host, span }
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

    pub(super) fn cores(&self) -> Option<f64> {
        self.start.map(|start| start.cores as f64).filter(|cores| *cores > 0.0)
    }

    /// Largest reservation of the run's pools in bytes.
    pub(super) fn reserved(&self) -> Option<u64> {
        self.steps.as_ref().ok()?.settled.iter().filter_map(|step| step.reserved_bytes).max()
    }

    /// Returns whether a recorded run trains on a GPU.
    pub(super) fn is_on_gpu(&self) -> bool {
        self.run.is_some_and(|run| run.device.is_gpu)
    }

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
fn sorted_by_time<'a, T>(records: &'a [Record], select: impl Fn(&'a Record) -> Option<&'a T>) -> Vec<&'a T> {
    let mut found: Vec<(f64, &T)> = records.iter().filter_map(|record| Some((record.at()?, select(record)?))).collect();
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
    let all = sorted_by_time(records, Record::step);
    let (own, others): (Vec<_>, Vec<_>) =
        all.into_iter().partition(|step| run.is_none_or(|run| is_of_process(run, step)));
    let (steps, before): (Vec<_>, Vec<_>) = own.into_iter().partition(|step| run.is_none_or(|run| step.at >= run.at));
    let rank = steps.iter().map(|step| step.rank).min();
    let steps: Vec<_> = steps.into_iter().filter(|step| Some(step.rank) == rank).collect();
    let none = Doubt::NoOwnSteps { before: before.len(), others: others.len() };
    let are_elsewhere = steps.is_empty() && before.len() + others.len() > 0;
    let count = set_back(run, records).len();
    // A session gives each number once.
    let mut numbers = BTreeSet::new();
    let doubt = match steps.iter().map(|step| step.step).find(|number| !numbers.insert(*number)) {
        _ if are_elsewhere => Some(none),
        Some(from) => Some(Doubt::Repeated { from }),
        None => (count > 0).then_some(Doubt::SetBack { count }),
    };
    (steps, doubt)
}

/// Returns the last monitor that started before `end`, else the last.
fn last_start(records: &[Record], end: f64) -> Option<&Start> {
    let starts = records.iter().filter_map(|record| match record {
        Record::Start(start) => Some(start),
        _ => None,
    });
    starts.max_by(|a, b| (a.at <= end).cmp(&(b.at <= end)).then(a.at.total_cmp(&b.at)))
}

/// Steps at the start that are left out, at least: the second allocates the optimizer's state.
const MIN_LEFT_OUT: usize = 2;
/// Time of a step over the usual one, above which the step compiles or autotunes.
const TUNING: f64 = 2.5;
/// Consecutive usual steps that end the warm-up.
const USUAL_IN_A_ROW: usize = 3;
/// Time outside the trainer over that of a step, above which it is a pause.
const PAUSE: f64 = 5.0;
/// Wait over the mean step, above which it counts as a wait.
const WAITS: f64 = 0.05;
/// Steps that a judgement needs.
pub(super) const MIN_STEPS: usize = 20;

/// Means of the judged steps.
#[derive(Clone, Debug)]
pub(super) struct Steps<'a> {
    /// Number of steps.
    pub count: usize,
    /// Numbers of the first and the last step.
    pub numbers: (u64, u64),
    /// Begin of the first and end of the last step.
    pub span: (f64, f64),
    /// Warm-up steps that are left out.
    pub left_out: usize,
    /// Means per step.
    pub mean: Parts,
    /// Steps after warm-up, pauses included.
    pub settled: Vec<&'a StepRecord>,
    /// The first step that ran out of memory.
    pub first_rescue: Option<u64>,
    /// Skipped steps.
    pub skipped: Skipped,
    /// Slowest rank in most steps.
    pub slowest_rank: Option<SlowRank>,
}

/// Slowest of several ranks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SlowRank {
    pub rank: u64,
    pub host: String,
    /// Part of the steps.
    pub share_of_steps: f64,
    /// Median seconds of the rank for a step.
    pub seconds: f64,
    /// Median seconds of the other ranks.
    pub others_s: f64,
    /// Median of the rank's seconds over those of the others, of all steps.
    pub slowness: f64,
}

impl SlowRank {
    /// Finds the rank that is most often the slowest.
    fn from_records(records: &[&StepRecord]) -> Option<Self> {
        let slowest: Vec<_> = records.iter().filter_map(|step| step.slowest_rank.as_ref()).collect();
        let mut counts = BTreeMap::new();
        for slow in &slowest {
            *counts.entry(slow.rank).or_insert(0_usize) += 1;
        }
        let (rank, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
        let own: Vec<_> = slowest.iter().filter(|slow| slow.rank == rank).collect();
        Some(Self {
            rank,
            host: own.last()?.host.clone(),
            share_of_steps: count as f64 / slowest.len() as f64,
            seconds: median(own.iter().map(|slow| slow.seconds))?,
            others_s: median(own.iter().map(|slow| slow.others_s))?,
            slowness: median(slowest.iter().map(|slow| slow.slowness_of(rank)))?,
        })
    }
}

/// Steps that were skipped because gradients were not finite.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Skipped {
    /// Skipped steps, of all recorded ones.
    pub count: usize,
    pub of: usize,
    /// Number of the first skipped step.
    pub first: Option<u64>,
    /// Skipped steps without a finite loss; `None` where no losses are recorded.
    pub without_loss: Option<usize>,
    /// Part of the later half that was skipped: by then a loss scale has found its size.
    pub late_share: f64,
}

impl Skipped {
    fn from_records(records: &[&StepRecord]) -> Self {
        let skipped = || records.iter().filter(|step| !step.applied);
        let has_losses = records.iter().any(|step| step.loss.is_some());
        let late = &records[records.len() / 2..];
        let late_share = late.iter().filter(|step| !step.applied).count() as f64 / late.len().max(1) as f64;
        Self {
            late_share,
            count: skipped().count(),
            of: records.len(),
            first: skipped().next().map(|step| step.step),
            // A recording has no loss for a step whose loss is not finite.
            without_loss: has_losses
                .then(|| skipped().filter(|step| step.loss.is_none_or(|loss| !loss.is_finite())).count()),
        }
    }
}

/// Parts of a step in seconds, and its samples. Parts that are not recorded are `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Parts {
    pub seconds: f64,
    pub waited: Option<f64>,
    pub upload: f64,
    pub outside: f64,
    pub loss: Option<f64>,
    pub loss_cpu: Option<f64>,
    pub backward: f64,
    pub update: f64,
    pub drain: Option<f64>,
    /// Gradient exchange with other ranks.
    pub exchange: f64,
    /// Time of the loader's workers, and the CPU time in it, each summed over the workers.
    pub prepared: Option<f64>,
    pub prepared_cpu: Option<f64>,
    /// Longest wait for the loader.
    pub longest_wait: f64,
    /// Part of the steps that wait for the loader.
    pub waiting_steps: f64,
    pub samples: f64,
    pub micro_batches: f64,
    pub micro_batch: f64,
}

impl Parts {
    /// Seconds in the trainer, without uploads and gradient exchange.
    pub(super) fn training(&self) -> f64 {
        (self.seconds - self.waited.unwrap_or(0.0) - self.outside - self.upload - self.exchange).max(0.0)
    }

    pub(super) fn share(&self, seconds: f64) -> f64 {
        if self.seconds > 0.0 { seconds / self.seconds } else { 0.0 }
    }
}

impl<'a> Steps<'a> {
    /// Selects and averages steps. Returns their number after warm-up where they are too few.
    fn from_records(records: &[&'a StepRecord]) -> Result<Self, usize> {
        let left_out = tuning(records);
        let rest = &records[left_out..];
        let usual = median(rest.iter().map(|step| work(step))).unwrap_or_default();
        let outside = median(rest.iter().map(|step| step.outside_s.unwrap_or(0.0))).unwrap_or_default();
        let is_pause = |step: &StepRecord| step.outside_s.unwrap_or(0.0) > outside + PAUSE * (usual + outside);
        let steady: Vec<_> = rest.iter().copied().filter(|step| !is_pause(step)).collect();
        let ([first, .., last], true) = (steady.as_slice(), steady.len() >= MIN_STEPS) else {
            return Err(steady.len());
        };
        Ok(Self {
            count: steady.len(),
            numbers: (first.step, last.step),
            span: (first.at - first.seconds, last.at),
            left_out,
            mean: means(&steady),
            settled: rest.to_vec(),
            first_rescue: records.iter().find(|step| step.rescues > 0).map(|step| step.step),
            skipped: Skipped::from_records(records),
            slowest_rank: SlowRank::from_records(&steady),
        })
    }

    /// Samples per second over all ranks.
    pub(super) fn samples_per_s(&self) -> f64 {
        self.mean.samples / self.mean.seconds
    }
}

/// Number of warm-up steps, which compile and autotune.
fn tuning(records: &[&StepRecord]) -> usize {
    let late = &records[records.len() / 2..];
    let usual = TUNING * median(late.iter().map(|step| work(step))).unwrap_or_default();
    let is_usual = |from: usize| records[from..].iter().take(USUAL_IN_A_ROW).all(|step| work(step) <= usual);
    let from = MIN_LEFT_OUT.min(records.len());
    (from..records.len()).find(|from| is_usual(*from)).unwrap_or(records.len())
}

/// Seconds of a step in the trainer: the loader has a rhythm of its own.
fn work(step: &StepRecord) -> f64 {
    step.seconds - step.waited_s.unwrap_or(0.0) - step.outside_s.unwrap_or(0.0)
}

fn means(steps: &[&StepRecord]) -> Parts {
    let of = |part: fn(&StepRecord) -> Option<f64>| mean(steps.iter().filter_map(|step| part(step)));
    let known = |part: fn(&StepRecord) -> Option<f64>| of(part).unwrap_or(0.0);
    let seconds = known(|step| Some(step.seconds));
    let waits = || steps.iter().filter_map(|step| step.waited_s);
    let long = waits().filter(|waited| *waited > WAITS * seconds).count();
    Parts {
        seconds,
        longest_wait: waits().fold(0.0, f64::max),
        waiting_steps: long as f64 / steps.len().max(1) as f64,
        waited: of(|step| step.waited_s),
        upload: known(|step| step.upload_s),
        outside: known(|step| step.outside_s),
        loss: of(|step| step.loss_s),
        loss_cpu: of(|step| step.loss_cpu_s),
        backward: known(|step| step.backward_s),
        update: known(|step| step.update_s),
        drain: of(|step| step.drain_s),
        exchange: known(|step| step.exchange_s),
        prepared: of(|step| step.prepared_s),
        prepared_cpu: of(|step| step.prepared_cpu_s),
        samples: known(|step| Some(step.samples as f64)),
        micro_batches: known(|step| Some(step.micro_batches as f64)),
        micro_batch: known(|step| Some(step.micro_batch as f64)),
    }
}

/// Samples that statistics need.
pub(super) const MIN_SAMPLES: usize = 5;
/// Utilization in percent of a GPU under load.
const LOADED_PERCENT: f64 = 50.0;

/// A GPU during the judged time.
#[derive(Clone, Debug)]
pub(super) struct GpuStats<'a> {
    pub gpu: Gpu,
    pub samples: Vec<&'a GpuSample>,
    /// Samples between the last earlier training and the run's begin.
    pub before: Vec<&'a GpuSample>,
    /// The run trained during the samples.
    pub trained: bool,
}

impl GpuStats<'_> {
    /// Returns true if the GPU shares the host's memory, by the recording or by the GPU's profile.
    pub(super) fn has_unified_memory(&self) -> bool {
        self.gpu.unified_memory || self.profile().is_some_and(|profile| profile.compute_capability.is_integrated())
    }

    pub(super) fn mean(&self, figure: impl Fn(&GpuSample) -> Option<f64>) -> Option<f64> {
        mean(self.samples.iter().filter_map(|sample| figure(sample)))
    }

    /// Part of the time in which a kernel ran.
    pub(super) fn busy(&self) -> Option<f64> {
        self.mean(|sample| sample.utilisation_percent).map(|percent| percent / 100.0)
    }

    /// Part of the SMs that worked.
    pub(super) fn sm_activity(&self) -> Option<f64> {
        self.mean(|sample| sample.sm_activity_percent).map(|percent| percent / 100.0)
    }

    /// Part of the samples in which one of these reasons lowered the clocks.
    pub(super) fn throttled(&self, reasons: &[Throttle]) -> f64 {
        let lowered = |sample: &&&GpuSample| sample.throttle.iter().any(|reason| reasons.contains(reason));
        self.samples.iter().filter(lowered).count() as f64 / self.samples.len() as f64
    }

    /// Samples under load. A load that is not reported counts while the run trains: a GPU with MIG reports none.
    pub(super) fn loaded(&self) -> impl Iterator<Item = &GpuSample> {
        let is_loaded = |sample: &&GpuSample| match sample.utilisation_percent.or(sample.sm_activity_percent) {
            Some(percent) => percent >= LOADED_PERCENT,
            None => self.trained,
        };
        self.samples.iter().copied().filter(is_loaded)
    }

    /// Median of a figure under load; `None` for few samples.
    pub(super) fn under_load(&self, figure: impl Fn(&GpuSample) -> Option<u32>) -> Option<f64> {
        let figures: Vec<_> = self.loaded().filter_map(figure).map(f64::from).collect();
        median(figures.iter().copied()).filter(|_| figures.len() >= MIN_SAMPLES)
    }

    pub(super) fn profile(&self) -> Option<Profile> {
        ProfileTable::builtin_profile(self.gpu.profile.as_deref()?)
    }

    /// Highest SM clock in MHz: of the driver, else the boost clock of the data sheet.
    pub(super) fn max_clock(&self) -> Option<f64> {
        self.gpu.max_sm_clock_mhz.map(f64::from).or_else(|| self.profile()?.compute.boost_mhz)
    }

    /// Highest memory clock in MHz: of the driver, else that of the data sheet's bandwidth. The driver counts two transfers a
    /// clock.
    pub(super) fn max_memory_clock(&self) -> Option<f64> {
        let published = || {
            let memory = self.profile()?.memory;
            Some(memory.bandwidth_gb_s? * 8e3 / f64::from(memory.bus_bits?) / 2.0)
        };
        self.gpu.max_memory_clock_mhz.map(f64::from).or_else(published)
    }

    pub(super) fn is_laptop(&self) -> bool {
        self.profile().is_some_and(|profile| profile.mobile)
            || self.gpu.name.as_ref().is_some_and(|name| name.contains("Laptop") || name.contains("Max-Q"))
    }

    /// Median SM clocks in MHz: while these reasons lowered it, and while no reason did.
    pub(super) fn clocks(&self, reasons: &[Throttle]) -> (Option<f64>, Option<f64>) {
        let clock = |is_lowered: bool| {
            let is_meant = move |sample: &&GpuSample| {
                if is_lowered {
                    sample.throttle.iter().any(|it| reasons.contains(it))
                } else {
                    sample.throttle.is_empty()
                }
            };
            let of_kind = self.loaded().filter(is_meant);
            median(of_kind.filter_map(|sample| sample.sm_clock_mhz).map(f64::from))
        };
        (clock(true), clock(false))
    }

    /// Processes of the last sample that lists them.
    pub(super) fn processes(&self) -> Option<&[GpuProcess]> {
        self.samples.iter().rev().find_map(|sample| sample.processes.as_deref())
    }

    pub(super) fn name(&self) -> String {
        match &self.gpu.name {
            Some(name) => format!("GPU {} ({name})", self.gpu.gpu),
            None => format!("GPU {}", self.gpu.gpu),
        }
    }
}

/// Groups the samples by GPU and slice, without those that have few.
fn gpu_stats<'a>(
    start: Option<&Start>,
    samples: &[&'a GpuSample],
    span: (f64, f64),
    idle: (f64, f64),
    trained: bool,
) -> Vec<GpuStats<'a>> {
    let mut groups: BTreeMap<_, (Vec<_>, Vec<_>)> = BTreeMap::new();
    for &sample in samples.iter().filter(|sample| sample.trouble.is_none()) {
        let (within, before) = groups.entry((sample.gpu, sample.mig_slot)).or_default();
        within.extend((span.0..=span.1).contains(&sample.at).then_some(sample));
        before.extend((idle.0 < sample.at && sample.at < idle.1).then_some(sample));
    }
    groups.retain(|_, (within, _)| within.len() >= MIN_SAMPLES);
    let of_group = |((gpu, slot), (samples, before)): ((u32, Option<u32>), _)| {
        let described = start.and_then(|start| start.gpu(gpu, slot)).cloned().unwrap_or_else(|| {
            let mut unknown = Gpu::new(gpu);
            unknown.mig_slot = slot;
            unknown
        });
        GpuStats { gpu: described, samples, before, trained }
    };
    groups.into_iter().map(of_group).collect()
}

/// Returns the run's GPUs: those that the run names, else those that list its process, else the busiest. A run on the CPU has
/// none.
fn gpus_of_run<'a>(run: Option<&Run>, pid: Option<u32>, all: &[GpuStats<'a>]) -> Vec<GpuStats<'a>> {
    if run.is_some_and(|run| !run.device.is_gpu) {
        return Vec::new();
    }
    let is_named = |gpu: &GpuStats<'_>| {
        let named = run.map_or(&[][..], |run| &run.device.gpu_uuids);
        gpu.gpu.uuid.as_ref().is_some_and(|uuid| named.contains(uuid))
    };
    let has_process = |gpu: &GpuStats<'_>| {
        gpu.processes().is_some_and(|processes| processes.iter().any(|process| Some(process.pid) == pid))
    };
    let ways: [&dyn Fn(&GpuStats<'_>) -> bool; 2] = [&is_named, &has_process];
    for is_its in ways {
        let its: Vec<_> = all.iter().filter(|gpu| is_its(gpu)).cloned().collect();
        if !its.is_empty() {
            return its;
        }
    }
    let busiest = all.iter().max_by(|a, b| a.busy().unwrap_or(0.0).total_cmp(&b.busy().unwrap_or(0.0)));
    busiest.into_iter().cloned().collect()
}
