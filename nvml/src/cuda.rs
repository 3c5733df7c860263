//! GPUs that CUDA lists, and their figures that NVML does not report: WSL2, virtual machines, Jetson and GB10.

use std::ffi::{CStr, c_char, c_int, c_uint};

use gpu_tuned_core::Bytes;
use gpu_tuned_core::device::{ComputeCapability, CudaDevice, GpuIdentity, GpuReading, PciAddress};
use libloading::{Error, Library};
use thiserror::Error;

use crate::driver::{FIRST_CALLS, within};
use crate::host;

/// Reasons why CUDA lists no GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CudaError {
    /// The library is missing.
    #[error("there is no CUDA driver on this machine")]
    NoLibrary,
    /// The driver has not answered for a minute.
    #[error("the CUDA driver has not answered for a minute: reset the GPU or reboot")]
    Silent,
    /// The driver failed. Most often library and kernel module have different versions, or a container has no access.
    #[error("the CUDA driver failed at {call}: {message}")]
    Call {
        /// The driver's function.
        call: &'static str,
        /// The driver's name and text for the failure.
        message: String,
    },
}

/// Lists the devices that CUDA shows to this process, in CUDA's order.
///
/// Loads and initialises the CUDA driver; creates no context and allocates nothing on a device.
///
/// # Errors
///
/// See [`CudaError`]. A driver without a device gives an empty list.
pub fn cuda_devices() -> Result<Vec<CudaDevice>, CudaError> {
    let list = || Ok(devices()?.iter().enumerate().map(|(index, device)| read(index, device)).collect());
    within(FIRST_CALLS, list).unwrap_or(Err(CudaError::Silent))
}

/// Completes GPUs for which NVML leaves figures out. Loads the CUDA driver only for these; creates no context.
pub(crate) fn complete_lacking(gpus: &mut [GpuReading]) {
    if gpus.iter().any(lacks_figures) {
        add_cuda_figures(gpus);
    }
}

/// Adds the figures that only CUDA reports, such as the L2 cache, to all GPUs that CUDA lists.
///
/// Loads and initialises the CUDA driver if the machine has one; creates no context and allocates nothing on a device.
pub fn add_cuda_figures(gpus: &mut [GpuReading]) {
    complete_with(gpus, &cuda_devices().unwrap_or_default());
}

/// Slices have their figures from the whole GPU.
fn complete_with(gpus: &mut [GpuReading], devices: &[CudaDevice]) {
    let is_alone = gpus.len() == 1;
    for gpu in gpus.iter_mut().filter(|gpu| gpu.mig.is_none()) {
        if let [device] = GpuIdentity::from(&*gpu).find(is_alone, devices)[..] {
            complete(gpu, device);
        }
    }
}

/// Adds CUDA's figures to a GPU. Its memory is the host's if only CUDA reports that the GPU shares it.
pub(crate) fn complete(gpu: &mut GpuReading, device: &CudaDevice) {
    gpu.complete(device);
    host::share_memory(gpu);
}

/// Returns true if planning needs a figure that NVML did not report.
fn lacks_figures(gpu: &GpuReading) -> bool {
    let rates = [gpu.sm_count, gpu.max_sm_clock_mhz, gpu.memory_bus_bits, gpu.max_memory_clock_mhz];
    gpu.mig.is_none() && (rates.contains(&None) || gpu.memory_total.is_none() || gpu.compute_capability.is_none())
}

fn read(index: usize, device: &Device) -> CudaDevice {
    let number = |attribute| device.attribute(attribute).and_then(|figure| u32::try_from(figure).ok());
    let figure = |attribute| number(attribute).filter(|figure| *figure > 0);
    let megahertz = |attribute| figure(attribute).map(|kilohertz| kilohertz / 1000).filter(|clock| *clock > 0);
    let small = |attribute| number(attribute).and_then(|figure| u8::try_from(figure).ok());
    let capability =
        || Some(ComputeCapability::new(small(Attribute::CapabilityMajor)?, small(Attribute::CapabilityMinor)?));
    let address = || {
        let domain = number(Attribute::PciDomain)?;
        Some(PciAddress { domain, bus: small(Attribute::PciBus)?, device: small(Attribute::PciDevice)? })
    };
    let mut read = CudaDevice::default();
    read.index = index;
    read.name = device.name();
    read.uuid = device.uuid();
    read.pci_address = address();
    read.compute_capability = capability().filter(|capability| capability.major > 0);
    read.memory_total = device.memory_total().filter(|total| *total > 0).map(Bytes);
    read.unified_memory = number(Attribute::Integrated) == Some(1);
    read.sm_count = figure(Attribute::SmCount);
    read.max_sm_clock_mhz = megahertz(Attribute::ClockKhz);
    read.max_memory_clock_mhz = megahertz(Attribute::MemoryClockKhz);
    read.memory_bus_bits = figure(Attribute::BusBits);
    read.l2_cache = figure(Attribute::L2Bytes).map(|bytes| Bytes(u64::from(bytes)));
    read
}

/// Names of the library: the system's own search, then WSL2 and NixOS.
const NAMES: [&str; 3] = if cfg!(target_os = "linux") {
    ["libcuda.so.1", "/usr/lib/wsl/lib/libcuda.so.1", "/run/opengl-driver/lib/libcuda.so.1"]
} else {
    ["nvcuda.dll", "nvcuda64.dll", "libcuda.dylib"]
};

/// Bytes for a device name; the longest known has 58.
const NAME_BYTES: c_int = 256;

type Status = c_int;
const SUCCESS: Status = 0;
const NO_DEVICE: Status = 100;

/// Attributes of a device, by their numbers in cuda.h.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
enum Attribute {
    ClockKhz = 13,
    SmCount = 16,
    Integrated = 18,
    PciBus = 33,
    PciDevice = 34,
    MemoryClockKhz = 36,
    BusBits = 37,
    L2Bytes = 38,
    PciDomain = 50,
    CapabilityMajor = 75,
    CapabilityMinor = 76,
}

/// Functions of the library, valid as long as it is loaded: never unloaded, because the driver keeps threads.
#[derive(Clone, Copy)]
struct Functions {
    init: unsafe extern "C" fn(c_uint) -> Status,
    count: unsafe extern "C" fn(*mut c_int) -> Status,
    device: unsafe extern "C" fn(*mut c_int, c_int) -> Status,
    name: unsafe extern "C" fn(*mut c_char, c_int, c_int) -> Status,
    attribute: unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Status,
    total: unsafe extern "C" fn(*mut usize, c_int) -> Status,
    /// Names the slice under MIG. Missing in drivers before CUDA 11.4.
    uuid: Option<unsafe extern "C" fn(*mut [u8; 16], c_int) -> Status>,
    error_name: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    error_text: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

/// A device that CUDA lists.
struct Device {
    functions: Functions,
    handle: c_int,
}

/// Every device that CUDA lists, in its order.
fn devices() -> Result<Vec<Device>, CudaError> {
    let functions = load()?;
    // SAFETY: `cuInit` may be called at any time, again too.
    match unsafe { (functions.init)(0) } {
        NO_DEVICE => return Ok(Vec::new()),
        status => functions.check("cuInit", status)?,
    }
    let mut count = 0;
    // SAFETY: the driver is initialised; `count` is valid for the write.
    functions.check("cuDeviceGetCount", unsafe { (functions.count)(&raw mut count) })?;
    let device = |index| {
        let mut handle = 0;
        // SAFETY: the driver is initialised; `handle` is valid for the write.
        functions.check("cuDeviceGet", unsafe { (functions.device)(&raw mut handle, index) })?;
        Ok(Device { functions, handle })
    };
    (0..count).map(device).collect()
}

fn load() -> Result<Functions, CudaError> {
    // SAFETY: libcuda has no initialiser with preconditions.
    let library = NAMES.iter().find_map(|name| unsafe { Library::new(name) }.ok()).ok_or(CudaError::NoLibrary)?;
    // SAFETY: the types are those of cuda.h.
    let functions = unsafe { Functions::find(&library) };
    std::mem::forget(library);
    functions.map_err(|error| CudaError::Call { call: "loading a function", message: error.to_string() })
}

impl Functions {
    /// # Safety
    ///
    /// `library` is the CUDA driver's, and stays loaded.
    unsafe fn find(library: &Library) -> Result<Self, Error> {
        // SAFETY: the types are those of cuda.h.
        unsafe {
            Ok(Self {
                init: *library.get(b"cuInit\0")?,
                count: *library.get(b"cuDeviceGetCount\0")?,
                device: *library.get(b"cuDeviceGet\0")?,
                name: *library.get(b"cuDeviceGetName\0")?,
                attribute: *library.get(b"cuDeviceGetAttribute\0")?,
                total: *library.get(b"cuDeviceTotalMem_v2\0")?,
                uuid: library.get(b"cuDeviceGetUuid_v2\0").ok().map(|function| *function),
                error_name: *library.get(b"cuGetErrorName\0")?,
                error_text: *library.get(b"cuGetErrorString\0")?,
            })
        }
    }

    fn check(&self, call: &'static str, status: Status) -> Result<(), CudaError> {
        let text = |function: unsafe extern "C" fn(Status, *mut *const c_char) -> Status| {
            let mut text = std::ptr::null();
            // SAFETY: `text` is valid for the write.
            let answer = unsafe { function(status, &raw mut text) };
            // SAFETY: the driver's texts end with NUL and are never freed.
            let is_known = answer == SUCCESS && !text.is_null();
            is_known.then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())
        };
        if status == SUCCESS {
            return Ok(());
        }
        let name = text(self.error_name).unwrap_or_else(|| status.to_string().into());
        let message = format!("{name} ({})", text(self.error_text).unwrap_or("no description".into()));
        Err(CudaError::Call { call, message })
    }
}

impl Device {
    fn name(&self) -> Option<String> {
        let mut name = [0 as c_char; NAME_BYTES as usize];
        // SAFETY: the handle comes from `cuDeviceGet`; the driver writes at most this many bytes.
        let status = unsafe { (self.functions.name)(name.as_mut_ptr(), NAME_BYTES - 1, self.handle) };
        // SAFETY: the last byte was not written, so that the text ends within the array.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().ok().filter(|text| !text.is_empty());
        text.filter(|_| status == SUCCESS).map(str::to_owned)
    }

    /// UUID as 32 hexadecimal digits in five groups, without NVML's prefix.
    fn uuid(&self) -> Option<String> {
        let mut bytes = [0; 16];
        // SAFETY: the handle comes from `cuDeviceGet`; the driver writes 16 bytes.
        let status = unsafe { (self.functions.uuid?)(&raw mut bytes, self.handle) };
        let digits = format!("{:032x}", u128::from_be_bytes(bytes));
        let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        (status == SUCCESS).then(|| groups.join("-"))
    }

    fn attribute(&self, attribute: Attribute) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: the handle comes from `cuDeviceGet`; `value` is valid for the write.
        let status = unsafe { (self.functions.attribute)(&raw mut value, attribute as c_int, self.handle) };
        (status == SUCCESS).then_some(value)
    }

    /// Total memory in bytes.
    fn memory_total(&self) -> Option<u64> {
        let mut bytes = 0;
        // SAFETY: the handle comes from `cuDeviceGet`; `bytes` is valid for the write.
        let status = unsafe { (self.functions.total)(&raw mut bytes, self.handle) };
        (status == SUCCESS).then_some(bytes as u64)
    }
}

#[cfg(test)]
mod tests;
