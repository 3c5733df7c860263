//! From a config and a machine to a selection and a plan. Opens nothing.

mod asked;
mod built_for;
mod devices;
mod error;
mod first_fit;
mod planning;
mod ranks;
mod restore;
mod saving;
#[cfg(feature = "distributed")]
mod shares;

use std::fmt;

#[cfg(any(test, feature = "cuda"))]
use gpu_tuned_core::Provenance;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::Plan;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, Pins, Precision, Setting};
use gpu_tuned_project::resolved::Resolved;
use serde::Serialize;

pub(crate) use devices::DeviceRequest;
pub(crate) use error::DecideError;
pub(crate) use ranks::{CommonFacts, RanksHere};
#[cfg(feature = "distributed")]
pub(crate) use ranks::{RankFacts, UnequalShares};
#[cfg(feature = "distributed")]
pub(crate) use shares::{rank_facts, unequal_shares};

use crate::detect::{Machine, UnusableGpu};
use crate::resume::{self, Resumed};
use crate::saved::SavedRun;
use crate::selection::{Change, Fallback, Selection};
use crate::tuned::{Built, Tuned};
use devices::{Device, Gpu};
use planning::Planning;

/// Decision before a device is opened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// Chosen device, with its differences from those of the build.
    pub selection: Selection,
    /// The settings with their reasons, and the memory they take.
    pub plan: Plan,
    /// Cost model of a training step.
    pub workload: Workload,
    /// Inputs of the plan.
    #[serde(skip)]
    pub(crate) inputs: PlanInputs,
}

/// Inputs of a plan.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct PlanInputs {
    /// Facts of the device; of several ranks those that apply to all devices.
    pub facts: DeviceFacts,
    /// In samples, with what is fixed.
    pub goal: Goal,
}

#[cfg(any(test, feature = "cuda"))]
impl Decision {
    /// Explains that TF32 was to be switched off, and stays on.
    pub(crate) fn tf32_stays(&mut self, because: String) {
        self.explain_tf32("could not be switched off");
        self.selection.fallbacks.push(Fallback::Tf32 { because });
    }

    /// Explains that TF32 is off without a request.
    pub(crate) fn tf32_is_off(&mut self) {
        self.explain_tf32("switched off in this process before");
    }

    fn explain_tf32(&mut self, why: &str) {
        let is_it = |setting| setting == Setting::AllowTf32;
        for reason in self.plan.reasons.iter_mut().filter(|reason| is_it(reason.setting)) {
            reason.provenance = Provenance::Derived;
            why.clone_into(&mut reason.why);
        }
        for change in self.selection.changes.iter_mut().filter(|change| is_it(change.setting)) {
            change.by_user = false;
        }
    }
}

/// The selection, then the plan.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.selection, self.plan)
    }
}

/// Inputs of a decision beside the config.
#[derive(Clone, Copy)]
pub(crate) struct DecisionContext<'a> {
    pub machine: &'a Machine,
    /// Requested device.
    pub wanted: &'a DeviceRequest,
    /// GPUs that failed to open.
    pub broken: &'a [UnusableGpu],
    /// Saved run to resume.
    pub saved: Option<&'a SavedRun>,
    /// Pins for this start, which override the config.
    pub set: &'a Pins,
    /// Why the model is not ready for 16 bits.
    pub not_ready: Option<&'a str>,
    /// The ranks that this process trains with, if it was launched as one of several.
    pub ranks: Option<&'a RanksHere>,
}

/// Decides for the requested device of the machine, or for the CPU without a usable GPU.
pub(crate) fn decide<C: Tuned>(config: &C, context: DecisionContext<'_>) -> Result<Decision, DecideError> {
    match context.wanted {
        DeviceRequest::FirstFit => first_fit::decide_for_first_fit(config, context),
        DeviceRequest::This(position) => {
            let decided = decide_on(config, context);
            decided.map_err(|error| first_fit::with_remedy(error, config, context, Some(*position)))
        }
        DeviceRequest::Cpu { .. } => {
            let decided = decide_on(config, context);
            decided.map_err(|error| first_fit::with_remedy(error, config, context, None))
        }
    }
}

/// Decides for this device and no other GPU.
fn decide_on<C: Tuned>(config: &C, context: DecisionContext<'_>) -> Result<Decision, DecideError> {
    let resolved = C::BUILT.table.map(Resolved::embedded).transpose()?;
    let spec = spec(config)?;
    let mut workload = spec.workload();
    let mut goal = goal(config, &spec, &workload, context)?;
    let none = ProfileTable::default();
    let profiles = resolved.map_or(&none, |resolved| &resolved.profile);
    let Device { gpu, facts, fallback } = Device::choose(context, profiles);
    let mut fallbacks: Vec<_> = fallback.into_iter().collect();
    let built_for_it = built_for::is_built_for(&C::BUILT, resolved, gpu.as_ref());
    let is_target = built_for::is_named(&C::BUILT, gpu.as_ref(), built_for_it);
    let common = context.ranks.and_then(|ranks| ranks.common.as_ref());
    let (facts, built_for_it, is_target) = match common {
        // Each rank has a plan of its own.
        Some(CommonFacts { shares: Some(_), facts: common, .. }) => {
            (DeviceFacts { has_tf32: common.has_tf32, ..facts }, built_for_it, is_target)
        }
        Some(common) => (common.facts.clone(), common.built_for, common.is_target),
        None => (facts, built_for_it, is_target),
    };
    if let Some(ranks) = context.ranks {
        goal.world_size = ranks.world_size;
        if let Some(shares) = common.and_then(|common| common.shares.as_ref()) {
            goal.share = shares.of_ranks.get(ranks.rank).copied();
            goal.precision = Some(shares.precision.into());
        }
    }
    if let Some(resolved) = resolved {
        workload = resolved.workload_on(C::BUILT.workload, &spec, core::slice::from_ref(&facts));
    }
    if context.saved.is_none() && is_switched_on::<C>(&goal, context.set) {
        goal.pins.precision = facts.mixed_precision().or(goal.pins.precision);
    }
    let not_ready = context.not_ready.filter(|_| goal.plans_precision() && context.saved.is_none());
    if let Some(because) = not_ready {
        goal.precision = Some(Precision::F32.into());
        fallbacks.push(Fallback::NotReady { because: because.to_owned() });
    }
    let planning = Planning { built: &C::BUILT, resolved, facts: &facts, workload: &workload, is_target };
    let mut plan = match context.saved {
        None => planning.run(goal.clone(), built_for_it, &mut fallbacks)?,
        Some(saved) => planning.restore(saved, goal.clone(), built_for_it, &mut fallbacks)?,
    };
    let outdated = resolved.and_then(|resolved| resolved.measured.measured_before(C::BUILT.workload, &spec));
    plan.advice.extend(outdated.map(|outdated| outdated.to_string()));
    if context.saved.is_none() {
        plan.advice.extend(asked::nothing_stated(config, &plan.schedule));
    }
    if not_ready.is_some() {
        planning::give_reason(&mut plan, Setting::Precision, "the model is not ready for 16 bits");
    }
    asked::name_the_source(&mut plan, context.set);
    let selection = selection(config, context, gpu, fallbacks, &plan);
    Ok(Decision { selection, plan, workload, inputs: PlanInputs { facts, goal } })
}

/// Returns the workload of a config whose fields have usable values.
fn spec<C: Tuned>(config: &C) -> Result<WorkloadSpec, DecideError> {
    if let Some((field, count)) = config.negative() {
        return Err(DecideError::Negative { field, count });
    }
    if let Some(field) = config.unreadable() {
        return Err(DecideError::Precision(field));
    }
    let spec = config.workload();
    match spec.mistakes().into_iter().next() {
        Some((_, message)) => Err(DecideError::Dimensions(message)),
        None => Ok(spec),
    }
}

/// Goal of the config with the pins of this start, for the global batch of a saved run.
fn goal<C: Tuned>(
    config: &C,
    spec: &WorkloadSpec,
    workload: &Workload,
    context: DecisionContext<'_>,
) -> Result<Goal, DecideError> {
    // Converted before the ranks are decided: tokens of a step do not depend on them.
    let mut goal = asked::goal(config).in_samples(workload)?;
    if goal.global_batch.is_none() && !context.set.is_empty() {
        // Pins of one start cut the steps of the same run.
        let without_pins = decide_on(config, DecisionContext { set: &Pins::default(), ..context })?;
        goal.global_batch = Some(without_pins.plan.schedule.global_batch);
    }
    goal.pins = context.set.or(&goal.pins);
    if let Some(saved) = context.saved {
        let precision = saved.settings().precision;
        if is_switched_on::<C>(&goal, context.set) && precision.is_mixed() {
            goal.pins.precision = Some(precision);
        }
        resume::check(saved, config, spec, workload, &goal)?;
        goal.global_batch = Some(saved.schedule().global_batch);
    }
    Ok(goal)
}

/// Returns true if the user turned on a switch for mixed precision, without naming a precision.
fn is_switched_on<C: Tuned>(goal: &Goal, set: &Pins) -> bool {
    let is_mixed = goal.pins.precision.is_some_and(Precision::is_mixed);
    C::HAS_AMP_SWITCH && is_mixed && set.precision.is_none()
}

fn selection<C: Tuned>(
    config: &C,
    context: DecisionContext<'_>,
    gpu: Option<Gpu>,
    fallbacks: Vec<Fallback>,
    plan: &Plan,
) -> Selection {
    let common = context.ranks.and_then(|ranks| ranks.common.as_ref());
    Selection {
        weakest: common.map(|common| common.weakest.clone()).unwrap_or_default(),
        passed_over: Vec::new(),
        gpu: gpu.map(Into::into),
        built_for: C::BUILT.target.to_owned(),
        fallbacks,
        resumed: context.saved.map(|saved| Resumed::new(saved, plan)),
        changes: changes(config, context.set, &C::BUILT, plan),
    }
}

/// Differences from the constants of the build, in the precision and in settings with a config field.
fn changes<C: Tuned>(config: &C, set: &Pins, built: &Built, plan: &Plan) -> Vec<Change> {
    let tuned = config.tuned();
    let by_user = set.or(&asked::pins(&tuned, built));
    let differs = |setting: &Setting| built.settings.get(*setting) != plan.settings.get(*setting);
    let change = |setting: Setting| Change {
        setting,
        built: built.settings.get(setting),
        used: plan.settings.get(setting),
        by_user: by_user.has(setting),
    };
    let is_reported = |setting: &Setting| *setting == Setting::Precision || tuned.has(*setting);
    Setting::ALL.into_iter().filter(is_reported).filter(differs).map(change).collect()
}

#[cfg(test)]
#[path = "tf32_tests.rs"]
mod tests;
