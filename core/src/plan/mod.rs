//! The planner: from a device, a workload and a goal to settings, each with its reason.

mod advice;
mod baseline;
mod calibration;
mod candidates;
mod changes;
mod choice;
mod error;
mod estimate;
mod expectation;
mod expected;
mod explain;
mod filling;
mod global;
mod graphs;
mod host;
mod larger_gpu;
mod least;
mod limits;
mod memory;
mod misfit;
mod pools;
mod precision;
mod prefetch;
mod ranks;
mod reason;
mod recorded;
mod remedy;
mod report;
mod schedule;
mod simulation;
mod split;
mod statistics;
mod time;
mod transfer;

use serde::{Deserialize, Serialize};

pub use calibration::{COMPUTE_SHARE, ESTIMATE_ERROR, TRANSFER_ERROR};
pub use error::PlanError;
pub use estimate::MemoryEstimate;
pub use expectation::curve;
pub use expected::Expected;
pub use explain::{Considered, Explanation, Item, Outcome, TimeTerm, Verdict, explain};
pub use filling::{Filling, filling};
pub use host::ASSUMED_CORES;
pub use limits::largest_piece;
pub use misfit::{Misfit, Remedy, TooLarge};
pub use precision::{ConsideredPrecision, PrecisionVerdict};
pub use ranks::plan_ranks;
pub use reason::Reason;
pub use schedule::Schedule;
pub use statistics::{STATISTICS_ENOUGH, STATISTICS_FLOOR};
pub use transfer::{relative_speed, speed_interval, with_interval};

use crate::device::DeviceFacts;
use crate::workload::Workload;
use crate::{Goal, Provenance, Setting, Settings};
use choice::Choice;

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
    goal.check()?;
    if let Some(reason) = device.refusal.clone() {
        return Err(PlanError::GpuUnsupported { device: device.name.clone(), reason });
    }
    let asked = goal;
    let goal = &asked.in_samples(workload)?;
    // Tokens in samples may contradict a fixed micro-batch.
    goal.check()?;
    let precision = precision::decide(device, workload, goal)?;
    let Some(choice) = precision.choice else {
        let misfit = remedy::explain_misfit(device, workload, asked, precision.value)?;
        return Err(PlanError::DoesNotFit(Box::new(misfit)));
    };
    let best = &choice.best;
    let schedule = choice.schedule(goal);
    let workers = host::workers(device, workload, (best.samples_per_s * schedule.part_of_rank(), best.provenance));
    let mut settings = Settings {
        batch_size: best.batch,
        gradient_accumulation: best.micro_steps,
        precision: precision.value,
        allow_tf32: device.has_tf32,
        gradient_checkpointing: best.mode.checkpointing,
        cuda_graphs: best.mode.cuda_graphs,
        prefetch_depth: prefetch::depth(workload, goal, best.batch),
        num_workers: workers.count,
        eval_batch_size: host::eval_batch(best, workload),
    };
    let reasons = [
        choice.batch_reason(device, workload, goal),
        choice.accumulation_reason(goal),
        precision.reason,
        precision::tf32_reason(device),
        choice.checkpointing_reason(workload),
        host::prefetch_reason(workload, goal, &settings),
        workers.reason,
        host::eval_reason(&settings),
        graphs::reason(device, goal, &choice),
    ];
    goal.pins.over(&mut settings);
    let larger_batch = advice::larger_batch(device, workload, goal, precision.value, &choice);
    let statistics = statistics::advice(workload, goal, best);
    let advice = larger_batch.into_iter().chain(advice::graphs(goal, &choice)).chain(statistics);
    Ok(Plan {
        device: device.name.clone(),
        cpu_threads: host::cpu_threads(device, &settings),
        settings,
        schedule,
        memory: best.memory.clone(),
        samples_per_s: best.samples_per_s,
        samples_per_s_provenance: best.provenance,
        samples_per_s_interval: speed_interval(device, best.samples_per_s, best.provenance),
        advice: advice.chain(workers.advice).chain(device.remarks()).collect(),
        reasons: Setting::ALL.map(|setting| Reason::new(setting, &goal.pins, &reasons)).into(),
    })
}

/// Returns true if the device has a plan.
pub fn fits(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> bool {
    let Ok(goal) = goal.in_samples(workload) else { return false };
    let precisions = precision::supported(device, &goal).unwrap_or_default();
    precisions.into_iter().any(|precision| Choice::exists(device, workload, &goal, precision))
}

impl Plan {
    /// Moves the plan to a probed device: its memory, with the fraction `headroom` (0 to 1) unused, and no more workers
    /// than its host feeds.
    #[must_use]
    pub fn on(mut self, device: &DeviceFacts, workload: &Workload, headroom: f64) -> Self {
        self.device.clone_from(&device.name);
        self.memory.move_to(device, workload, headroom);
        let per_rank = self.samples_per_s * self.schedule.part_of_rank();
        let workers = host::workers(device, workload, (per_rank, self.samples_per_s_provenance));
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

#[cfg(test)]
mod fits_tests;
#[cfg(test)]
mod graphs_tests;
#[cfg(test)]
mod measured_tests;
#[cfg(test)]
mod precision_tests;
#[cfg(test)]
mod simulated_tests;
#[cfg(test)]
mod tests;
