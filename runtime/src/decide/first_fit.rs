//! Decision for one GPU: the first on which the plan fits.

use gpu_tuned_core::PrecisionPolicy;
use gpu_tuned_core::device::GpuReading;
use gpu_tuned_core::plan::PlanError;
use gpu_tuned_core::profile::ProfileTable;
use gpu_tuned_observe::Host;
use gpu_tuned_project::resolved::Resolved;

use super::{DecideError, Decision, DecisionContext, DeviceRequest, built_for, decide_on, devices};
use crate::detect::{Machine, UnusableGpu};
use crate::selection::{FirstFit, Fit};
use crate::tuned::Tuned;

/// Decides for the first usable GPU on which the plan fits in its precision, else for the CPU if no GPU is usable.
pub(super) fn decide_for_first_fit<C: Tuned>(
    config: &C,
    context: DecisionContext<'_>,
) -> Result<Decision, DecideError> {
    let machine = context.machine;
    let resolved = C::BUILT.table.map(Resolved::embedded).transpose()?;
    let none = ProfileTable::default();
    let profiles = resolved.map_or(&none, |resolved| &resolved.profile);
    let is_target = |gpu: &GpuReading| built_for::is_target(gpu, &C::BUILT, resolved);
    // The plan of an unusable GPU would be the CPU's, with errors of its own.
    let (mut order, mut unusable): (_, Vec<UnusableGpu>) = (machine.preference(is_target), Vec::new());
    order.retain(|&position| {
        let refused = devices::usable_gpu(position, context, profiles).err();
        let is_usable = refused.is_none();
        unusable.extend(refused);
        is_usable
    });
    let mut refused: Option<(usize, DecideError)> = None;
    let mut invalid: Option<DecideError> = None;
    let fits = order.into_iter().map_while(|position| {
        let decided = decide_on(config, DecisionContext { wanted: &DeviceRequest::This(position), ..context });
        let error = match decided {
            Ok(decision) => return Some((position, decision.into_fit())),
            Err(error) => error,
        };
        let because = match &error {
            DecideError::Plan(PlanError::DoesNotFit(_)) => None,
            lacks_precision if lacks_precision.is_of_precision() => Some(error.to_string()),
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
                let device = self.inputs.facts.name.clone();
                let because = PlanError::PrecisionUnsupported { precision, device }.to_string();
                Fit::OtherPrecision { plan: self, because }
            }
            _ => Fit::Whole(self),
        }
    }
}

/// Names the remedy on this machine, where there is one, in the error of a plan that does not fit GPU `refused`, or the CPU
/// without one: another GPU, or the limit of this process. Such a remedy leaves the run as it is.
pub(super) fn with_remedy<C: Tuned>(
    mut error: DecideError,
    config: &C,
    context: DecisionContext<'_>,
    refused: Option<usize>,
) -> DecideError {
    let DecideError::Plan(PlanError::DoesNotFit(misfit)) = &mut error else { return error };
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
