//! From a resolved table to the constants of a build.

use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{Misfit, Plan, PlanError, fits, plan};
use gpu_tuned_core::profile::Profile;
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal};
use thiserror::Error;

use crate::resolved::{NoProfile, Resolved, Selected};

/// The constants of a build.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compiled {
    /// The build's target: `rtx4090`, `h200 + rtx4090`, `generic`, `native (NVIDIA H200)`.
    pub target: String,
    /// The plan whose settings become constants.
    pub plan: Plan,
    /// Memory of the device that stands in for the generic profile, where no GPU is named and the profile's is too little.
    pub stand_in: Option<Bytes>,
    /// Selected targets that the plan does not fit; the plan is for the others.
    pub misfits: Vec<Misfit>,
}

/// Error of compiling the constants of a build.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum CompileError {
    /// No device can meet the goal.
    #[error(transparent)]
    Plan(PlanError),
    /// No selected target has a plan.
    #[error("{}", reasons.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    NothingFits {
        /// The reason of each selected target: the workload does not fit it, or Burn cannot train on it.
        reasons: Vec<PlanError>,
    },
    /// A selected profile is not in the table.
    #[error(transparent)]
    NoProfile(#[from] NoProfile),
}

/// Plans for the targets that the build selects: one profile, several profiles, the GPU in the build machine, or the
/// conservative profile. Of several targets, those that the workload does not fit, or Burn cannot train on, are left out.
///
/// Where no GPU is named, the constants are placeholders: a start plans for the device that it finds. So the conservative
/// profile gets the least of 16, 32, … 512 GiB that the workload fits, and units for the goal's precision. No GPU with a
/// profile has more.
///
/// # Errors
///
/// When the workload fits no selected target, or no device can meet the goal.
pub fn compile(resolved: &Resolved, workload: &Workload, goal: &Goal) -> Result<Compiled, CompileError> {
    let mut fitting = Vec::new();
    let mut refused = Vec::new();
    let (devices, stand_in) = match resolved.for_any_gpu() {
        Some(generic) => stand_in(generic, workload, goal),
        None => (resolved.devices()?, None),
    };
    for facts in devices {
        match plan(&facts, workload, goal) {
            Ok(plan) => fitting.push((facts, plan)),
            Err(error @ (PlanError::DoesNotFit(_) | PlanError::GpuUnsupported { .. })) => refused.push(error),
            Err(other) => return Err(CompileError::Plan(other)),
        }
    }
    let for_all = if fitting.len() > 1 {
        let devices: Vec<_> = fitting.into_iter().map(|(facts, _)| facts).collect();
        plan_for_most(&devices, workload, goal)
    } else {
        fitting.pop().map(|(_, plan)| (plan, Vec::new()))
    };
    let Some((plan, left_out)) = for_all else { return Err(CompileError::NothingFits { reasons: refused }) };
    let misfit = |error| if let PlanError::DoesNotFit(misfit) = error { Some(*misfit) } else { None };
    let misfits = refused.into_iter().filter_map(misfit).chain(left_out).collect();
    let target = match &resolved.selected {
        Selected::Native(_) => format!("native ({})", plan.device),
        Selected::Generic | Selected::Targets(_) => plan.device.clone(),
    };
    Ok(Compiled { target, plan, stand_in, misfits })
}

/// The most memory of a device that stands in for the generic profile.
const LARGEST_STAND_IN: Bytes = Bytes::from_mib(512 * 1024);

/// Returns the generic device with units for the goal's precision, and with its memory doubled until the workload fits; also
/// that memory, if it is not the profile's.
fn stand_in(generic: &Profile, workload: &Workload, goal: &Goal) -> (Vec<DeviceFacts>, Option<Bytes>) {
    let mut profile = generic.clone();
    loop {
        let mut facts = DeviceFacts::nominal(&profile);
        if goal.precisions(&facts).iter().any(|precision| !facts.has_units_for(*precision)) {
            (facts.has_f16, facts.has_bf16) = (true, true);
        }
        let memory = Bytes::from_mib(profile.memory.nominal_mib);
        let is_doubled = profile.memory.nominal_mib != generic.memory.nominal_mib;
        if matches!(plan(&facts, workload, goal), Err(PlanError::DoesNotFit(_))) {
            if memory < LARGEST_STAND_IN {
                profile.memory.nominal_mib *= 2;
                profile.memory.cuda_total_mib.iter_mut().for_each(|mib| *mib *= 2);
                continue;
            }
            facts.name = format!("a GPU with {memory}");
        }
        return (vec![facts], is_doubled.then_some(memory));
    }
}

/// Returns one plan for as many of the devices as possible, and the misfits of the others. The workload has to fit each
/// device alone. Where no plan fits all, the device with the least memory is left out, then the next. `None` without
/// devices.
fn plan_for_most(devices: &[DeviceFacts], workload: &Workload, goal: &Goal) -> Option<(Plan, Vec<Misfit>)> {
    let mut by_memory: Vec<&DeviceFacts> = devices.iter().collect();
    by_memory.sort_by_key(|facts| facts.memory_available);
    let mut planned = (0..by_memory.len()).find_map(|least| plan_for_all(&by_memory[least..], workload, goal))?;
    let fixed = fixed(goal, &planned);
    let (meant, others): (Vec<_>, Vec<_>) = devices.iter().partition(|facts| fits(facts, workload, &fixed));
    planned.device = DeviceFacts::common(meant)?.name;
    // A GPU without the planned precision is described in its own.
    let mut free = fixed.clone();
    free.pins.precision = goal.pins.precision;
    let misfit = |facts| {
        [&fixed, &free].into_iter().find_map(|goal| match plan(facts, workload, goal) {
            Err(PlanError::DoesNotFit(misfit)) => Some(*misfit),
            _ => None,
        })
    };
    Some((planned, others.into_iter().filter_map(misfit).collect()))
}

/// Returns a plan that fits each device. First plans for the minimum of every figure. That minimum is often too strict,
/// because GPUs with more memory also reserve more; then plans for the memory of one device after another.
fn plan_for_all(devices: &[&DeviceFacts], workload: &Workload, goal: &Goal) -> Option<Plan> {
    let meet = DeviceFacts::common(devices.iter().copied())?;
    let memory_of = |facts: &&DeviceFacts| DeviceFacts {
        profile: facts.profile.clone(),
        memory_kind: facts.memory_kind,
        memory_available: facts.memory_available,
        memory_provenance: facts.memory_provenance,
        context: facts.context,
        sm_count: facts.sm_count,
        ..meet.clone()
    };
    core::iter::once(meet.clone()).chain(devices.iter().map(memory_of)).find_map(|facts| {
        let plan = plan(&facts, workload, goal).ok()?;
        let fixed = fixed(goal, &plan);
        devices.iter().all(|facts| fits(facts, workload, &fixed)).then_some(plan)
    })
}

/// Pins the micro-batch, the precision and the checkpointing of a plan.
fn fixed(goal: &Goal, plan: &Plan) -> Goal {
    let mut fixed = goal.clone();
    fixed.pins.precision = Some(plan.settings.precision);
    fixed.pins.batch_size = Some(plan.settings.batch_size);
    fixed.pins.gradient_checkpointing = Some(plan.settings.gradient_checkpointing);
    fixed
}

#[cfg(test)]
mod tests {
    use super::{LARGEST_STAND_IN, compile, fits};
    use crate::config::ConfigFile;
    use crate::resolved::{Resolved, Selected};
    use gpu_tuned_core::device::{DeviceFacts, GpuReading};
    use gpu_tuned_core::profile::ProfileTable;
    use gpu_tuned_core::workload::Transformer;
    use gpu_tuned_core::{Bytes, Goal, Precision};

    fn naming_no_gpu() -> Resolved {
        Resolved::new(Selected::Generic, Vec::new(), &ConfigFile::default(), ProfileTable::builtin())
    }

    /// GPT-2 medium with a shorter context.
    fn large() -> Transformer {
        Transformer { dropout: false, ..Transformer::new(24, 1024, 50_257, 256) }
    }

    #[test]
    fn a_build_that_names_no_gpu_is_for_the_least_memory_that_fits() {
        let goal = Goal { global_batch: Some(512), precision: Some(Precision::F32.into()), ..Goal::default() };
        let generic = ProfileTable::builtin_profile("generic").expect("it is shipped");
        for (layers, width, times) in [(6, 512, 1), (24, 1024, 2), (48, 1600, 8)] {
            let workload = Transformer { layers, d_model: width, ..large() }.workload();
            let compiled = compile(&naming_no_gpu(), &workload, &goal).expect("it fits");
            assert_eq!((compiled.target.as_str(), compiled.plan.device.as_str()), ("generic", "generic"));
            assert_eq!(compiled.stand_in, (times > 1).then_some(Bytes::from_mib(8192 * times)), "{width}");
            // Weights, gradients and the two states of AdamW, each in fp32.
            assert!(compiled.plan.memory.total().0 > workload.parameters.trained() * 16, "{width}");
            let mut half = DeviceFacts::nominal(&generic);
            half.memory_total = Bytes(half.memory_total.0 * times / 2);
            half.memory_available = half.memory_total;
            assert!(times == 1 || !fits(&half, &workload, &goal), "{width}");
            let named = compile(&Resolved::from_builtin("generic").expect("it is shipped"), &workload, &goal);
            assert_eq!(named.is_ok(), times == 1, "{width}");
        }
    }

    #[test]
    fn a_build_that_names_no_gpu_has_the_precision_that_is_asked_for() {
        for precision in Precision::ALL {
            let goal = Goal { precision: Some(precision.into()), ..Goal::default() };
            let compiled = compile(&naming_no_gpu(), &large().workload(), &goal).expect("it fits");
            assert_eq!(compiled.plan.settings.precision, precision);
        }
    }

    #[test]
    fn what_no_gpu_holds_is_refused_where_none_is_named() {
        let largest = ProfileTable::builtin().iter().map(|profile| profile.memory.nominal_mib).max();
        assert!(largest.is_some_and(|mib| Bytes::from_mib(mib) < LARGEST_STAND_IN));
        let workload = Transformer::new(80, 8192, 32_000, 4096).workload();
        let error = compile(&naming_no_gpu(), &workload, &Goal::default()).expect_err("70 billion parameters in fp32");
        assert!(error.to_string().starts_with("does not fit a GPU with 512.0 GiB at batch size 1:"), "{error}");
    }

    #[test]
    fn native_subtracts_the_drivers_reserve_and_ignores_free_memory() {
        let reading = |memory_free| {
            let mut reading = GpuReading::default();
            reading.name = Some("NVIDIA GeForce RTX 4090".to_owned());
            reading.memory_total = Some(Bytes::from_mib(24_564));
            reading.memory_reserved = Some(Bytes::from_mib(473));
            reading.memory_free = memory_free;
            reading
        };
        let workload = Transformer::new(6, 512, 8192, 256).workload();
        for free in [None, Some(Bytes::from_mib(10_000))] {
            let mut resolved = Resolved::from_builtin("generic").expect("it is shipped");
            resolved.selected = Selected::Native(Box::new(reading(free)));
            let compiled = compile(&resolved, &workload, &Goal::default()).expect("it fits");
            assert_eq!(compiled.target, "native (NVIDIA GeForce RTX 4090)");
            assert_eq!(compiled.plan.memory.available, Bytes::from_mib(24_091), "{free:?}");
        }
    }
}
