#[cfg(feature = "native")]
pub(crate) use driver::select;

/// Without the feature `native`, no driver is read.
#[cfg(not(feature = "native"))]
pub(crate) fn select<W: std::io::Write>(
    _: &impl crate::Environment,
    _: &[gpu_tuned_core::profile::Profile],
    _: &mut crate::directives::Directives<W>,
) -> Result<crate::Selected, crate::BuildError> {
    Err(crate::BuildError::NativeMissing)
}

#[cfg(feature = "native")]
mod driver {
    use std::io::Write;
    use std::path::Path;

    use gpu_tuned_core::device::{DeviceFacts, GpuReading};
    use gpu_tuned_core::matching::identify;
    use gpu_tuned_core::profile::{Profile, ProfileTable};
    use gpu_tuned_nvml::{CudaEnvironment, LIBRARY_VARIABLE};
    use gpu_tuned_project::resolved::Selected;

    use crate::directives::Directives;
    use crate::environment::setting;
    use crate::{BuildError, Environment};

    /// Returns the GPU in the build machine, or `generic` with a warning. `own` are the package's profiles.
    pub(crate) fn select<W: Write>(
        environment: &impl Environment,
        own: &[Profile],
        directives: &mut Directives<W>,
    ) -> Result<Selected, BuildError> {
        let library = setting(environment, LIBRARY_VARIABLE, directives)?;
        let own: ProfileTable = own.iter().cloned().collect();
        let (gpu, warnings) = match gpu_tuned_nvml::read(library.as_deref().map(Path::new)) {
            Ok(reading) => {
                let cuda = cuda_environment(environment, directives)?;
                let mut visible = cuda.select(&reading);
                let limits = cuda.limit(&mut visible.gpus);
                let warnings = visible.missing.into_iter().chain(visible.notes).chain(limits);
                choose(visible.gpus, &own, warnings.collect())
            }
            Err(error) => (None, vec![error.to_string()]),
        };
        for warning in &warnings {
            directives.warning(&format!("native: {warning}"))?;
        }
        let Some(gpu) = gpu else {
            directives.warning("native: found no usable GPU; the constants are those of the `generic` profile")?;
            return Ok(Selected::Generic);
        };
        Ok(Selected::Native(Box::new(lasting(gpu))))
    }

    /// Reads the variables that select, order and limit GPUs. Cargo runs the script again when one changes.
    fn cuda_environment<W: Write>(
        environment: &impl Environment,
        directives: &mut Directives<W>,
    ) -> Result<CudaEnvironment, BuildError> {
        let mut cuda = CudaEnvironment::default();
        for (name, value) in [
            (CudaEnvironment::VISIBLE_DEVICES, &mut cuda.visible_devices),
            (CudaEnvironment::DEVICE_ORDER, &mut cuda.device_order),
            (CudaEnvironment::MPS_MEMORY_LIMIT, &mut cuda.mps_memory_limit),
            (CudaEnvironment::MPS_THREAD_PERCENTAGE, &mut cuda.mps_thread_percentage),
        ] {
            directives.rerun_if_env_changed(name)?;
            // An empty list hides every GPU.
            *value = environment.variable(name).map(|value| value.to_string_lossy().into_owned());
        }
        Ok(cuda)
    }

    /// Returns one GPU: the first, or of different models the one with the least memory.
    fn choose(
        gpus: Vec<GpuReading>,
        own: &ProfileTable,
        mut warnings: Vec<String>,
    ) -> (Option<GpuReading>, Vec<String>) {
        let mut usable = Vec::new();
        for (number, gpu) in gpus.into_iter().enumerate() {
            match DeviceFacts::from_reading(&gpu, identify(&gpu, own).profile(), None) {
                None => warnings.push(gpu.explain_missing_memory(number)),
                Some(DeviceFacts { name, refusal: Some(reason), .. }) => warnings.push(format!("{name}: {reason}")),
                Some(_) => usable.push(gpu),
            }
        }
        let gpus = usable;
        let model = |gpu: &GpuReading| (gpu.name.clone(), gpu.memory_total);
        let differ = gpus.windows(2).any(|pair| model(&pair[0]) != model(&pair[1]));
        let names: Vec<String> = gpus.iter().map(name).collect();
        // A GPU that reports no memory has that of its profile, and is the last choice.
        let least = gpus.into_iter().min_by_key(|gpu| (gpu.memory_total.is_none(), gpu.memory_total));
        if let Some(least) = least.as_ref().filter(|_| differ) {
            warnings.push(format!(
                "this machine has different GPUs ({}); the constants are for the one with the least memory, {}",
                names.join(", "),
                name(least)
            ));
        }
        (least, warnings)
    }

    fn name(gpu: &GpuReading) -> String {
        gpu.name.clone().unwrap_or_else(|| format!("GPU {}", gpu.index))
    }

    /// Removes values of the moment and of the single board, so that a build on the same machine gives the same table.
    fn lasting(mut gpu: GpuReading) -> GpuReading {
        gpu.uuid = None;
        gpu.gpu_uuid = None;
        gpu.pci_address = None;
        gpu.memory_free = None;
        gpu.other_processes = None;
        gpu
    }
}
