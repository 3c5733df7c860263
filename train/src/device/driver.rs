//! The CUDA driver, asked directly.
//!
//! `CubeCL` reports a device's name and address only after opening it. That creates a context (about 3 MiB an SM) on
//! every GPU of the machine. `cuInit` and `cuDeviceGet…` create no context and allocate nothing on a device. If
//! `CubeCL` cannot create a context, it panics on its own thread, and the caller never sees the reason. Retaining the
//! same context first returns the driver's error.

#![allow(unsafe_code)]

use std::sync::Arc;
use std::thread;

use cudarc::driver::sys::{self, CUdevice, CUdevice_attribute};
use cudarc::driver::{CudaContext, DriverError, result};
use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, PciAddress};

use super::guard::catching;
use super::{CudaDevice, OpenError};

/// Returns true if the driver's library can be loaded.
pub(super) fn is_present() -> bool {
    // SAFETY: it only tries to load each of the library's names; libcuda has no initialiser with preconditions.
    unsafe { sys::is_culib_present() }
}

/// Every device that CUDA shows, in its order. The library must be present.
pub(super) fn devices() -> Result<Vec<CudaDevice>, OpenError> {
    // cudarc panics on a function that the driver does not have.
    catching(read_all).unwrap_or_else(|message| Err(OpenError::Driver { call: "loading a function", message }))
}

fn read_all() -> Result<Vec<CudaDevice>, OpenError> {
    match result::init() {
        Err(DriverError(sys::CUresult::CUDA_ERROR_NO_DEVICE)) => return Ok(Vec::new()),
        other => other.map_err(|error| failure("cuInit", error))?,
    }
    let count = result::device::get_count().map_err(|error| failure("cuDeviceGetCount", error))?;
    let names_slices = version() >= 11_040;
    (0..count)
        .map(|index| {
            let handle = result::device::get(index).map_err(|error| failure("cuDeviceGet", error))?;
            Ok(read(index as usize, handle, names_slices))
        })
        .collect()
}

fn read(index: usize, handle: CUdevice, names_slices: bool) -> CudaDevice {
    // SAFETY: `handle` comes from `cuDeviceGet`.
    let attribute = |name| unsafe { result::device::get_attribute(handle, name) }.ok();
    let small = |name| attribute(name).and_then(|value| u8::try_from(value).ok());
    let capability = || {
        let major = small(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)?;
        Some(ComputeCapability::new(major, small(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR)?))
    };
    let address = || {
        let domain = u32::try_from(attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID)?).ok()?;
        let bus = small(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_BUS_ID)?;
        Some(PciAddress { domain, bus, device: small(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID)? })
    };
    let figure = |name| attribute(name).and_then(|value| u32::try_from(value).ok()).filter(|value| *value > 0);
    let megahertz = |name| figure(name).map(|kilohertz| kilohertz / 1000).filter(|clock| *clock > 0);
    CudaDevice {
        index,
        name: result::device::get_name(handle).ok(),
        pci_address: address(),
        uuid: names_slices.then(|| uuid(handle)).flatten(),
        compute_capability: capability(),
        sm_count: figure(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
        unified_memory: attribute(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_INTEGRATED) == Some(1),
        max_sm_clock_mhz: megahertz(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_CLOCK_RATE),
        max_memory_clock_mhz: megahertz(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE),
        memory_bus_bits: figure(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH),
        l2_cache: figure(CUdevice_attribute::CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE).map(|bytes| Bytes(u64::from(bytes))),
        // SAFETY: `handle` comes from `cuDeviceGet`.
        memory_total: unsafe { result::device::total_mem(handle) }.ok().map(|bytes| Bytes(bytes as u64)),
    }
}

/// The UUID of the device; the second version of the call names the slice under MIG, the first one its GPU.
fn uuid(handle: CUdevice) -> Option<String> {
    let mut uuid = sys::CUuuid { bytes: [0; 16] };
    // SAFETY: `uuid` outlives the call, which writes its 16 bytes; `handle` comes from `cuDeviceGet`.
    unsafe { sys::cuDeviceGetUuid_v2(&raw mut uuid, handle) }.result().ok()?;
    let hex = format!("{:032x}", u128::from_be_bytes(uuid.bytes.map(|byte| byte as u8)));
    Some([&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-"))
}

/// CUDA version of the driver (1000 x major + 10 x minor); 0 if unknown.
fn version() -> i32 {
    let mut version = 0;
    // SAFETY: `version` outlives the call, which writes one integer to it.
    let answer = unsafe { sys::cuDriverGetVersion(&raw mut version) };
    answer.result().map_or(0, |()| version)
}

/// Retains the device's primary context until it is dropped. Also returns the memory that is free with the context.
///
/// `CubeCL` uses the same context, so a retained one costs nothing extra.
pub(super) fn retain(device: &CudaDevice) -> Result<(Arc<CudaContext>, Bytes), OpenError> {
    let take = || {
        let context = CudaContext::new(device.index)?;
        let (free, _) = context.mem_get_info()?;
        Ok((context, Bytes(free as u64)))
    };
    // On a thread of its own, because it makes the context current: the caller's thread keeps the one it had.
    let outcome = thread::scope(|scope| scope.spawn(|| catching(take)).join());
    let refused = |message| OpenError::Context { device: Box::new(device.clone()), message };
    match outcome {
        Ok(Ok(taken)) => taken.map_err(|error: DriverError| refused(words(error))),
        Ok(Err(message)) => Err(refused(message)),
        Err(_) => Err(refused("the driver's answer was lost".to_owned())),
    }
}

/// Memory that is free on a device that is open.
///
/// # Errors
///
/// See [`OpenError`]: the driver may refuse or lose the device.
pub fn memory_free(device: &CudaDevice) -> Result<Bytes, OpenError> {
    retain(device).map(|(_, free)| free)
}

fn failure(call: &'static str, error: DriverError) -> OpenError {
    OpenError::Driver { call, message: words(error) }
}

fn words(error: DriverError) -> String {
    let text = error.error_string().ok().and_then(|text| text.to_str().ok()).unwrap_or("no description");
    format!("{:?} ({text})", error.0)
}
