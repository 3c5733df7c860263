//! From a config and a machine to a selection and a plan. Opens nothing.

use std::fmt;

use gpu_tuned_core::device::{DeviceFacts, GpuReading};
use gpu_tuned_core::matching::{Match, identify};
use gpu_tuned_core::plan::{Plan, PlanError};
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_core::resolved::{Resolved, ResolvedError, Selected};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Goal, Pins, Setting};
use serde::Serialize;

use crate::detect::Machine;
use crate::planning::Planning;
use crate::selection::{Change, Fallback, Recognised, Selection};
use crate::tuned::{Built, Tuned};

/// What is decided before a device is opened.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Decision {
    /// Which device is taken, and how it differs from the one that the build was for.
    pub selection: Selection,
    /// The settings with their reasons, and the memory they take.
    pub plan: Plan,
    /// What a training step costs.
    pub workload: Workload,
}

/// The selection, then the plan.
impl fmt::Display for Decision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n{}", self.selection, self.plan)
    }
}

/// Decides for the wanted device of the machine; without a usable GPU for the CPU.
pub(crate) fn decide<C: Tuned>(config: &C, machine: &Machine, wanted: Wanted) -> Result<Decision, DecideError> {
    let resolved = C::BUILT.table.map(Resolved::from_toml).transpose()?;
    let spec = config.workload();
    if let Some((_, message)) = spec.mistakes().into_iter().next() {
        return Err(DecideError::Dimensions(message));
    }
    let workload = spec.workload();
    let goal = goal::<C>(config);
    let none = ProfileTable::default();
    let profiles = resolved.as_ref().map_or(&none, |resolved| &resolved.profile);
    let gpu = match &wanted {
        Wanted::Best => match machine.gpus.as_slice() {
            [only] => Some(only),
            several => several.iter().find(|gpu| is_target(gpu, &C::BUILT, profiles)).or(several.first()),
        },
        Wanted::Gpu(index) => machine.gpus.get(*index),
        Wanted::Cpu { .. } => None,
    };
    let found = gpu.map(|gpu| identify(gpu, profiles));
    let facts = match (gpu, &found) {
        (Some(gpu), Some(found)) => DeviceFacts::of_gpu(gpu, found.profile(), Some(machine.host.cores)),
        _ => None,
    };
    let mut fallbacks = Vec::new();
    if facts.is_none() {
        fallbacks.push(Fallback::NoGpu { because: why_no_gpu(gpu, wanted, machine) });
    }
    // A GPU whose memory nobody knows cannot be planned for.
    let gpu = gpu.filter(|_| facts.is_some());
    let host = machine.host;
    let facts = facts.unwrap_or_else(|| DeviceFacts::cpu(host.memory_total, host.memory_available, host.cores));
    let built_for_it = is_built_for(&C::BUILT, resolved.as_ref(), gpu, found.as_ref());
    let planning = Planning { built: &C::BUILT, resolved: resolved.as_ref(), facts: &facts, workload: &workload };
    let plan = planning.run(goal, built_for_it, &mut fallbacks)?;
    let device = match (gpu, &found) {
        (Some(_), Some(found)) => Recognised::from(found),
        _ => Recognised::Cpu,
    };
    let changes = changes(config, &C::BUILT, &plan);
    let selection = Selection { built_for: C::BUILT.target.to_owned(), device, gpu: gpu.cloned(), fallbacks, changes };
    Ok(Decision { selection, plan, workload })
}

/// The device that a decision is for.
pub(crate) enum Wanted {
    /// The first GPU of the kind that the build is for, else the first.
    Best,
    /// A GPU by its position in [`Machine::gpus`].
    Gpu(usize),
    /// The CPU, and why.
    Cpu {
        /// One sentence each.
        because: Vec<String>,
    },
}

/// Why there is no decision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DecideError {
    #[error(transparent)]
    Table(#[from] ResolvedError),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("{0}")]
    Dimensions(String),
}

fn why_no_gpu(gpu: Option<&GpuReading>, wanted: Wanted, machine: &Machine) -> Vec<String> {
    match (gpu, wanted) {
        (Some(gpu), _) => vec![format!("the driver does not say how much memory GPU {} has", gpu.index)],
        (None, Wanted::Cpu { because }) => because,
        (None, _) => machine.trouble.clone(),
    }
}

/// The build's goal, with what the user set in the config fixed.
fn goal<C: Tuned>(config: &C) -> Goal {
    let mut goal = C::goal();
    goal.pins = pins(&config.tuned(), &C::BUILT);
    // Without a global batch of the user's, that of the build keeps the run the same everywhere; unless the user has
    // set the micro-batch, which then is the batch.
    let own_batch = goal.pins.batch_size.is_some() || goal.pins.gradient_accumulation.is_some();
    if goal.global_batch.is_none() && !own_batch {
        goal.global_batch = Some(C::BUILT.global_batch);
    }
    goal
}

/// The tuned values that are not those of the build: the user's.
fn pins(tuned: &Pins, built: &Built) -> Pins {
    macro_rules! differing {
        ($($field:ident),*) => {{
            let mut pins = Pins::default();
            $( pins.$field = tuned.$field.filter(|value| *value != built.settings.$field); )*
            pins
        }};
    }
    differing!(
        batch_size,
        gradient_accumulation,
        precision,
        allow_tf32,
        gradient_checkpointing,
        prefetch_depth,
        num_workers,
        eval_batch_size
    )
}

/// Whether this is just the GPU that one target names.
fn is_target(gpu: &GpuReading, built: &Built, profiles: &ProfileTable) -> bool {
    let [target] = built.targets else { return false };
    matches!(identify(gpu, profiles), Match::Exact { profile } if profile.id.as_str() == *target)
}

/// Whether the constants of the build are meant for this very GPU; `None` when the build left that to the runtime.
fn is_built_for(
    built: &Built,
    resolved: Option<&Resolved>,
    gpu: Option<&GpuReading>,
    found: Option<&Match>,
) -> Option<bool> {
    if let Some(Selected::Native(there)) = resolved.map(|resolved| &resolved.selected) {
        let same = |gpu: &GpuReading| gpu.name == there.name && gpu.memory_total == there.memory_total;
        return Some(gpu.is_some_and(same));
    }
    let [target] = built.targets else { return None };
    Some(matches!(found, Some(Match::Exact { profile }) if profile.id.as_str() == *target))
}

/// What differs from the constants of the build, among the settings that the config has a field for.
fn changes<C: Tuned>(config: &C, built: &Built, plan: &Plan) -> Vec<Change> {
    let tuned = config.tuned();
    let by_user = pins(&tuned, built);
    let differs = |setting: &Setting| setting.of(&built.settings) != setting.of(&plan.settings);
    let change = |setting: Setting| Change {
        setting,
        built: setting.of(&built.settings),
        used: setting.of(&plan.settings),
        by_user: by_user.has(setting),
    };
    Setting::ALL.into_iter().filter(|setting| tuned.has(*setting)).filter(differs).map(change).collect()
}
