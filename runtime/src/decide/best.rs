//! The decision for one GPU: the first on which the plan fits.

use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::plan::PlanError;
use gpu_tuned_project::resolved::Resolved;

use super::{DecideError, Decision, DecisionContext, DeviceRequest, built_for, decide_on};
use crate::selection::Fallback;
use crate::tuned::Tuned;

/// Decides for the first GPU on which the plan fits, else for the CPU if no GPU is usable.
pub(super) fn decide_best<C: Tuned>(config: &C, context: DecisionContext<'_>) -> Result<Decision, DecideError> {
    let machine = context.machine;
    // One GPU is in order without the table.
    let table = C::BUILT.table.filter(|_| machine.gpus.len() > 1);
    let resolved = table.map(Resolved::from_toml).transpose()?;
    let is_target = |gpu: &GpuReading| built_for::is_target(gpu, &C::BUILT, resolved.as_ref());
    let mut refused: Option<(usize, DecideError)> = None;
    let mut failed: Vec<(usize, String)> = Vec::new();
    for position in machine.preference(is_target) {
        let wanted = DeviceRequest::These(vec![position]);
        match decide_on(config, DecisionContext { wanted: &wanted, ..context }) {
            Ok(mut decision) if !decision.selection.gpus.is_empty() => {
                decision.selection.passed_over = machine.passed_over(position, is_target, &failed);
                return Ok(decision);
            }
            Ok(on_cpu) => failed.push((position, reasons(on_cpu))),
            Err(error @ DecideError::Plan(PlanError::DoesNotFit(_))) => {
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

/// Reasons why a decision is for the CPU.
fn reasons(decision: Decision) -> String {
    let because = decision.selection.fallbacks.into_iter().filter_map(|fallback| match fallback {
        Fallback::NoGpu { because } => Some(because.join("; ")),
        _ => None,
    });
    because.collect::<Vec<_>>().join("; ")
}
