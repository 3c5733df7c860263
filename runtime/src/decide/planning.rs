//! The plan of a run that begins.

use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::plan::{Plan, PlanError, plan};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, PrecisionPolicy, Provenance, Setting};
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
    /// True if the device is one that the build names.
    pub is_target: bool,
}

/// Parts of the build's plan that are kept as long as they fit, because others change the results.
#[derive(Clone, Copy)]
struct Kept {
    /// The micro-batch of a model with batch statistics.
    statistics: bool,
    /// The precision that the planner chose for the build.
    precision: bool,
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
        let (built, is_planned) = (&self.built.settings, goal.plans_precision());
        let kept = Kept {
            // A loss over the whole batch leaves one micro-batch.
            statistics: self.workload.batch_statistics && !goal.whole_batch_loss && goal.pins.batch_size.is_none(),
            precision: is_planned && self.is_target,
        };
        if kept.statistics {
            goal.pins.batch_size = Some(built.batch_size);
        }
        if kept.precision {
            goal.precision = Some(built.precision.into());
        }
        let mut plan = self.plan_or_give_way(goal, kept, fallbacks)?;
        if kept.statistics && plan.settings.batch_size == built.batch_size {
            give_reason(&mut plan, Setting::BatchSize, KEPT_FOR_STATISTICS);
        }
        let (asked, used) = (built.precision, plan.settings.precision);
        if kept.precision && used == asked {
            give_reason(&mut plan, Setting::Precision, "as built: another precision would change the results");
        }
        let is_promised = built_for_them.is_some() || !self.built.targets.is_empty();
        if is_planned && is_promised && used != asked {
            fallbacks.push(Fallback::Precision { asked, used });
        }
        Ok(plan)
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
    fn plan_or_give_way(&self, mut goal: Goal, kept: Kept, fallbacks: &mut Vec<Fallback>) -> Result<Plan, PlanError> {
        let error = match plan(self.facts, self.workload, &goal) {
            Ok(plan) => return Ok(plan),
            Err(error) => error,
        };
        match error {
            PlanError::PrecisionUnsupported { precision, .. } if goal.pins.precision.is_none() => {
                goal.precision = None;
                let mut plan = self.plan_or_give_way(goal, kept, fallbacks)?;
                fallbacks.push(Fallback::Precision { asked: precision, used: plan.settings.precision });
                give_reason(&mut plan, Setting::Precision, &format!("this device cannot train in {precision}"));
                Ok(plan)
            }
            PlanError::DoesNotFit(_) if kept.precision => {
                goal.precision = Some(PrecisionPolicy::Auto);
                self.plan_or_give_way(goal, Kept { precision: false, ..kept }, fallbacks)
            }
            PlanError::DoesNotFit(_) | PlanError::Pins { .. } if kept.statistics => {
                goal.pins.batch_size = None;
                fallbacks.push(Fallback::BatchStatistics { planned: self.built.settings.batch_size });
                self.plan_or_give_way(goal, Kept { statistics: false, ..kept }, fallbacks)
            }
            other => Err(other),
        }
    }
}

/// Reason for the build's micro-batch.
const KEPT_FOR_STATISTICS: &str =
    "as built: the model's statistics are those of a micro-batch, and another would change the results";

/// Replaces the reason of a setting.
pub(super) fn give_reason(plan: &mut Plan, setting: Setting, why: &str) {
    for reason in plan.reasons.iter_mut().filter(|reason| reason.setting == setting) {
        reason.provenance = Provenance::Derived;
        why.clone_into(&mut reason.why);
    }
}
