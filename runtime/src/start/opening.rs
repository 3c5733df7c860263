//! Opening the decided device.

#[cfg(feature = "burn")]
use gpu_tuned_core::plan::Plan;
#[cfg(feature = "warm")]
use gpu_tuned_nvml::UsableGpu;
use gpu_tuned_nvml::{Machine, UnusableGpu};
#[cfg(feature = "cuda")]
use gpu_tuned_observe::log::warn_user;
#[cfg(feature = "burn")]
use gpu_tuned_observe::progress::Progress;

use super::{Options, Request, StartError, Unusable};
use crate::decide::{Decision, DeviceRequest};
use crate::session::Opened;
use crate::tuned::Tuned;

impl Options {
    /// Opens the decided device and selects its kernels. Decides again without a GPU that does not open, and without a library
    /// that cannot be used.
    pub(super) fn open<C: Tuned>(&self, request: &Request, config: &C) -> Result<(Decision, Opened), StartError> {
        let mut broken = Vec::new();
        #[cfg_attr(not(feature = "burn"), expect(unused_mut, reason = "nothing is selected without Burn"))]
        let mut no_library: Option<String> = None;
        loop {
            let unusable = Unusable { broken: &broken, no_library: no_library.as_deref() };
            let decide = |allow_tf32| self.decide_without(unusable, request, config, allow_tf32);
            match self.open_decided(decide(None)?, &|allow_tf32| decide(Some(allow_tf32)))? {
                Ok(decided_and_opened) => {
                    #[cfg(feature = "burn")]
                    if no_library.is_none() {
                        no_library = request.select_kernels(&decided_and_opened.0, &decided_and_opened.1)?;
                        if no_library.is_some() {
                            continue;
                        }
                    }
                    #[cfg(feature = "distributed")]
                    request.check_ranks(&decided_and_opened)?;
                    return Ok(decided_and_opened);
                }
                // The other ranks count on it.
                #[cfg(feature = "distributed")]
                Err(fault) if request.connection.is_some() => return Err(request.device_error(fault).into()),
                // There is one GPU less at every turn, and none in the end.
                Err(fault) => broken.push(fault),
            }
        }
    }

    /// `again` decides once more, with TF32 allowed or not.
    #[cfg(feature = "burn")]
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "TF32 is that of CUDA"))]
    fn open_decided(
        &self,
        decision: Decision,
        again: &dyn Fn(bool) -> Result<Decision, StartError>,
    ) -> Result<Result<(Decision, Opened), UnusableGpu>, StartError> {
        use gpu_tuned_train::device::{Place, open};

        let Some(gpu) = decision.selection.gpu.clone() else {
            let opened = open_cpu(&decision.plan, float(&decision))?;
            return Ok(Ok((decision, opened)));
        };
        let _progress = Progress::begin("opening the kernel cache and the GPU");
        // Before the GPU is touched: CubeCL is configured once in a process.
        let alone = self.seen().gpus.len() == 1;
        #[cfg(all(feature = "warm", not(feature = "cuda")))]
        let warm = self.warm(decision.selection.gpu.as_ref(), false);
        #[cfg(feature = "cuda")]
        let start = super::full_f32::Start { warm: &|gpu, full_f32| self.warm(gpu, full_f32), again, alone };
        #[cfg(feature = "cuda")]
        let (decision, warm) = match super::full_f32::settle(decision, &start)? {
            Ok(settled) => settled,
            Err(broken) => return Ok(Err(broken)),
        };
        #[cfg(feature = "cuda")]
        {
            self.refuse_fallbacks(&decision)?;
            let cores = decision.inputs.facts.host_cores.unwrap_or(self.seen().host.cores);
            too_few(cores).as_deref().into_iter().for_each(warn_user);
        }
        Ok(match open(&Place::of(&gpu.reading, alone), float(&decision)) {
            Ok(gpu) => {
                let opened = Opened {
                    device: gpu.device.clone(),
                    gpu: Some(gpu),
                    #[cfg(feature = "warm")]
                    warm,
                };
                Ok((decision, opened))
            }
            Err(error) => Err(UnusableGpu { position: gpu.position, because: error.to_string() }),
        })
    }

    /// Switches the caches of kernels and tuning on for the GPU.
    #[cfg(feature = "warm")]
    fn warm(&self, gpu: Option<&UsableGpu>, full_f32: bool) -> gpu_tuned_measure::warm::WarmStart {
        use gpu_tuned_measure::warm::{Fingerprint, WarmStart, begin};

        let positions: Vec<_> = gpu.iter().map(|gpu| gpu.position).collect();
        let driver = self.seen().driver_version.as_deref();
        let fingerprint = Fingerprint::new(gpu.iter().map(|gpu| &gpu.reading), driver);
        fingerprint
            .map_or_else(WarmStart::without_gpu, |fingerprint| begin(&fingerprint.full_f32(full_f32), &positions))
    }

    #[cfg(not(feature = "burn"))]
    #[expect(clippy::unused_self, clippy::unnecessary_wraps, reason = "the signature is that of the version with Burn")]
    fn open_decided(
        &self,
        decision: Decision,
        _again: &dyn Fn(bool) -> Result<Decision, StartError>,
    ) -> Result<Result<(Decision, Opened), UnusableGpu>, StartError> {
        Ok(Ok((decision, Opened {})))
    }
}

/// The CPU, for programs whose Burn has no CUDA.
pub(super) fn without_cuda(machine: &Machine) -> Option<DeviceRequest> {
    if cfg!(any(not(feature = "burn"), feature = "cuda")) {
        return None;
    }
    let missing = "this program is built without feature `cuda`".to_owned();
    // Errors of the driver count only if there is a GPU.
    let lost = machine.missing.first().filter(|_| !machine.gpus.is_empty()).cloned();
    Some(DeviceRequest::Cpu { because: core::iter::once(missing).chain(lost).collect() })
}

#[cfg(feature = "burn")]
fn open_cpu(plan: &Plan, float: Option<burn::tensor::FloatDType>) -> Result<Opened, StartError> {
    use gpu_tuned_train::device::{cpu, default_float, limit_cpu_threads};

    plan.cpu_threads.into_iter().for_each(limit_cpu_threads);
    let device = cpu();
    if let Some(float) = float {
        default_float(&device, float)?;
    }
    Ok(Opened {
        device,
        gpu: None,
        #[cfg(feature = "warm")]
        warm: gpu_tuned_measure::warm::WarmStart::without_gpu(),
    })
}

/// The default float type that the planned precision needs; `None` for Burn's own, f32.
#[cfg(feature = "burn")]
fn float(decision: &Decision) -> Option<burn::tensor::FloatDType> {
    // A measurement may request another number format than the plan's, and a process has one.
    let precision = gpu_tuned_measure::measure::requested_precision().unwrap_or(decision.plan.settings.precision);
    match gpu_tuned_train::mixed::Half::of(precision) {
        Some(half) => Some(half.float()),
        None => (precision == gpu_tuned_core::Precision::Bf16Params).then_some(burn::tensor::FloatDType::BF16),
    }
}

/// Threads of a process that are busy in a step: the program's, the one that fuses operations, and the one that launches
/// kernels. Each spins while it waits for another.
#[cfg(any(test, feature = "cuda"))]
const THREADS: u64 = 3;

/// The warning for a process with fewer cores than busy threads.
#[cfg(any(test, feature = "cuda"))]
fn too_few(cores: u64) -> Option<String> {
    (cores < THREADS).then(|| {
        let cores = if cores == 1 { "1 CPU core is".to_owned() } else { format!("{cores} CPU cores are") };
        format!(
            "{cores} too few for a GPU: threads of Burn wait by spinning, and steps may take several times as long. Give \
             each process at least {THREADS} cores (affinity, CPU quota, SLURM_CPUS_PER_TASK)"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::too_few;

    #[test]
    fn three_cores_are_enough() {
        assert_eq!((too_few(3), too_few(24)), (None, None));
        let warning = too_few(2).expect("two are too few");
        assert!(warning.starts_with("2 CPU cores are too few for a GPU: "), "{warning}");
        assert!(warning.contains("at least 3 cores"), "{warning}");
        assert!(too_few(1).expect("one is too few").starts_with("1 CPU core is too few for a GPU: "));
    }
}
