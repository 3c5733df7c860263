//! Reasons for the settings of a plan, the settings of the host, and advice for changes that only the user may make.

use serde::{Deserialize, Serialize};

use super::memory::PREFETCH_DEPTH;
use super::precision;
use super::problem::Problem;
use super::ranks::Schedule;
use super::search::{Candidate, Candidates, Choice, Graphs, STATISTICS_ENOUGH, STATISTICS_FLOOR, Search};
use super::search::{WORTHWHILE_GAIN, rank_share};
use super::time::{StepTime, speed_interval, with_interval};
use crate::device::{DeviceFacts, DeviceKind};
use crate::workload::Workload;
use crate::{Bytes, Goal, Pins, Provenance, Setting, Settings, three_digits};

/// Reason for the value of a setting.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Reason {
    /// The setting.
    pub setting: Setting,
    /// Provenance of the value.
    pub provenance: Provenance,
    /// The reason in words.
    pub why: String,
}

impl Reason {
    fn new(setting: Setting, provenance: Provenance, why: impl Into<String>) -> Self {
        Self { setting, provenance, why: why.into() }
    }

    fn derived(setting: Setting, why: impl Into<String>) -> Self {
        Self::new(setting, Provenance::Derived, why)
    }

    /// The reason for a value that the user pinned in `source`.
    pub fn pinned(setting: Setting, source: &str) -> Self {
        Self::new(setting, Provenance::Declared, source)
    }
}

/// Returns the reason for each setting of a plan, in the order of [`Setting::ALL`].
pub(super) fn reasons(
    search: &Search<'_>,
    choice: &Choice,
    schedule: &Schedule,
    planned: &Settings,
    workers: &Reason,
) -> Vec<Reason> {
    let (problem, found) = (search.problem, search.taken());
    let pins: &Pins = &problem.goal.pins;
    let reason = |setting| match setting {
        _ if pins.has(setting) => Reason::pinned(setting, "set in the config"),
        Setting::BatchSize => batch_reason(problem, found, choice),
        Setting::GradientAccumulation => accumulation_reason(problem.goal, choice, schedule),
        Setting::Precision => precision::reason(search),
        Setting::AllowTf32 => tf32_reason(problem.device),
        Setting::GradientCheckpointing => checkpointing_reason(problem.workload, found, choice),
        Setting::CudaGraphs => graphs_reason(problem, found, choice),
        Setting::PrefetchDepth => prefetch_reason(problem, planned),
        Setting::NumWorkers => workers.clone(),
        Setting::EvalBatchSize => eval_reason(planned),
    };
    Setting::ALL.map(reason).into()
}

fn batch_reason(problem: Problem<'_>, found: &Candidates, choice: &Choice) -> Reason {
    let Problem { device, workload, goal } = problem;
    let Choice { best, fastest, .. } = choice;
    let fastest_speed =
        with_interval(fastest.samples_per_s, speed_interval(device, fastest.samples_per_s, fastest.provenance));
    let rule = taken_micro_batch(goal, choice);
    let mut why = if goal.whole_batch_loss && goal.global_batch.is_some() {
        "the whole global batch, because the loss couples its samples".to_owned()
    } else if let Some(target) = goal.target_utilization {
        let busy = best.utilization * 100.0;
        let rule = if best.utilization < target { "fastest" } else { rule };
        format!("the {rule} to keep the device busy {:.0}% of the time: {busy:.0}% predicted", target * 100.0)
    } else if best.split.batch == fastest.split.batch {
        format!("the fastest predicted ({fastest_speed} samples/s)")
    } else {
        let (tolerance, batch) = (goal.throughput_tolerance * 100.0, fastest.split.batch);
        format!("the {rule} within {tolerance:.0}% of the fastest predicted ({fastest_speed} samples/s at {batch})")
    };
    let memory_limits = || found.all.iter().any(|candidate| candidate.split.batch > choice.largest);
    if best.split.batch == choice.largest && memory_limits() {
        why.push_str("; a larger one does not fit");
    } else if goal.global_batch.is_some() && best.split.micro_steps() == 1 && !goal.whole_batch_loss {
        why.push_str("; the whole global batch at once");
    }
    if workload.batch_statistics {
        why.push_str("; batch statistics: another one changes the results");
    }
    if let Some(doubt) = found.decisive_doubt(choice, goal) {
        why = format!("{why}; estimates, which err by up to {:.1}%, are counted as that much slower", doubt * 100.0);
    }
    let last = found.modes.last();
    if let Some(transfer) = last.and_then(|mode| StepTime::new(device, workload, *mode).transfer(device, workload)) {
        why = format!("{why}; {transfer}");
    }
    let provenance = match best.provenance {
        Provenance::Derived => workload.provenance,
        measured => measured,
    };
    Reason::new(Setting::BatchSize, provenance, why)
}

/// Describes which of the micro-batches that are fast enough is taken.
fn taken_micro_batch(goal: &Goal, choice: &Choice) -> &'static str {
    let prefers_large = choice.least_samples.is_some() && goal.global_batch.is_some();
    match choice.best.split.least() {
        _ if !prefers_large => "smallest",
        0..STATISTICS_ENOUGH => "largest",
        _ => "smallest from 32 samples on",
    }
}

fn accumulation_reason(goal: &Goal, choice: &Choice, schedule: &Schedule) -> Reason {
    let mut why = match goal.global_batch {
        None => "no global batch is asked for".to_owned(),
        Some(global) if schedule.share.is_some() => {
            format!("{} samples of global batch {global} on this rank", schedule.samples_per_rank())
        }
        Some(global) if goal.world_size > 1 => format!("global batch {global} on {} ranks", goal.world_size),
        Some(global) => format!("global batch {global}"),
    };
    let rest = schedule.samples_per_rank() % choice.best.split.batch;
    if rest > 0 || goal.global_batch.is_some() {
        why = format!("{why} = {}", schedule.sum_on_rank());
    }
    Reason::derived(Setting::GradientAccumulation, why)
}

fn tf32_reason(device: &DeviceFacts) -> Reason {
    let why = match (device.kind, device.has_tf32) {
        (_, true) => "has TF32 tensor cores; Burn uses them for f32 products when its autotuning finds them faster",
        (DeviceKind::Gpu, false) => "compute capability below 8.0 has no TF32",
        (DeviceKind::Cpu, false) => "a CPU has no TF32",
    };
    Reason::derived(Setting::AllowTf32, why)
}

fn checkpointing_reason(workload: &Workload, found: &Candidates, choice: &Choice) -> Reason {
    let (best, setting) = (&choice.best, Setting::GradientCheckpointing);
    let is_other = |candidate: &&Candidate| {
        candidate.mode.checkpointing != best.mode.checkpointing && candidate.split.batch == best.split.batch
    };
    let other = found.fitting().find(is_other);
    if best.mode.checkpointing {
        // Memory, or a higher measured speed, which hints at a disturbed measurement.
        let Some(plain) = other else {
            return Reason::derived(setting, "without it nothing as fast fits into the memory");
        };
        let gain = (best.samples_per_s / plain.samples_per_s - 1.0) * 100.0;
        let why = if gain >= 0.5 {
            format!("{gain:.0}% faster than without it, though it computes more: measure again on an idle GPU")
        } else if best.counted_per_s > plain.counted_per_s {
            "its speed was measured, and the speed without it is estimated".to_owned()
        } else {
            "with it the device is as busy as requested".to_owned()
        };
        return Reason::new(setting, best.provenance, why);
    }
    let why = if let Some(checkpointed) = other {
        let lost = (1.0 - checkpointed.samples_per_s / best.samples_per_s) * 100.0;
        let cost = if lost < 0.5 { "bring nothing".to_owned() } else { format!("cost about {lost:.0}%") };
        let why = format!("the activations fit; recomputing them would {cost}");
        return Reason::new(setting, checkpointed.provenance, why);
    } else if found.modes.iter().any(|mode| mode.checkpointing) {
        "the activations fit"
    } else if best.mode.cuda_graphs {
        "the activations fit; recomputing was not timed with CUDA graphs"
    } else if workload.sample.checkpointed_activations.is_none() {
        "its saving is neither declared nor measured"
    } else {
        "it keeps more than it saves: Burn cannot recompute dropout"
    };
    Reason::derived(setting, why)
}

fn graphs_reason(problem: Problem<'_>, found: &Candidates, choice: &Choice) -> Reason {
    let (provenance, why) = match found.graphs {
        _ if problem.device.kind == DeviceKind::Cpu => (Provenance::Derived, "a CPU has none".to_owned()),
        _ if problem.goal.world_size > 1 => (Provenance::Derived, "they do not work with several ranks".to_owned()),
        Graphs::NotMeasured => (Provenance::Derived, "not timed here by `cargo gpu-tuned measure`".to_owned()),
        Graphs::DoNotFit => (Provenance::Measured, "no timed micro-batch fits memory and goal".to_owned()),
        Graphs::Measured { gain } if gain < WORTHWHILE_GAIN => {
            let percent = (gain * 100.0).max(0.0);
            (Provenance::Measured, format!("they gain only {percent:.1}%, less than 5%"))
        }
        Graphs::Measured { gain } => {
            let percent = gain * 100.0;
            let allowed = if choice.best.mode.cuda_graphs { "" } else { ", but are not allowed" };
            (Provenance::Measured, format!("{percent:.0}% more samples/s{allowed}"))
        }
    };
    Reason::new(Setting::CudaGraphs, provenance, why)
}

fn prefetch_reason(problem: Problem<'_>, planned: &Settings) -> Reason {
    let why = if planned.prefetch_depth == PREFETCH_DEPTH {
        "one batch is uploaded while one waits".to_owned()
    } else {
        let bytes = problem.workload.sample.input.unwrap_or_default().times(planned.batch_size);
        format!("a batch has {bytes}, and prepared ones may take {}", Bytes::from_mib(problem.goal.prefetch_mib))
    };
    Reason::derived(Setting::PrefetchDepth, why)
}

fn eval_reason(planned: &Settings) -> Reason {
    let why = match planned.eval_batch_size / planned.batch_size {
        1 => "the micro-batch: nothing is known of the largest tensor, or it fills the memory".to_owned(),
        factor => format!("{factor} x the micro-batch: evaluation keeps nothing for a backward pass"),
    };
    Reason::derived(Setting::EvalBatchSize, why)
}

/// More workers than this rarely help, and each keeps a batch in host memory.
const MOST_WORKERS: u64 = 4;

/// Most workers where the time of a sample is available.
const MOST_NEEDED_WORKERS: u64 = 64;

/// Ratio of the batches that workers can deliver to those that the device takes. Above 1, as single batches may be slow.
const WORKER_MARGIN: f64 = 1.25;

/// Cores of an unknown host.
pub const ASSUMED_CORES: u64 = 8;

/// Largest live tensors of a forward pass that keeps nothing: input, output and two branches.
const LIVE_TENSORS: u64 = 4;

/// Largest evaluation batch, as a multiple of the micro-batch.
const EVAL_FACTORS: [u64; 2] = [4, 2];

/// Loader workers, with the reason and an advice where they limit training.
pub(super) struct Workers {
    pub count: u64,
    pub reason: Reason,
    pub advice: Option<String>,
}

/// Returns the workers for a device that takes `samples_per_s`.
pub(super) fn workers(
    device: &DeviceFacts,
    workload: &Workload,
    samples_per_s: f64,
    speed_provenance: Provenance,
) -> Workers {
    let known = device.host_cores;
    let cores = known.unwrap_or(ASSUMED_CORES);
    // A GPU leaves all cores but the one that launches kernels; a CPU trains with most of them.
    let spare = match device.kind {
        DeviceKind::Gpu => cores.saturating_sub(1),
        DeviceKind::Cpu => cores / 4,
    }
    .max(1);
    let unknown = if known.is_none() { "; the host is not known at compile time" } else { "" };
    let Some(host_ms) = workload.sample.host_ms else {
        let (count, why) = match device.kind {
            DeviceKind::Gpu => {
                ((cores / 2).clamp(1, MOST_WORKERS), format!("half of {cores} cores, at most {MOST_WORKERS}{unknown}"))
            }
            DeviceKind::Cpu => {
                ((cores / 8).clamp(1, MOST_WORKERS), "an eighth of the cores: the others train".to_owned())
            }
        };
        return Workers { count, reason: Reason::derived(Setting::NumWorkers, why), advice: None };
    };
    let is_measured = workload.measured.host_ms_per_sample == Some(host_ms);
    let provenance = if is_measured { Provenance::Measured } else { Provenance::Declared };
    let busy = samples_per_s * host_ms / 1e3;
    let needed = ((busy * WORKER_MARGIN).ceil() as u64).max(1);
    let count = needed.min(spare).min(MOST_NEEDED_WORKERS);
    let speed = with_interval(samples_per_s, speed_interval(device, samples_per_s, speed_provenance));
    let why = format!("{speed} samples/s at {host_ms} ms each keep {busy:.1} cores busy{unknown}");
    let fed = count as f64 * 1e3 / host_ms;
    let advice = (fed < samples_per_s).then(|| {
        format!(
            "the loader limits training: {count} workers at {host_ms} ms a sample prepare {} samples/s, and the \
             device is predicted to take {speed}; prepare samples once and keep them, or use a host with more cores",
            three_digits(fed)
        )
    });
    Workers { count, reason: Reason::new(Setting::NumWorkers, provenance, why), advice }
}

/// Returns the largest multiple of the micro-batch whose live tensors take no more than training's kept ones.
pub(super) fn eval_batch(best: &Candidate, workload: &Workload) -> u64 {
    let live = workload.sample.largest_tensor.map(|tensor| tensor.times(LIVE_TENSORS));
    let fits = |factor: &u64| {
        let needed = live.map(|live| live.times(best.split.batch).times(*factor));
        needed.is_some_and(|needed: Bytes| needed <= best.memory.activations)
    };
    best.split.batch * EVAL_FACTORS.iter().find(|factor| fits(factor)).unwrap_or(&1)
}

/// Returns the threads that train on a CPU: all cores but those of the workers, where there are enough; `None` for a GPU.
pub(super) fn cpu_threads(device: &DeviceFacts, settings: &Settings) -> Option<u64> {
    let cores = device.host_cores.filter(|_| device.kind == DeviceKind::Cpu)?;
    Some(if cores > 2 * settings.num_workers { cores - settings.num_workers } else { cores })
}

/// Ratio of throughputs above which a larger global batch is worth an advice.
const WORTHWHILE_RATIO: f64 = 1.05;

/// Returns advice on the goal: a larger global batch, CUDA graphs, more samples for batch statistics.
pub(super) fn advice(search: &Search<'_>, choice: &Choice) -> impl Iterator<Item = String> {
    let (problem, found) = (search.problem, search.taken());
    let advice =
        [larger_batch(problem, found, choice), allowed_graphs(problem.goal, found), statistics(problem, choice)];
    advice.into_iter().flatten()
}

/// Advice on the gain of a larger global batch, when this one is too small to fill the device.
fn larger_batch(problem: Problem<'_>, found: &Candidates, choice: &Choice) -> Option<String> {
    let goal = problem.goal;
    let global = goal.global_batch.filter(|_| choice.best.split.micro_steps() == 1 && goal.pins.is_empty())?;
    let free = Goal { global_batch: None, ..goal.clone() };
    let unbound = Candidates::of_all_sizes(Problem { goal: &free, ..problem }, found.precision).ok()?.choice?.best;
    let gain = unbound.samples_per_s / choice.best.samples_per_s;
    let larger = unbound.split.batch * goal.world_size;
    (larger > global && gain >= WORTHWHILE_RATIO).then(|| {
        format!(
            "a global batch of {global} does not fill {}: {larger} would run about {gain:.1}x as many samples per second \
             ({}). The plan keeps {global}, because another global batch would change the run",
            problem.device.name, unbound.provenance
        )
    })
}

/// Advice to allow CUDA graphs that gain enough.
fn allowed_graphs(goal: &Goal, found: &Candidates) -> Option<String> {
    let Graphs::Measured { gain } = found.graphs else { return None };
    (goal.allow_cuda_graphs.is_none() && found.graphs.are_worthwhile()).then(|| {
        format!(
            "CUDA graphs would run {:.1}x as many samples per second (measured). To let the plan use them, add a field \
             `#[tuned] cuda_graphs: bool`, or set `allow_cuda_graphs = true`. Replayed micro-batches do not call the loss \
             function, so a function that also counts or collects must not use them",
            1.0 + gain
        )
    })
}

/// Advice for batch statistics from fewer samples than the [floor](STATISTICS_FLOOR).
fn statistics(problem: Problem<'_>, choice: &Choice) -> Option<String> {
    let least = choice.best.split.least();
    if !problem.workload.batch_statistics || least >= STATISTICS_FLOOR {
        return None;
    }
    let share = rank_share(problem.goal).ok().flatten().unwrap_or(u64::MAX);
    let remedy = if share < STATISTICS_FLOOR {
        "more samples a step on each rank"
    } else {
        "a larger micro-batch, for which checkpointing, 16 bits or a larger GPU make room"
    };
    Some(format!(
        "the smallest micro-batch has size {least}, and batch statistics from fewer than {STATISTICS_FLOOR} samples raise the \
         error of BatchNorm. Use group norm, or {remedy}"
    ))
}
