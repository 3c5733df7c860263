//! The plan of a run that begins.

use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::plan::{Plan, PlanError, plan};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, Provenance, Setting};
use gpu_tuned_project::compile::{Compiled, compile};
use gpu_tuned_project::resolved::Resolved;

use crate::selection::Fallback;
use crate::tuned::Built;

/// Planner for a known device.
pub(super) struct Planning<'a> {
    pub built: &'a Built,
    pub resolved: Option<&'a Resolved>,
    pub facts: &'a DeviceFacts,
    pub workload: &'a Workload,
}

impl Planning<'_> {
    /// Keeps the constants of the build if they apply; else plans again, and records the reason.
    ///
    /// `built_for_them` is `None` when the build left the decision to the runtime.
    pub(super) fn run(
        &self,
        mut goal: Goal,
        built_for_them: Option<bool>,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Plan, PlanError> {
        let constants = if built_for_them == Some(true) { self.constants(&goal) } else { None };
        if let Some(plan) = constants {
            if plan.memory.fits() {
                return Ok(plan);
            }
            let (needed, available) = (plan.memory.total(), self.facts.memory_available);
            fallbacks.push(Fallback::Memory { needed, available });
        } else if built_for_them == Some(false) && self.facts.kind == DeviceKind::Gpu {
            fallbacks.push(Fallback::OtherGpu { found: self.facts.name.clone() });
        }
        self.lower_headroom(&mut goal);
        if self.workload.batch_statistics && goal.pins.batch_size.is_none() {
            let built = self.built.settings.batch_size;
            goal.pins.batch_size = Some(built);
            let plan = self.plan_or_give_way(goal, true, fallbacks)?;
            return Ok(if plan.settings.batch_size == built { kept_for_statistics(plan) } else { plan });
        }
        self.plan_or_give_way(goal, false, fallbacks)
    }

    /// Lowers the memory headroom where the memory of other processes is known.
    pub(super) fn lower_headroom(&self, goal: &mut Goal) {
        if self.facts.memory_provenance == Provenance::Measured {
            goal.memory_headroom *= Goal::HEADROOM_KEPT;
        }
    }

    /// The plan of the build with this device's memory; `None` when the config is no longer what was planned for.
    fn constants(&self, goal: &Goal) -> Option<Plan> {
        let builtin = if self.resolved.is_none() { Resolved::from_builtin(self.built.target) } else { None };
        let resolved = self.resolved.or(builtin.as_ref())?;
        let Compiled { plan, .. } = compile(resolved, self.workload, goal).ok()?;
        (goal.pins.is_empty() && plan.settings == self.built.settings)
            .then(|| plan.on(self.facts, self.workload, goal.memory_headroom * Goal::HEADROOM_KEPT))
    }

    /// Plans again, and drops requests that the device cannot meet, one at a time.
    fn plan_or_give_way(
        &self,
        mut goal: Goal,
        keeps_statistics: bool,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Plan, PlanError> {
        let error = match plan(self.facts, self.workload, &goal) {
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        match error {
            PlanError::PrecisionUnsupported { precision, .. } if goal.pins.precision.is_none() => {
                goal.precision = None;
                fallbacks.push(Fallback::Precision { asked: precision });
            }
            PlanError::DoesNotFit(_) | PlanError::Pins { .. } if keeps_statistics => {
                goal.pins.batch_size = None;
                fallbacks.push(Fallback::BatchStatistics { planned: self.built.settings.batch_size });
                return self.plan_or_give_way(goal, false, fallbacks);
            }
            other => return Err(other),
        }
        self.plan_or_give_way(goal, keeps_statistics, fallbacks)
    }
}

/// The plan with the reason for a micro-batch that is the build's wherever it fits.
fn kept_for_statistics(mut plan: Plan) -> Plan {
    let of_batch = plan.reasons.iter_mut().filter(|reason| reason.setting == Setting::BatchSize);
    for reason in of_batch {
        reason.provenance = Provenance::Derived;
        "as built: the model's statistics are those of a micro-batch, and another would change the results"
            .clone_into(&mut reason.why);
    }
    plan
}
