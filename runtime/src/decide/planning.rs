//! The plan of a run that begins, and of a saved run, on the devices that are there now.

use gpu_tuned_core::device::{DeviceFacts, DeviceKind};
use gpu_tuned_core::plan::{Plan, PlanError, plan};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, OnResume, Pins, PrecisionPolicy, Provenance, Setting, SettingValue};
use gpu_tuned_project::compile::{Compiled, compile};
use gpu_tuned_project::resolved::Resolved;

use crate::resume::{ResumeError, same_micro_batches};
use crate::saved::SavedRun;
use crate::selection::Fallback;
use crate::start::StartError;
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

    /// Returns the samples of a step that the pins of `goal` make up. Only a number of micro-batches without their size
    /// needs a plan.
    pub(super) fn global_batch(&self, goal: Goal, built_for_them: Option<bool>) -> Result<u64, PlanError> {
        match (goal.pins.batch_size, goal.pins.gradient_accumulation.unwrap_or(1)) {
            (Some(batch @ 1..), micro_steps @ 1..) => {
                Ok(batch.saturating_mul(micro_steps).saturating_mul(goal.world_size))
            }
            _ => Ok(self.run(goal, built_for_them, &mut Vec::new())?.schedule.global_batch),
        }
    }

    /// Lowers the memory headroom where the memory of other processes is known.
    fn lower_headroom(&self, goal: &mut Goal) {
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

/// Why the saved micro-batch cannot be kept.
enum Obstacle {
    Memory,
    /// A rank's part of the step has fewer samples.
    Share {
        samples: u64,
    },
}

impl Planning<'_> {
    /// Keeps the saved settings if they apply; else plans again for the saved global batch, and records the reason.
    pub(super) fn restore(
        &self,
        saved: &SavedRun,
        mut goal: Goal,
        built_for_them: Option<bool>,
        fallbacks: &mut Vec<Fallback>,
    ) -> Result<Plan, StartError> {
        if built_for_them == Some(false) && self.facts.kind == DeviceKind::Gpu {
            fallbacks.push(Fallback::OtherGpu { found: self.facts.name.clone() });
        }
        let by_user = goal.pins.clone();
        let obstacle = match self.kept(saved, &goal)? {
            Ok(plan) => {
                let cut_alike = same_micro_batches(&saved.schedule, &plan.schedule);
                if self.workload.batch_statistics && !cut_alike {
                    return Err(self.statistics_change(saved, &goal).into());
                }
                return Ok(as_saved(plan, saved, &by_user));
            }
            Err(obstacle) => obstacle,
        };
        if self.workload.batch_statistics {
            return Err(self.statistics_change(saved, &goal).into());
        }
        self.lower_headroom(&mut goal);
        goal.precision = Some(saved.settings.precision.into());
        goal.kernels = Some(saved.settings.kernels);
        let plan = plan(self.facts, self.workload, &goal)?;
        let (micro_batch, used) = (saved.settings.batch_size, plan.settings.batch_size);
        fallbacks.push(match obstacle {
            Obstacle::Memory => {
                let available = self.facts.memory_available;
                Fallback::SavedMicroBatch { saved: micro_batch, used, device: self.facts.name.clone(), available }
            }
            Obstacle::Share { samples } => Fallback::SavedShare { saved: micro_batch, used, share: samples },
        });
        Ok(plan)
    }

    /// Plans the saved micro-batch with the saved settings. If that does not fit, settings that memory depends on are planned again.
    fn kept(&self, saved: &SavedRun, goal: &Goal) -> Result<Result<Plan, Obstacle>, StartError> {
        let settings = &saved.settings;
        let saved_pins = |on_resume| Pins::from(settings).keep(|setting| setting.row().on_resume == on_resume);
        // The saved micro-batch cuts the step, beside a number of micro-batches that the user may have fixed.
        let mut pins = goal.pins.or(&saved_pins(OnResume::Keep));
        pins.batch_size = Some(settings.batch_size);
        let as_it_was = pins.or(&saved_pins(OnResume::KeepIfFits));
        // The lower headroom of the build's constants, so that a run resumes on the device that confirmed them.
        let memory_headroom = goal.memory_headroom * Goal::HEADROOM_KEPT;
        let with = |pins| plan(self.facts, self.workload, &Goal { pins, memory_headroom, ..goal.clone() });
        let planned = match with(as_it_was) {
            Err(PlanError::DoesNotFit(_)) => with(pins),
            other => other,
        };
        match planned {
            Ok(plan) => Ok(Ok(plan)),
            Err(PlanError::DoesNotFit(_)) => Ok(Err(Obstacle::Memory)),
            Err(PlanError::Pins { samples, .. }) if samples < settings.batch_size => {
                Ok(Err(Obstacle::Share { samples }))
            }
            Err(PlanError::Pins { samples, gradient_accumulation: Some(steps), .. }) => Err(ResumeError::Pinned {
                setting: Setting::GradientAccumulation,
                then: SettingValue::Count(samples.div_ceil(settings.batch_size)),
                now: SettingValue::Count(steps),
            }
            .into()),
            Err(PlanError::PrecisionUnsupported { precision, device, .. }) => {
                Err(ResumeError::PrecisionUnsupported { precision, device }.into())
            }
            Err(PlanError::WorldSize { global_batch, world_size, would_do }) => {
                Err(ResumeError::WorldSize { global_batch, world_size, would_do }.into())
            }
            Err(other) => Err(other.into()),
        }
    }

    fn statistics_change(&self, saved: &SavedRun, goal: &Goal) -> ResumeError {
        let schedule = &saved.schedule;
        ResumeError::BatchStatistics {
            micro_batch: schedule.micro_batch,
            micro_steps: schedule.micro_steps(),
            device: self.facts.name.clone(),
            world_size: goal.world_size,
        }
    }
}

/// The plan with what the planner does not weigh as it was saved too, and with the saved run as the reason. TF32 stays
/// what the device has, and there are no more workers than its host feeds.
fn as_saved(mut plan: Plan, saved: &SavedRun, by_user: &Pins) -> Plan {
    if by_user.num_workers.is_none() {
        plan.settings.num_workers = plan.settings.num_workers.min(saved.settings.num_workers);
    }
    let restored = |setting: Setting| {
        let is_kept = setting.row().on_resume != OnResume::Replan || setting == Setting::NumWorkers;
        is_kept && !by_user.has(setting) && plan.settings.get(setting) == saved.settings.get(setting)
    };
    for reason in plan.reasons.iter_mut().filter(|reason| restored(reason.setting)) {
        reason.provenance = Provenance::Declared;
        "as in the saved run".clone_into(&mut reason.why);
    }
    plan
}
