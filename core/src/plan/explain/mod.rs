//! Arithmetic of a plan: every item as a formula with its numbers, and the candidates that were not chosen.

mod considered;
mod memory;
mod time;

use serde::Serialize;

pub use considered::{Considered, Verdict};
pub use memory::Item;
pub use time::TimeTerm;

use super::{ConsideredPrecision, MemoryEstimate, Misfit, Plan, PlanError, plan, precision};
use crate::device::DeviceFacts;
use crate::workload::Workload;
use crate::{Bytes, Goal, Precision};

/// Arithmetic of a plan, or of a workload that does not fit.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Explanation {
    /// Facts of the device.
    pub device: DeviceFacts,
    /// Costs of the training step.
    #[serde(rename = "costs")]
    pub workload: Workload,
    /// The goal, in samples.
    pub goal: Goal,
    /// Memory, item by item: of the plan, or where nothing fits, of the micro-batch that needs the least.
    pub memory: Vec<Item>,
    /// The sum of the items.
    pub needed: Bytes,
    /// Bytes that training may take: the available memory less the headroom.
    pub budget: Bytes,
    /// The predicted time of an optimizer step, term by term; empty where nothing fits.
    pub time: Vec<TimeTerm>,
    /// The precisions that were compared.
    pub precisions: Vec<ConsideredPrecision>,
    /// The chosen micro-batch among its neighbours, largest first.
    pub considered: Vec<Considered>,
    /// Result of planning.
    #[serde(flatten)]
    pub outcome: Outcome,
}

/// Result of planning.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The workload fits.
    Plan(Box<Plan>),
    /// The workload does not fit.
    Misfit(Box<Misfit>),
}

/// Explains the result of [`plan()`].
///
/// # Errors
///
/// When the goal contradicts itself, or asks for an unsupported precision. A workload that does not fit is explained.
pub fn explain(device: &DeviceFacts, workload: &Workload, goal: &Goal) -> Result<Explanation, PlanError> {
    let outcome = match plan(device, workload, goal) {
        Ok(plan) => Outcome::Plan(Box::new(plan)),
        Err(PlanError::DoesNotFit(misfit)) => Outcome::Misfit(misfit),
        Err(error) => return Err(error),
    };
    let goal = goal.in_samples(workload)?;
    let precision::Decision { value: precision, choice, considered: precisions, .. } =
        precision::decide(device, workload, &goal)?;
    let asked = Asked { device, workload, goal: &goal, precision };
    let estimate = outcome.memory();
    let (mode, accumulates) = match &outcome {
        Outcome::Plan(plan) => (device.mode(&plan.settings), plan.schedule.micro_steps() > 1),
        Outcome::Misfit(misfit) => {
            let mode = device.mode_of(precision, misfit.checkpointing, goal.pins.allow_tf32());
            (mode, misfit.memory.accumulated_gradients > Bytes::ZERO)
        }
    };
    let items = memory::items(&asked, estimate, mode, accumulates);
    let time = choice
        .as_ref()
        .map_or_else(Vec::new, |choice| time::terms(&asked, &choice.best, choice.schedule(&goal).samples_per_rank()));
    let (needed, budget) = (estimate.total(), estimate.budget());
    let considered = considered::around(&asked, choice.as_ref())?;
    Ok(Explanation {
        memory: items,
        needed,
        budget,
        time,
        precisions,
        considered,
        outcome,
        device: device.clone(),
        workload: workload.clone(),
        goal,
    })
}

impl Outcome {
    /// Memory of the plan, or where nothing fits, of the micro-batch that needs the least.
    pub fn memory(&self) -> &MemoryEstimate {
        match self {
            Self::Plan(plan) => &plan.memory,
            Self::Misfit(misfit) => &misfit.memory,
        }
    }
}

/// Inputs of the plan: a goal in samples, and the chosen precision.
struct Asked<'a> {
    device: &'a DeviceFacts,
    workload: &'a Workload,
    goal: &'a Goal,
    precision: Precision,
}

#[cfg(test)]
mod tests;
