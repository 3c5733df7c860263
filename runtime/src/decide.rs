//! From a config and a machine to a selection and a plan. Opens nothing.

mod device;
mod planning;
mod ranks;

use std::fmt;

#[cfg(any(test, feature = "cuda"))]
use gpu_tuned_core::Provenance;
use gpu_tuned_core::device::{DeviceFacts, DeviceKind, GpuReading};
use gpu_tuned_core::plan::{Plan, PlanError, Reason, Schedule};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::workload::{Workload, WorkloadSpec};
use gpu_tuned_core::{Goal, Kernels, Pins, Precision, PrecisionPolicy, Setting};
use gpu_tuned_nvml::{FirstFit, Fit, Host, Machine, UnusableGpu, UsableGpu};
use serde::Serialize;

pub(crate) use device::DeviceRequest;
pub(crate) use ranks::{CommonFacts, RanksHere};
#[cfg(feature = "distributed")]
pub(crate) use ranks::{RankFacts, UnequalShares, rank_facts, unequal_shares};

use crate::resume::{self, ResumeError, Resumed};
use crate::saved::SavedRun;
use crate::selection::{Change, Fallback, Selection};
use crate::start::StartError;
use crate::tuned::{Built, Tuned};
use device::{Device, is_built_for, is_named, is_target, usable_gpu};
use planning::{Planning, give_reason};

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
    /// Why the library's kernels cannot be used on the device that was opened.
    pub no_library: Option<&'a str>,
    /// The ranks that this process trains with, if it was launched as one of several.
    pub ranks: Option<&'a RanksHere>,
}

#[cfg(test)]
impl<'a> DecisionContext<'a> {
    /// A first start with nothing known but the machine.
    fn first(machine: &'a Machine, set: &'a Pins) -> Self {
        let (wanted, broken) = (&DeviceRequest::FirstFit, &[]);
        Self { machine, wanted, broken, saved: None, set, not_ready: None, no_library: None, ranks: None }
    }
}

/// Decides for the requested device of the machine, or for the CPU without a usable GPU.
pub(crate) fn decide<C: Tuned>(config: &C, context: DecisionContext<'_>) -> Result<Decision, StartError> {
    let refused = match context.wanted {
        DeviceRequest::FirstFit => return decide_for_first_fit(config, context),
        DeviceRequest::This(position) => Some(*position),
        DeviceRequest::Cpu { .. } => None,
    };
    decide_on(config, context).map_err(|error| with_remedy(error, config, context, refused))
}

/// Decides for the first usable GPU on which the plan fits in its precision, else for the CPU if no GPU is usable.
fn decide_for_first_fit<C: Tuned>(config: &C, context: DecisionContext<'_>) -> Result<Decision, StartError> {
    let machine = context.machine;
    let resolved = C::BUILT.resolved()?;
    let none = ProfileTable::default();
    let profiles = resolved.map_or(&none, |resolved| &resolved.profile);
    let is_target = |gpu: &GpuReading| is_target(&C::BUILT, resolved, gpu);
    // The plan of an unusable GPU would be the CPU's, with errors of its own.
    let (mut order, mut unusable): (_, Vec<UnusableGpu>) = (machine.preference(is_target), Vec::new());
    order.retain(|&position| {
        let refused = usable_gpu(position, context, profiles).err();
        let is_usable = refused.is_none();
        unusable.extend(refused);
        is_usable
    });
    let mut refused: Option<(usize, StartError)> = None;
    let mut invalid: Option<StartError> = None;
    let fits = order.into_iter().map_while(|position| {
        let decided = decide_on(config, DecisionContext { wanted: &DeviceRequest::This(position), ..context });
        let error = match decided {
            Ok(decision) => return Some((position, decision.into_fit())),
            Err(error) => error,
        };
        let because = match &error {
            StartError::Plan(PlanError::DoesNotFit(_)) => None,
            StartError::Plan(PlanError::PrecisionUnsupported { .. })
            | StartError::Resume(ResumeError::PrecisionUnsupported { .. }) => Some(error.to_string()),
            // A GPU after the first one cannot mend an invalid request.
            _ => {
                invalid = Some(error);
                return None;
            }
        };
        refused.get_or_insert((position, error));
        Some((position, Fit::No { because }))
    });
    if let Some(FirstFit { position, plan: mut decision, failed }) = FirstFit::new(fits) {
        unusable.extend(failed);
        decision.selection.passed_over = machine.passed_over(position, is_target, &unusable);
        return Ok(decision);
    }
    match (refused, invalid) {
        (Some((_, first)), Some(_)) => Err(first),
        (None, Some(invalid)) => Err(invalid),
        (Some((position, error)), None) => Err(with_remedy(error, config, context, Some(position))),
        (None, None) => {
            let because = unusable.into_iter().map(|gpu| gpu.because).collect();
            let cpu = DeviceRequest::Cpu { because };
            let wanted = if machine.gpus.is_empty() { context.wanted } else { &cpu };
            let decided = decide_on(config, DecisionContext { wanted, ..context });
            decided.map_err(|error| with_remedy(error, config, context, None))
        }
    }
}

impl Decision {
    /// Compares the precision of the plan with the requested one.
    fn into_fit(self) -> Fit<Self> {
        let goal = &self.inputs.goal;
        let is_open = goal.pins.precision.is_none() && self.selection.resumed.is_none();
        match goal.precision {
            Some(PrecisionPolicy::Fixed(precision)) if is_open && precision != self.plan.settings.precision => {
                let because = PlanError::precision_unsupported(precision, &self.inputs.facts).to_string();
                Fit::OtherPrecision { plan: self, because }
            }
            _ => Fit::Whole(self),
        }
    }
}

/// Names the remedy on this machine, where there is one, in the error of a plan that does not fit GPU `refused`, or the CPU
/// without one: another GPU, or the limit of this process. Such a remedy leaves the run as it is.
fn with_remedy<C: Tuned>(
    mut error: StartError,
    config: &C,
    context: DecisionContext<'_>,
    refused: Option<usize>,
) -> StartError {
    let StartError::Plan(PlanError::DoesNotFit(misfit)) = &mut error else { return error };
    let all = &context.machine.gpus;
    let is_broken = |gpu: &GpuReading| context.broken.iter().any(|broken| all.get(broken.position) == Some(gpu));
    let decided = |machine: &Machine, wanted: &DeviceRequest| {
        decide_on(config, DecisionContext { machine, wanted, broken: &[], ..context })
    };
    let fits = |gpu: &GpuReading| {
        let mut machine = context.machine.clone();
        machine.gpus = vec![gpu.clone()];
        let alone = || decided(&machine, &DeviceRequest::This(0));
        !is_broken(gpu) && alone().is_ok_and(|decision| decision.selection.gpu.is_some())
    };
    let fits_host = |host: &Host| {
        let mut machine = context.machine.clone();
        machine.host = *host;
        decided(&machine, &DeviceRequest::Cpu { because: Vec::new() }).is_ok()
    };
    let remedy = match refused {
        Some(position) => context.machine.remedy(position, fits),
        None => context.machine.host_remedy(fits_host),
    };
    if let Some(remedy) = remedy {
        misfit.remedies = vec![remedy];
    }
    error
}

/// Decides for this device and no other GPU.
fn decide_on<C: Tuned>(config: &C, context: DecisionContext<'_>) -> Result<Decision, StartError> {
    let resolved = C::BUILT.resolved()?;
    let spec = spec(config)?;
    let mut workload = spec.workload();
    let (mut goal, own_pins) = goal(config, &spec, &workload, context)?;
    let none = ProfileTable::default();
    let profiles = resolved.map_or(&none, |resolved| &resolved.profile);
    let Device { gpu, facts, fallback } = Device::choose(context, profiles);
    let mut fallbacks: Vec<_> = fallback.into_iter().collect();
    let built_for_it = is_built_for(&C::BUILT, resolved, gpu.as_ref().map(|gpu| (&gpu.reading, &gpu.found)));
    let is_target = is_named(&C::BUILT, gpu.as_ref(), built_for_it);
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
    // The goal in a precision that device and model are ready for, and why the model is not.
    let in_ready_precision = |mut goal: Goal, set: &Pins| {
        if context.saved.is_none() && is_switched_on::<C>(&goal, set) {
            goal.pins.precision = facts.mixed_precision().or(goal.pins.precision);
        }
        let not_ready = context.not_ready.filter(|_| goal.plans_precision() && context.saved.is_none());
        goal.precision = if not_ready.is_some() { Some(Precision::F32.into()) } else { goal.precision };
        (goal, not_ready)
    };
    let planning = Planning { built: &C::BUILT, resolved, facts: &facts, workload: &workload, is_target };
    if goal.global_batch.is_none() && !context.set.is_empty() {
        // Pins of one start cut the steps of the same run.
        let (of_config, _) = in_ready_precision(Goal { pins: own_pins, ..goal.clone() }, &Pins::default());
        goal.global_batch = Some(planning.global_batch(of_config, built_for_it)?);
    }
    let (goal, not_ready) = in_ready_precision(goal, context.set);
    fallbacks.extend(not_ready.map(|because| Fallback::NotReady { because: because.to_owned() }));
    let (goal, no_library) = without_library(goal, context, &facts);
    fallbacks.extend(no_library.map(|because| Fallback::Kernels { because: because.to_owned() }));
    let mut plan = match context.saved {
        None => planning.run(goal.clone(), built_for_it, &mut fallbacks)?,
        Some(saved) => planning.restore(saved, goal.clone(), built_for_it, &mut fallbacks)?,
    };
    let outdated = resolved.and_then(|resolved| resolved.measured.measured_before(C::BUILT.workload, &spec));
    plan.advice.extend(outdated.map(|outdated| outdated.to_string()));
    if context.saved.is_none() {
        plan.advice.extend(nothing_stated(config, &plan.schedule));
    }
    if not_ready.is_some() {
        give_reason(&mut plan, Setting::Precision, "the model is not ready for 16 bits");
    }
    name_the_source(&mut plan, context.set);
    if no_library.is_some() {
        give_reason(&mut plan, Setting::Kernels, "the library cannot be used here");
    }
    let mut selection = selection(config, context, gpu, fallbacks, &plan);
    if no_library.is_some() {
        let kernels = selection.changes.iter_mut().filter(|change| change.setting == Setting::Kernels);
        kernels.for_each(|change| change.by_user = false);
    }
    Ok(Decision { selection, plan, workload, inputs: PlanInputs { facts, goal } })
}

/// Asks for Burn's kernels, if the library was asked for or planned and cannot be used. Also returns why not, and what to do.
fn without_library<'a>(mut goal: Goal, context: DecisionContext<'a>, facts: &DeviceFacts) -> (Goal, Option<&'a str>) {
    let saved = context.saved.map(|saved| saved.settings.kernels);
    let asked = goal.pins.kernels.or(saved).or(goal.kernels).unwrap_or_default();
    let is_cpu = facts.kind == DeviceKind::Cpu;
    let without_cuda = cfg!(all(feature = "burn", not(feature = "cuda")));
    let because = match context.no_library {
        Some(because) => because,
        None if is_cpu && without_cuda => {
            "this program is built without feature `cuda` of gpu-tuned; enable it, or set burn"
        }
        None if is_cpu => "a CPU has no cuBLASLt; train on a CUDA GPU, or set burn",
        None => return (goal, None),
    };
    if !asked.is_library() && context.no_library.is_none() {
        return (goal, None);
    }
    goal.kernels = Some(Kernels::Burn);
    // The saved kernels give way to a pin only.
    goal.pins.kernels = saved.map(|_| Kernels::Burn);
    (goal, Some(because))
}

/// Returns the workload of a config whose fields have usable values.
fn spec<C: Tuned>(config: &C) -> Result<WorkloadSpec, StartError> {
    if let Some((field, count)) = config.negative() {
        return Err(StartError::Negative { field, count });
    }
    match config.unreadable() {
        Some((Setting::Kernels, field)) => return Err(StartError::Kernels { field }),
        Some((_, field)) => return Err(StartError::Precision { field }),
        None => {}
    }
    let spec = config.workload();
    match spec.mistakes().into_iter().next() {
        Some((_, message)) => Err(StartError::Dimensions { message }),
        None => Ok(spec),
    }
}

/// Goal of the config with the pins of this start, for the global batch of a saved run; and the config's own pins.
fn goal<C: Tuned>(
    config: &C,
    spec: &WorkloadSpec,
    workload: &Workload,
    context: DecisionContext<'_>,
) -> Result<(Goal, Pins), StartError> {
    // Converted before the ranks are decided: tokens of a step do not depend on them.
    let mut goal = goal_of_config(config).in_samples(workload)?;
    let pins = context.set.or(&goal.pins);
    let own_pins = core::mem::replace(&mut goal.pins, pins);
    if let Some(saved) = context.saved {
        let precision = saved.settings.precision;
        if is_switched_on::<C>(&goal, context.set) && precision.is_mixed() {
            goal.pins.precision = Some(precision);
        }
        resume::check(saved, config, spec, workload, &goal)?;
        goal.global_batch = Some(saved.schedule.global_batch);
    }
    Ok((goal, own_pins))
}

/// The build's goal, with pins for the fields that the user set.
fn goal_of_config<C: Tuned>(config: &C) -> Goal {
    let mut goal = config.asked();
    goal.pins = pins(&config.tuned(), &C::BUILT);
    // The build's global batch keeps the run the same on every machine. A micro-batch set by the user replaces it.
    let own_batch = goal.pins.batch_size.is_some() || goal.pins.gradient_accumulation.is_some();
    if goal.global_batch.is_none() && goal.global_tokens.is_none() && !own_batch {
        goal.global_batch = Some(C::BUILT.global_batch);
    }
    goal
}

/// Advice to state a global batch, where neither the attribute nor a field does. The build's target then decides it.
fn nothing_stated<C: Tuned>(config: &C, schedule: &Schedule) -> Option<String> {
    let asked = config.asked();
    let pins = pins(&config.tuned(), &C::BUILT);
    let is_stated = [asked.global_batch, asked.global_tokens, pins.batch_size, pins.gradient_accumulation];
    is_stated.iter().all(Option::is_none).then(|| {
        format!(
            "no global batch is asked for: an optimizer step has {} samples, chosen for {}; a build for another GPU may choose \
             another number. Add `global_batch = …` to `#[gpu_tuned(…)]`, or to `[goal]` of gpu-tuned.toml",
            schedule.global_batch,
            C::BUILT.target
        )
    })
}

/// Tuned values that differ from the build's values: the user set them.
fn pins(tuned: &Pins, built: &Built) -> Pins {
    tuned.keep(|setting| tuned.get(setting) != Some(built.settings.get(setting)))
}

/// Gives the settings pinned for this start alone their own reason, in place of the config's.
fn name_the_source(plan: &mut Plan, set: &Pins) {
    for reason in plan.reasons.iter_mut().filter(|reason| set.has(reason.setting)) {
        *reason = Reason::pinned(reason.setting, "set for this start");
    }
}

/// Returns true if the user turned on a switch for mixed precision, without naming a precision.
fn is_switched_on<C: Tuned>(goal: &Goal, set: &Pins) -> bool {
    let is_mixed = goal.pins.precision.is_some_and(Precision::is_mixed);
    C::HAS_AMP_SWITCH && is_mixed && set.precision.is_none()
}

fn selection<C: Tuned>(
    config: &C,
    context: DecisionContext<'_>,
    gpu: Option<UsableGpu>,
    fallbacks: Vec<Fallback>,
    plan: &Plan,
) -> Selection {
    let common = context.ranks.and_then(|ranks| ranks.common.as_ref());
    Selection {
        weakest: common.map(|common| common.weakest.clone()).unwrap_or_default(),
        passed_over: Vec::new(),
        gpu,
        built_for: C::BUILT.target.to_owned(),
        fallbacks,
        resumed: context.saved.map(|saved| Resumed::new(saved, plan)),
        changes: changes(config, context.set, &C::BUILT, plan),
    }
}

/// Differences from the constants of the build, in the precision and in settings with a config field.
fn changes<C: Tuned>(config: &C, set: &Pins, built: &Built, plan: &Plan) -> Vec<Change> {
    let tuned = config.tuned();
    let by_user = set.or(&pins(&tuned, built));
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
mod tests;
