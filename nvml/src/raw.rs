//! Calls that nvml-wrapper does not wrap.

use std::ffi::c_void;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use gpu_tuned_core::device::MigSlice;
use nvml_wrapper::enums::gpm::GpmMetricId;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};
use nvml_wrapper::gpm::gpm_metrics_get;
use nvml_wrapper::{Device, GpmSample, Nvml};

/// Total and free memory in bytes, from the call that every driver supports. The total includes memory reserved by
/// the driver.
pub(crate) fn memory_v1(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    // SAFETY: the handle is used while `device` borrows the library. `memory` is a plain C struct of integers, of the
    // type that the bindings declare for this call.
    unsafe {
        let mut memory = std::mem::zeroed();
        nvml_try(call(device.handle(), &raw mut memory))?;
        Ok((memory.total, memory.free))
    }
}

/// Numbers of the GPU instance of a MIG slice, and of the compute instance within it.
pub(crate) fn mig_slice(slice: &Device<'_>) -> Result<MigSlice, NvmlError> {
    let library = slice.nvml().lib();
    let gpu_instance = nvml_sym(library.nvmlDeviceGetGpuInstanceId.as_ref())?;
    let compute_instance = nvml_sym(library.nvmlDeviceGetComputeInstanceId.as_ref())?;
    let mut numbers = MigSlice { gpu_instance: 0, compute_instance: 0 };
    // SAFETY: the handle is used while `slice` borrows the library; the numbers are valid for the writes.
    unsafe {
        nvml_try(gpu_instance(slice.handle(), &raw mut numbers.gpu_instance))?;
        nvml_try(compute_instance(slice.handle(), &raw mut numbers.compute_instance))?;
    }
    Ok(numbers)
}

/// A sample of the GPU's performance counters (GPM), kept until the next sample.
#[derive(Debug)]
pub(crate) struct KeptSample {
    handle: *mut c_void,
    nvml: Arc<Nvml>,
}

// SAFETY: a sample is memory of the library that is bound to no thread; nvml-wrapper's own `GpmSample` is `Send`,
// too. Only the owner uses the sample, through `&self`; it is not shared.
unsafe impl Send for KeptSample {}

impl KeptSample {
    /// Samples the GPU `device`, opened by `nvml`, or the GPU instance of a MIG slice.
    pub(crate) fn take(nvml: &Arc<Nvml>, device: &Device<'_>, instance: Option<u32>) -> Result<Self, NvmlError> {
        // nvml-wrapper panics when it frees a sample with a library that lacks this symbol.
        nvml_sym(nvml.lib().nvmlGpmSampleFree.as_ref())?;
        let sample = match instance {
            Some(instance) => device.gpm_mig_sample(instance)?,
            None => device.gpm_sample()?,
        };
        Ok(Self { handle: sample.into_handle().cast(), nvml: Arc::clone(nvml) })
    }

    /// Counter values between this sample and a newer one; `None` for each unavailable counter.
    pub(crate) fn until(&self, newer: &Self, metrics: &[GpmMetricId]) -> Result<Vec<Option<f64>>, NvmlError> {
        // SAFETY: both handles were allocated by this library and are freed only by `drop`, not by these.
        let (older, newer) = unsafe {
            (
                ManuallyDrop::new(GpmSample::from_handle(&self.nvml, self.handle.cast())),
                ManuallyDrop::new(GpmSample::from_handle(&self.nvml, newer.handle.cast())),
            )
        };
        let results = gpm_metrics_get(&self.nvml, &older, &newer, metrics)?;
        Ok(results.into_iter().map(|result| result.ok().map(|result| result.value)).collect())
    }
}

impl Drop for KeptSample {
    fn drop(&mut self) {
        // SAFETY: the handle was allocated by this library, which is still open, and is freed only here.
        drop(unsafe { GpmSample::from_handle(&self.nvml, self.handle.cast()) });
    }
}
