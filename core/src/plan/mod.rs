//! The planner: from a device, a workload and a goal to settings, each with its reason.
//!
//! One search returns every candidate with its verdict. [`Plan`] and [`Explanation`] are views of its result.
//!
//! From the attribute to the chosen candidate the goal enters six files, each once: `attribute/src/check.rs` (the attribute's
//! goal over the table's), `project/src/compile.rs` (one plan of all targets), this file ([`plan`]), `problem.rs` (mistakes,
//! samples), `search.rs` (precisions, splits, modes, the choice) and `memory.rs` (ranks, headroom, prepared batches).

mod calibration;
mod explain;
mod measured;
mod memory;
mod misfit;
mod precision;
mod problem;
mod ranks;
mod search;
mod time;

use core::fmt;

use serde::{Deserialize, Serialize};

pub use calibration::{BALANCED_WIDTH, ESTIMATE_ERROR, SPEED_ERRORS, TRANSFER_ERROR};
pub use explain::{Considered, Expected, Explanation, Outcome, curve, explain};
pub use memory::{Item, MemoryEstimate, largest_piece};
pub use misfit::{Misfit, Remedy, TooLarge};
pub use precision::{ConsideredPrecision, PrecisionVerdict};
pub use problem::PlanError;
pub use ranks::{Schedule, plan_ranks};
pub use search::{STATISTICS_ENOUGH, STATISTICS_FLOOR, Verdict};
pub use time::{Filling, SpeedError, TimeTerm, filling, relative_speed, speed_interval, with_interval};

use crate::device::{DeviceFacts, DeviceKind};
use crate::dims::DimValue;
use crate::exchange::with_exchange;
use crate::measured::Mode;
use crate::workload::Workload;
use crate::{Bytes, Goal, Kernels, Precision, Provenance, Setting, Settings, grouped, three_digits};
use memory::{PREFETCH_DEPTH, prefetch_depth};
use problem::Problem;
use search::{Candidate, Candidates, Choice, Graphs, Search, WORTHWHILE_GAIN, rank_share};
use time::StepTime;

/// Settings for one device, with their reasons.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Name of the device.
    pub device: String,
    /// The values.
    pub settings: Settings,
    /// Split of an optimizer step into micro-batches.
    pub schedule: Schedule,
    /// The memory that training is predicted to take.
    pub memory: MemoryEstimate,
    /// Predicted samples per second on this device.
    pub samples_per_s: f64,
    /// Provenance of [`samples_per_s`](Self::samples_per_s).
    pub samples_per_s_provenance: Provenance,
    /// Lowest and highest samples per second within the error of predictions; `None` for a measured speed or a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_s_interval: Option<[f64; 2]>,
    /// What [`samples_per_s_interval`](Self::samples_per_s_interval) is the error of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub samples_per_s_error: Option<SpeedError>,
    /// The reason for each setting, in the order of [`Setting::ALL`].
    pub reasons: Vec<Reason>,
    /// Threads that train, where the device is a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_threads: Option<u64>,
    /// Changes for a better run that only the user may make.
    pub advice: Vec<String>,
}

/// Plans a training run.
///
/// If the goal leaves the precision to the planner, fp32 and the device's mixed precision are planned. Mixed precision is
/// taken if it gains at least 5% or only it fits. If one of them was measured on this device, only measured ones are
/// compared.
///
/// Where this device was measured with CUDA graphs, and the goal allows them, they are planned if they gain at least 5%.
///
/// Kernels that the goal leaves open are those that were timed on this device; of two, Burn's where they are within the
/// tolerance of the fastest.
///
/// Enumerates checkpointing and the splits of the global batch, and drops those that do not fit into the memory left after
/// the headroom. Of the rest the smallest micro-batch within the goal's tolerance of the best predicted throughput is
/// chosen, preferably without checkpointing and splitting evenly. A model with batch statistics gets the largest of them
/// up to [`STATISTICS_ENOUGH`] samples, from [`STATISTICS_FLOOR`] samples on where these fit. Loader settings follow from the choice.
///
/// Where this device was measured, the measured micro-batches are considered; if none of them fits, or no measurement
/// exists, all sizes are. All sizes are every number of micro-batches up to 64, every micro-batch of up to 64 samples,
/// doublings between them, and the largest that fits. Without a global batch they are powers of two with seven steps
/// between them.
///
/// # Errors
///
/// When the goal contradicts itself, asks for an unsupported precision, when Burn cannot train on the GPU, or when no
/// micro-batch fits. The last error has every byte of the micro-batch that needs the least, and the changes that make it fit.
pub fn plan(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Plan, PlanError> {
    let asked = Problem { device, workload, goal };
    let goal = &asked.goal_in_samples()?;
    match Outcome::new(asked, &Search::new(Problem { goal, ..asked })?) {
        Outcome::Plan(plan) => Ok(*plan),
        Outcome::Misfit(misfit) => Err(PlanError::DoesNotFit(misfit)),
    }
}

/// Returns true if the device has a plan.
pub fn fits(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> bool {
    let goal = goal.in_samples(workload);
    goal.is_ok_and(|goal| search::any_fits(Problem { device, workload, goal: &goal }))
}

impl Plan {
    /// Advice to pad a dimension of the model that slows products on this device.
    pub fn padding(&self, device: &DeviceFacts, workload: &Workload) -> Option<String> {
        padding(device, workload, device.mode(&self.settings))
    }

    /// The source of the speed, and what its error is an error of: `derived, ± absolute`.
    pub fn speed_source(&self) -> String {
        let error = self.samples_per_s_error.map_or_else(String::new, |error| format!(", ± {error}"));
        format!("{}{error}", self.samples_per_s_provenance)
    }

    /// Counts an exchange of gradients of so many seconds a step in the speed; a negative one is no longer counted.
    pub fn count_exchange(&mut self, exchange_s: f64) {
        let step = self.schedule.global_batch as f64;
        let speed = with_exchange(self.samples_per_s, step, exchange_s);
        let ratio = speed / self.samples_per_s;
        self.samples_per_s = speed;
        self.samples_per_s_interval = self.samples_per_s_interval.map(|interval| interval.map(|limit| limit * ratio));
    }

    /// Returns the plan that a search found; `None` where nothing fits.
    fn new(search: &Search<'_>) -> Option<Self> {
        let problem @ Problem { device, workload, goal } = search.problem;
        let choice = search.taken().choice.as_ref()?;
        let best = &choice.best;
        let schedule = Schedule::new(goal, best.split);
        let error = best.speed_error(device);
        let workers = workers(device, workload, best.samples_per_s * schedule.part_of_rank(), error);
        let planned = Settings {
            batch_size: best.split.batch,
            gradient_accumulation: best.split.micro_steps(),
            precision: best.mode.precision,
            allow_tf32: device.has_tf32,
            gradient_checkpointing: best.mode.checkpointing,
            cuda_graphs: best.mode.cuda_graphs,
            kernels: best.mode.kernels,
            prefetch_depth: prefetch_depth(problem, best.split.batch),
            num_workers: workers.count,
            eval_batch_size: eval_batch(best, workload),
        };
        let reasons = reasons(search, choice, &schedule, &planned, &workers.reason);
        let mut settings = planned;
        goal.pins.over(&mut settings);
        Some(Self {
            device: device.name.clone(),
            cpu_threads: cpu_threads(device, &settings),
            settings,
            schedule,
            memory: best.memory.clone(),
            samples_per_s: best.samples_per_s,
            samples_per_s_provenance: best.provenance,
            samples_per_s_interval: speed_interval(device, best.samples_per_s, error),
            samples_per_s_error: error,
            advice: advice(search, choice).chain(workers.advice).chain(device.remarks()).collect(),
            reasons,
        })
    }

    /// Moves the plan to a probed device: its memory, with the fraction `headroom` (0 to 1) unused, and no more workers
    /// than its host feeds.
    #[must_use]
    pub fn on(mut self, device: &DeviceFacts, workload: &Workload, headroom: f64) -> Self {
        self.device.clone_from(&device.name);
        self.memory.move_to(device, workload, headroom);
        let per_rank = self.samples_per_s * self.schedule.part_of_rank();
        let workers = workers(device, workload, per_rank, self.samples_per_s_error);
        self.settings.num_workers = self.settings.num_workers.min(workers.count);
        self.advice.extend(workers.advice);
        for reason in &mut self.reasons {
            if reason.setting == Setting::NumWorkers {
                *reason = workers.reason.clone();
            }
        }
        self
    }
}

/// The values with their reasons, the schedule and the memory: some twenty lines.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "plan for {}", self.device)?;
        for reason in &self.reasons {
            let value = self.settings.get(reason.setting);
            writeln!(f, "  {:<22} {value:>9}  {} ({})", reason.setting, reason.why, reason.provenance)?;
        }
        if let Some(threads) = self.cpu_threads {
            writeln!(f, "  {:<22} {threads:>9}  the cores that the workers leave", "cpu threads")?;
        }
        writeln!(f, "  {:<22} {:>9}  {}", "global batch", self.schedule.global_batch, self.schedule.sum())?;
        let memory = &self.memory;
        let total = memory.total();
        writeln!(f, "  {:<22} {total:>9}  of {}, {} headroom", "memory", memory.available, memory.headroom)?;
        for (item, bytes) in memory.items().into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO) {
            writeln!(f, "    {item:<22}{bytes:>8}")?;
        }
        let speed = with_interval(self.samples_per_s, self.samples_per_s_interval);
        write!(f, "  {:<22} {speed:>9}  samples/s ({})", "speed", self.speed_source())?;
        for advice in &self.advice {
            write!(f, "\n  note: {advice}")?;
        }
        Ok(())
    }
}

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
fn reasons(
    search: &Search<'_>,
    choice: &Choice,
    schedule: &Schedule,
    planned: &Settings,
    workers: &Reason,
) -> Vec<Reason> {
    let (problem, found) = (search.problem, search.taken());
    let pins = &problem.goal.pins;
    let reason = |setting| match setting {
        _ if pins.has(setting) => Reason::pinned(setting, "set in the config"),
        Setting::BatchSize => batch_reason(problem, found, choice),
        Setting::GradientAccumulation => accumulation_reason(problem.goal, choice, schedule),
        Setting::Precision => precision::reason(search),
        Setting::AllowTf32 => tf32_reason(problem.device),
        Setting::GradientCheckpointing => checkpointing_reason(problem.workload, found, choice),
        Setting::CudaGraphs => graphs_reason(problem, found, choice),
        Setting::Kernels => kernels_reason(problem, found, choice),
        Setting::PrefetchDepth => prefetch_reason(problem, planned),
        Setting::NumWorkers => workers.clone(),
        Setting::EvalBatchSize => eval_reason(planned),
    };
    Setting::ALL.map(reason).into()
}

fn batch_reason(problem: Problem<'_>, found: &Candidates, choice: &Choice) -> Reason {
    let Problem { device, workload, goal } = problem;
    let Choice { best, fastest, .. } = choice;
    let fastest_speed = with_interval(
        fastest.samples_per_s,
        speed_interval(device, fastest.samples_per_s, fastest.speed_error(device)),
    );
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
    if best.speed_error(device) == Some(SpeedError::LaunchBound) {
        why = format!("{why}; launch-bound: {} launches a micro-batch", grouped(workload.kernels));
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
        _ if problem.goal.world_size > 1 => (Provenance::Derived, "they are not planned for several ranks".to_owned()),
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

/// Source: H200, table of 8,192 rows of 512 and as many tokens: 2.09 ms in place of 0.21 (forward and backward pass).
const PRICE_OF_DETERMINISM: &str = "; `deterministic` leaves embeddings to Burn, whose gradients take 10 times as long";

fn kernels_reason(problem: Problem<'_>, found: &Candidates, choice: &Choice) -> Reason {
    let best = &choice.best;
    let others = || found.fitting().filter(|candidate| candidate.mode.kernels != best.mode.kernels);
    let fastest_other = others().map(|other| other.counted_per_s).reduce(f64::max);
    let was_timed = |kernels| found.modes.iter().any(|mode| mode.kernels == kernels);
    let (provenance, mut why) = match (problem.device.kind, problem.goal.kernels, fastest_other) {
        (DeviceKind::Cpu, ..) => (Provenance::Derived, "a CPU has no cuBLASLt".to_owned()),
        (DeviceKind::Gpu, Some(_), _) => (Provenance::Declared, "asked for".to_owned()),
        (DeviceKind::Gpu, None, Some(other)) => (best.provenance, ratio_of_kernels(best, other)),
        (DeviceKind::Gpu, None, None) if !was_timed(Kernels::Library) => {
            let why = "the default; `library` was not timed here by `cargo gpu-tuned measure`";
            (Provenance::Derived, why.to_owned())
        }
        (DeviceKind::Gpu, None, None) => (best.provenance, "the only ones that were timed here and fit".to_owned()),
    };
    if problem.goal.deterministic && best.mode.kernels.is_library() && problem.workload.sample.words > 0 {
        why.push_str(PRICE_OF_DETERMINISM);
    }
    Reason::new(Setting::Kernels, provenance, why)
}

/// Describes the speed of the chosen candidate and the fastest with other kernels, in samples/s.
fn ratio_of_kernels(best: &Candidate, other: f64) -> String {
    match (best.mode.kernels, best.counted_per_s / other) {
        (Kernels::Library, gain) => format!("{gain:.1} times as fast as `burn`"),
        (Kernels::Burn, gain) if gain > 0.995 => "`library` is no faster".to_owned(),
        (Kernels::Burn, gain) => format!("`library` is only {:.1}% faster", (1.0 / gain - 1.0) * 100.0),
    }
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
struct Workers {
    pub count: u64,
    pub reason: Reason,
    pub advice: Option<String>,
}

/// Returns the workers for a device that takes `samples_per_s`.
fn workers(device: &DeviceFacts, workload: &Workload, samples_per_s: f64, error: Option<SpeedError>) -> Workers {
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
    let speed = with_interval(samples_per_s, speed_interval(device, samples_per_s, error));
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
fn eval_batch(best: &Candidate, workload: &Workload) -> u64 {
    let live = workload.sample.largest_tensor.map(|tensor| tensor.times(LIVE_TENSORS));
    let fits = |factor: &u64| {
        let needed = live.map(|live| live.times(best.split.batch).times(*factor));
        needed.is_some_and(|needed: Bytes| needed <= best.memory.activations)
    };
    best.split.batch * EVAL_FACTORS.iter().find(|factor| fits(factor)).unwrap_or(&1)
}

/// Returns the threads that train on a CPU: all cores but those of the workers, where there are enough; `None` for a GPU.
fn cpu_threads(device: &DeviceFacts, settings: &Settings) -> Option<u64> {
    let cores = device.host_cores.filter(|_| device.kind == DeviceKind::Cpu)?;
    Some(if cores > 2 * settings.num_workers { cores - settings.num_workers } else { cores })
}

/// Ratio of throughputs above which a larger global batch is worth an advice.
const WORTHWHILE_RATIO: f64 = 1.05;

/// Returns advice on the goal and the model: a larger global batch, CUDA graphs, more samples for batch statistics, padding.
fn advice(search: &Search<'_>, choice: &Choice) -> impl Iterator<Item = String> {
    let (problem, found) = (search.problem, search.taken());
    let advice = [
        larger_batch(problem, found, choice),
        allowed_graphs(problem.goal, found),
        statistics(problem, choice),
        padding(problem.device, problem.workload, choice.best.mode),
    ];
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

/// Smallest dimension whose padding is worth an advice: products with fewer columns take a small part of a step.
const WORTH_PADDING: u64 = 1024;

/// Factor of a GPT's throughput in f32 with 50,304 words in place of 50,257, with Burn's kernels: 648 and 532 samples/s. In bf16 it is
/// 1.02, and no advice. Source: H200, 6 layers of 384, 256 tokens, through the trainer.
const GAIN_OF_PADDED_WORDS: f64 = 1.22;
/// Time of a bf16 product of 4,096 x 384 with 50,257 columns over that with 50,304, in Burn: 2.32 and 1.49 ms. In f32 padding gains
/// nothing. Source: H200.
const GAIN_OF_PADDED_PRODUCT: f64 = 1.56;

/// Advice to pad a dimension of the model whose rows do not begin at multiples of 16 bytes, where it was measured to gain. Library
/// kernels pad rows by themselves.
fn padding(device: &DeviceFacts, workload: &Workload, mode: Mode) -> Option<String> {
    let is_half = mode.precision != Precision::F32;
    let has_units = if is_half { device.has_units_for(mode.precision) } else { device.has_tf32 && !mode.full_f32 };
    if mode.kernels.is_library() || !has_units || device.kind != DeviceKind::Gpu {
        return None;
    }
    let aligned = 16 / mode.precision.compute_bytes();
    let dims = workload.spec.model.values();
    let odd = |name: &'static str| match dims.get(name) {
        Some(DimValue::Count(size)) if *size >= WORTH_PADDING && !size.is_multiple_of(aligned) => Some((name, *size)),
        _ => None,
    };
    let ((name, size), mask, gain) = if is_half {
        let gain =
            format!("a product with 50,304 columns in place of 50,257 was {GAIN_OF_PADDED_PRODUCT:.1} times as fast");
        (odd("d_model").or_else(|| odd("d_ff"))?, "", gain)
    } else {
        let gain = format!("50,304 words in place of 50,257 made a GPT {GAIN_OF_PADDED_WORDS:.1} times as fast");
        (odd("vocab")?, " and mask the rest in the loss", gain)
    };
    let padded = size.next_multiple_of(64);
    Some(format!("{name} = {size} is no multiple of {aligned}: pad it to {padded}{mask}. On an H200, {gain}"))
}

#[cfg(test)]
mod tests;
