//! The plan of a saved run on the devices that are there now.

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::plan::{Plan, PlanError, plan};
use gpu_tuned_core::{Goal, OnResume, Pins, Provenance, Setting, SettingValue};

use super::DecideError;
use super::planning::Planning;
use crate::resume::{ResumeError, same_micro_batches};
use crate::saved::SavedRun;
use crate::selection::Fallback;

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
    ) -> Result<Plan, DecideError> {
        if built_for_them == Some(false) && self.facts.kind == DeviceKind::Gpu {
            fallbacks.push(Fallback::OtherGpu { found: self.facts.name.clone() });
        }
        let by_user = goal.pins.clone();
        let obstacle = match self.kept(saved, &goal)? {
            Ok(plan) => {
                let cut_alike = same_micro_batches(saved.schedule(), &plan.schedule);
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
        goal.precision = Some(saved.settings().precision.into());
        let plan = plan(self.facts, self.workload, &goal)?;
        let (micro_batch, used) = (saved.settings().batch_size, plan.settings.batch_size);
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
    fn kept(&self, saved: &SavedRun, goal: &Goal) -> Result<Result<Plan, Obstacle>, DecideError> {
        let settings = saved.settings();
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
            Err(PlanError::PrecisionUnsupported { precision, device }) => {
                Err(ResumeError::PrecisionUnsupported { precision, device }.into())
            }
            Err(other) => Err(DecideError::Plan(other).for_run(Some(saved))),
        }
    }

    fn statistics_change(&self, saved: &SavedRun, goal: &Goal) -> ResumeError {
        let schedule = saved.schedule();
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
        plan.settings.num_workers = plan.settings.num_workers.min(saved.settings().num_workers);
    }
    let restored = |setting: Setting| {
        let is_kept = setting.row().on_resume != OnResume::Replan || setting == Setting::NumWorkers;
        is_kept && !by_user.has(setting) && plan.settings.get(setting) == saved.settings().get(setting)
    };
    for reason in plan.reasons.iter_mut().filter(|reason| restored(reason.setting)) {
        reason.provenance = Provenance::Declared;
        "as in the saved run".clone_into(&mut reason.why);
    }
    plan
}
