//! A config's training on one device: as it is, and as it is planned.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Filling, Misfit, Plan, PlanError, filling};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, Pins, Precision, Provenance, Setting, plan, three_digits};

use super::config::Config;
use super::error::OptimizeError;
use super::keys::Role;
use super::more::More;
use super::step::{self, Step};
use crate::error::Error;
use crate::targets::Target;

/// What is planned, whatever the device.
pub(super) struct Task<'a> {
    pub config: &'a Config<'a>,
    pub step: Step,
    pub workload: &'a Workload,
    /// The workload's name, for messages.
    pub name: &'a str,
    /// The goal without the batch.
    pub goal: Goal,
    /// The precision that the command line asks for.
    pub precision: Option<Precision>,
    pub can: Can,
}

/// What the file can say, or could with a key more.
#[derive(Clone, Copy, Debug)]
pub(super) struct Can {
    pub accumulation: bool,
    pub checkpointing: bool,
}

/// Why bf16 is not planned.
const NO_BF16: &str = "no bf16 tensor cores";

/// One target: before and after.
pub(super) struct Planned {
    pub before: Outcome,
    pub after: Outcome,
    /// What would be planned if the file could say how often gradients are accumulated.
    pub with_accumulation: Option<Box<Plan>>,
    /// How much of the device the plan uses.
    pub filling: Option<Filling>,
    /// What changes the meaning of the run, or does not reach its goal.
    pub warnings: Vec<String>,
    /// What would bring more, and is not for a planner to change.
    pub more: More,
}

/// What comes of settings on a device.
pub(super) enum Outcome {
    Plan(Box<Plan>),
    Misfit(Box<Misfit>),
    /// The device cannot do it: why not.
    Unsupported(String),
}

impl Outcome {
    pub(super) fn plan(&self) -> Option<&Plan> {
        match self {
            Self::Plan(plan) => Some(plan),
            _ => None,
        }
    }
}

impl Task<'_> {
    /// Plans the training for a target.
    pub(super) fn on(&self, target: &Target) -> Result<Planned, Error> {
        let facts = &target.facts_of(self.step.ranks);
        let goal = Goal { world_size: self.step.ranks, ..target.goal(self.goal.clone()) };
        let before = self.before(facts, &goal)?;
        let mut warnings = Vec::new();
        let precision = Some(self.precision(facts, &mut warnings)).filter(|precision| *precision != Precision::F32);
        let goal = Goal { global_batch: Some(self.step.global), precision, ..goal };
        let goal = self.pinned(goal, &mut warnings);
        let free = self.outcome(facts, &goal)?;
        let (mut after, with_accumulation) = self.sayable(facts, &goal, free)?;
        let falls_back = goal.precision.is_none() && self.precision.unwrap_or(self.config.precision) != Precision::F32;
        if let (Outcome::Plan(plan), true) = (&mut after, falls_back) {
            because(plan, Setting::Precision, NO_BF16);
        }
        let filling = after.plan().map(|plan| filling(facts, self.workload, plan));
        let more = match after.plan() {
            Some(plan) => More::than(plan, self, facts, &goal)?,
            None => More::default(),
        };
        Ok(Planned { before, after, with_accumulation, filling, warnings, more })
    }

    /// What the config says, checked.
    fn before(&self, facts: &DeviceFacts, goal: &Goal) -> Result<Outcome, Error> {
        let Step { batch, accumulation, ranks, .. } = self.step;
        let mut pins = Pins::default();
        (pins.batch_size, pins.gradient_accumulation) = (Some(batch), Some(accumulation));
        pins.gradient_checkpointing = Some(self.config.checkpointing.unwrap_or(false));
        (pins.num_workers, pins.prefetch_depth) = (self.config.workers, self.config.prefetch_depth());
        pins.allow_tf32 = self.config.tf32;
        let global_batch = Some(batch * accumulation * ranks);
        self.outcome(facts, &Goal { global_batch, precision: Some(self.config.precision), pins, ..goal.clone() })
    }

    /// The precision that is asked for, or f32 where the device has no such arithmetic.
    fn precision(&self, facts: &DeviceFacts, warnings: &mut Vec<String>) -> Precision {
        let asked = self.precision.unwrap_or(self.config.precision);
        if self.precision.is_none() && asked.needs_bf16() && !facts.has_bf16 {
            warnings.push(format!("{NO_BF16}: f32 in place of {asked}, which changes how the run rounds"));
            return Precision::F32;
        }
        asked
    }

    /// The goal with what the file cannot say fixed at what it is.
    fn pinned(&self, mut goal: Goal, warnings: &mut Vec<String>) -> Goal {
        if !self.can.checkpointing {
            goal.pins.gradient_checkpointing = Some(false);
        }
        // What rounds otherwise is only turned on where that is asked for, or left open.
        if self.config.tf32 == Some(false) {
            goal.pins.allow_tf32 = Some(false);
        }
        // The statistics of BatchNorm are over the micro-batch.
        if self.workload.batch_statistics {
            let fits = self.step.share().is_multiple_of(self.step.batch);
            goal.pins.batch_size = fits.then_some(self.step.batch);
            if !fits {
                warnings.push("the model computes statistics over the micro-batch, whose size changes".to_owned());
            }
        }
        goal
    }

    /// The plan as the file can say it: in micro-batches of one size, and at once where it has no key for accumulation.
    fn sayable(&self, facts: &DeviceFacts, goal: &Goal, free: Outcome) -> Result<(Outcome, Option<Box<Plan>>), Error> {
        let Outcome::Plan(plan) = free else { return Ok((free, None)) };
        let steps = plan.schedule.micro_steps();
        if steps > 1 && !self.can.accumulation {
            let mut at_once = goal.clone();
            at_once.pins.gradient_accumulation = Some(1);
            let mut outcome = self.outcome(facts, &at_once)?;
            if let Outcome::Plan(plan) = &mut outcome {
                because(plan, Setting::GradientAccumulation, "the config has no key for it");
                because(plan, Setting::BatchSize, "the whole batch at once: the config has no key for accumulation");
            }
            return Ok((outcome, Some(plan)));
        }
        if plan.schedule.samples_per_rank().is_multiple_of(plan.settings.batch_size) {
            return Ok((Outcome::Plan(plan), None));
        }
        let even = self.even(facts, goal)?;
        Ok((even.unwrap_or(Outcome::Plan(plan)), None))
    }

    /// The best of the ways to cut a step into micro-batches of one size.
    fn even(&self, facts: &DeviceFacts, goal: &Goal) -> Result<Option<Outcome>, Error> {
        let share = self.step.share();
        let small = (1..=share.isqrt()).filter(|batch| share.is_multiple_of(*batch));
        let mut all = Vec::new();
        for batch in small.flat_map(|batch| [batch, share / batch]) {
            let mut goal = goal.clone();
            goal.pins.batch_size = Some(batch);
            if let Outcome::Plan(plan) = self.outcome(facts, &goal)? {
                all.push(plan);
            }
        }
        let Some(fastest) = all.iter().map(|plan| plan.samples_per_s).max_by(f64::total_cmp) else { return Ok(None) };
        let is_enough = |samples_per_s: f64| samples_per_s >= fastest * (1.0 - goal.throughput_tolerance);
        let best = all
            .into_iter()
            .filter(|plan| is_enough(plan.samples_per_s))
            .min_by_key(|plan| (plan.settings.gradient_checkpointing, plan.settings.batch_size));
        Ok(best.map(|mut plan| {
            let why = format!(
                "the smallest that divides the step evenly within {:.0}% of the fastest such ({} samples/s)",
                goal.throughput_tolerance * 100.0,
                three_digits(fastest)
            );
            because(&mut plan, Setting::BatchSize, &why);
            Outcome::Plan(plan)
        }))
    }

    pub(super) fn outcome(&self, facts: &DeviceFacts, goal: &Goal) -> Result<Outcome, Error> {
        match plan(facts, self.workload, goal) {
            Ok(mut plan) => {
                if !self.can.checkpointing {
                    because(&mut plan, Setting::GradientCheckpointing, "the config has no key for it");
                }
                Ok(Outcome::Plan(Box::new(plan)))
            }
            Err(PlanError::DoesNotFit(misfit)) => Ok(Outcome::Misfit(misfit)),
            Err(error @ PlanError::PrecisionUnsupported { .. }) => Ok(Outcome::Unsupported(error.to_string())),
            Err(PlanError::WorldSize { global_batch, world_size, .. }) => {
                Err(OptimizeError::Ranks { global: global_batch, ranks: world_size }.into())
            }
            Err(source) => Err(Error::Plan { workload: self.name.to_owned(), source }),
        }
    }
}

/// Gives a setting another reason, which is the planner's own arithmetic.
fn because(plan: &mut Plan, setting: Setting, why: &str) {
    for reason in plan.reasons.iter_mut().filter(|reason| reason.setting == setting) {
        why.clone_into(&mut reason.why);
        if reason.provenance == Provenance::Declared {
            reason.provenance = plan.samples_per_s_provenance;
        }
    }
}

impl Can {
    /// What a config can say; with `add` its program reads whatever is added.
    pub(super) fn of(config: &Config<'_>, step: Step, add: bool) -> Self {
        let can = |role: Role| add || config.key(role).is_some() || config.family.key(role).is_some();
        let is_implied = step::implied(config, step.batch, step.ranks).is_some();
        Self { accumulation: is_implied || can(Role::Accumulation), checkpointing: can(Role::Checkpointing) }
    }
}
