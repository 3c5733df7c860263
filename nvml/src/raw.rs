//! The calls that nvml-wrapper does not wrap.

use nvml_wrapper::Device;
use nvml_wrapper::error::{NvmlError, nvml_sym, nvml_try};

/// Total and free memory in bytes, from the call that every driver has; its total includes what the driver reserves.
pub(crate) fn memory_v1(device: &Device<'_>) -> Result<(u64, u64), NvmlError> {
    let call = nvml_sym(device.nvml().lib().nvmlDeviceGetMemoryInfo.as_ref())?;
    // SAFETY: the handle is used while `device` borrows the library, and `memory` is a plain C struct of integers, of
    // the type that the bindings declare for this call.
    unsafe {
        let mut memory = std::mem::zeroed();
        nvml_try(call(device.handle(), &raw mut memory))?;
        Ok((memory.total, memory.free))
    }
}

/// The number of the GPU instance that a MIG slice lies in.
pub(crate) fn gpu_instance(slice: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(slice.nvml().lib().nvmlDeviceGetGpuInstanceId.as_ref())?;
    let mut instance = 0;
    // SAFETY: the handle is used while `slice` borrows the library; `instance` is valid for the write.
    nvml_try(unsafe { call(slice.handle(), &raw mut instance) })?;
    Ok(instance)
}

/// The number of a MIG slice's compute instance within its GPU instance.
pub(crate) fn compute_instance(slice: &Device<'_>) -> Result<u32, NvmlError> {
    let call = nvml_sym(slice.nvml().lib().nvmlDeviceGetComputeInstanceId.as_ref())?;
    let mut instance = 0;
    // SAFETY: the handle is used while `slice` borrows the library; `instance` is valid for the write.
    nvml_try(unsafe { call(slice.handle(), &raw mut instance) })?;
    Ok(instance)
}
