//! The decision for one GPU: the first on which the plan fits.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_project::resolved::Resolved;

use super::{DecideError, Decision, DecisionContext, DeviceRequest, built_for, decide_on, devices};
use crate::tuned::Tuned;

/// Decides for the first usable GPU on which the plan fits in its precision, else for the CPU if no GPU is usable.
pub(super) fn decide_best<C: Tuned>(config: &C, context: DecisionContext<'_>) -> Result<Decision, DecideError> {
    let machine = context.machine;
    let resolved = C::BUILT.table.map(Resolved::from_toml).transpose()?;
    let none = ProfileTable::default();
    let profiles = resolved.as_ref().map_or(&none, |resolved| &resolved.profile);
    let is_target = |gpu: &GpuReading| built_for::is_target(gpu, &C::BUILT, resolved.as_ref());
    let mut refused: Option<(usize, DecideError)> = None;
    let mut failed: Vec<(usize, String)> = Vec::new();
    for position in machine.preference(is_target) {
        let wanted = DeviceRequest::These(vec![position]);
        let on_this = DecisionContext { wanted: &wanted, ..context };
        // The plan of an unusable GPU would be the CPU's, with errors of its own.
        if let Some(because) = devices::unusable(position, on_this, profiles) {
            failed.push((position, because));
            continue;
        }
        match decide_on(config, on_this) {
            Ok(mut decision) => {
                decision.selection.passed_over = machine.passed_over(position, is_target, &failed);
                return Ok(decision);
            }
            Err(error @ DecideError::Plan(PlanError::DoesNotFit(_))) => {
                refused.get_or_insert((position, error));
            }
            Err(error) if error.is_of_precision() => {
                failed.push((position, error.to_string()));
                refused.get_or_insert((position, error));
            }
            // A GPU after the first one cannot mend what is wrong with the request.
            Err(error) => return Err(refused.map_or(error, |(_, first)| first)),
        }
    }
    if let Some((position, error)) = refused {
        return Err(with_remedy(error, config, context, position));
    }
    if failed.is_empty() {
        return decide_on(config, context);
    }
    let because = failed.into_iter().map(|(_, because)| because).collect();
    decide_on(config, DecisionContext { wanted: &DeviceRequest::Cpu { because }, ..context })
}

/// Names the GPU of this machine that would do, in the error of a plan that does not fit GPU `refused`.
pub(super) fn with_remedy<C: Tuned>(
    mut error: DecideError,
    config: &C,
    context: DecisionContext<'_>,
    refused: usize,
) -> DecideError {
    let DecideError::Plan(PlanError::DoesNotFit(misfit)) = &mut error else { return error };
    let all = &context.machine.gpus;
    let is_broken = |gpu: &GpuReading| context.broken.iter().any(|broken| all.get(broken.position) == Some(gpu));
    let fits = |gpu: &GpuReading| {
        if is_broken(gpu) {
            return false;
        }
        let mut machine = context.machine.clone();
        machine.gpus = vec![gpu.clone()];
        let wanted = DeviceRequest::These(vec![0]);
        let alone = DecisionContext { machine: &machine, wanted: &wanted, broken: &[], ..context };
        decide_on(config, alone).is_ok_and(|decision| !decision.selection.gpus.is_empty())
    };
    if let Some(remedy) = context.machine.remedy(refused, fits) {
        misfit.remedy = remedy;
    }
    error
}
