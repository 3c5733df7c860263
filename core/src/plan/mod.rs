//! The planner: from a device, a workload and a goal to settings, each with its reason.
//!
//! One search returns every candidate with its verdict. [`Plan`] and [`Explanation`] are views of its result.

mod calibration;
mod curve;
mod explain;
mod measured;
mod memory;
mod misfit;
mod precision;
mod problem;
mod ranks;
mod reasons;
mod search;
mod time;

use core::fmt;

use serde::{Deserialize, Serialize};

pub use calibration::{COMPUTE_SHARE, ESTIMATE_ERROR, TRANSFER_ERROR};
pub use curve::{Expected, curve};
pub use explain::{Considered, Explanation, Outcome, explain};
pub use memory::{Item, MemoryEstimate, largest_piece};
pub use misfit::{Misfit, Remedy, TooLarge};
pub use precision::{ConsideredPrecision, PrecisionVerdict};
pub use problem::PlanError;
pub use ranks::{Schedule, plan_ranks};
pub use reasons::{ASSUMED_CORES, Reason};
pub use search::{STATISTICS_ENOUGH, STATISTICS_FLOOR, Verdict};
pub use time::{Filling, TimeTerm, filling, relative_speed, speed_interval, with_interval};

use crate::device::DeviceFacts;
use crate::workload::Workload;
use crate::{Bytes, Goal, Provenance, Setting, Settings};
use memory::prefetch_depth;
use problem::Problem;
use search::Search;

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
    /// Returns the plan that a search found; `None` where nothing fits.
    fn new(search: &Search<'_>) -> Option<Self> {
        let problem @ Problem { device, workload, goal } = search.problem;
        let choice = search.taken().choice.as_ref()?;
        let best = &choice.best;
        let schedule = Schedule::new(goal, best.split);
        let workers = reasons::workers(device, workload, best.samples_per_s * schedule.part_of_rank(), best.provenance);
        let planned = Settings {
            batch_size: best.split.batch,
            gradient_accumulation: best.split.micro_steps(),
            precision: best.mode.precision,
            allow_tf32: device.has_tf32,
            gradient_checkpointing: best.mode.checkpointing,
            cuda_graphs: best.mode.cuda_graphs,
            prefetch_depth: prefetch_depth(problem, best.split.batch),
            num_workers: workers.count,
            eval_batch_size: reasons::eval_batch(best, workload),
        };
        let reasons = reasons::reasons(search, choice, &schedule, &planned, &workers.reason);
        let mut settings = planned;
        goal.pins.over(&mut settings);
        Some(Self {
            device: device.name.clone(),
            cpu_threads: reasons::cpu_threads(device, &settings),
            settings,
            schedule,
            memory: best.memory.clone(),
            samples_per_s: best.samples_per_s,
            samples_per_s_provenance: best.provenance,
            samples_per_s_interval: speed_interval(device, best.samples_per_s, best.provenance),
            advice: reasons::advice(search, choice).chain(workers.advice).chain(device.remarks()).collect(),
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
        let workers = reasons::workers(device, workload, per_rank, self.samples_per_s_provenance);
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
        write!(
            f,
            "  {:<22} {:>9}  samples/s ({})",
            "speed",
            with_interval(self.samples_per_s, self.samples_per_s_interval),
            self.samples_per_s_provenance
        )?;
        for advice in &self.advice {
            write!(f, "\n  note: {advice}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
