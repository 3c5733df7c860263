//! The CUDA driver's library, loaded when a figure is missing. None of these calls creates a context.

use std::ffi::{CStr, c_char, c_int, c_uint};

use libloading::Library;

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

/// Attributes of a device, by their numbers in cuda.h.
#[derive(Clone, Copy, Debug)]
#[repr(i32)]
pub(super) enum Attribute {
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
    /// Missing in drivers before CUDA 11.4.
    uuid: Option<unsafe extern "C" fn(*mut [u8; 16], c_int) -> Status>,
}

/// A device that CUDA lists.
pub(super) struct Device {
    functions: Functions,
    handle: c_int,
}

/// Every device that CUDA lists; none without a driver, or if the driver fails.
pub(super) fn devices() -> Vec<Device> {
    let Some(functions) = load() else { return Vec::new() };
    let mut count = 0;
    // SAFETY: `cuInit` may be called at any time, again too; `count` is valid for the write.
    let is_ready = unsafe { (functions.init)(0) == SUCCESS && (functions.count)(&raw mut count) == SUCCESS };
    let device = |index| {
        let mut handle = 0;
        // SAFETY: the driver is initialised; `handle` is valid for the write.
        let status = unsafe { (functions.device)(&raw mut handle, index) };
        (status == SUCCESS).then_some(Device { functions, handle })
    };
    if is_ready { (0..count).filter_map(device).collect() } else { Vec::new() }
}

fn load() -> Option<Functions> {
    // SAFETY: libcuda has no initialiser with preconditions.
    let library = NAMES.iter().find_map(|name| unsafe { Library::new(name) }.ok())?;
    // SAFETY: the types are those of cuda.h.
    let functions = unsafe {
        Functions {
            init: *library.get(b"cuInit\0").ok()?,
            count: *library.get(b"cuDeviceGetCount\0").ok()?,
            device: *library.get(b"cuDeviceGet\0").ok()?,
            name: *library.get(b"cuDeviceGetName\0").ok()?,
            attribute: *library.get(b"cuDeviceGetAttribute\0").ok()?,
            total: *library.get(b"cuDeviceTotalMem_v2\0").ok()?,
            uuid: library.get(b"cuDeviceGetUuid_v2\0").ok().map(|function| *function),
        }
    };
    std::mem::forget(library);
    Some(functions)
}

impl Device {
    pub(super) fn name(&self) -> Option<String> {
        let mut name = [0 as c_char; NAME_BYTES as usize];
        // SAFETY: the handle comes from `cuDeviceGet`; the driver writes at most this many bytes.
        let status = unsafe { (self.functions.name)(name.as_mut_ptr(), NAME_BYTES - 1, self.handle) };
        // SAFETY: the last byte was not written, so that the text ends within the array.
        let text = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().ok().filter(|text| !text.is_empty());
        text.filter(|_| status == SUCCESS).map(str::to_owned)
    }

    /// UUID as 32 hexadecimal digits in five groups, without NVML's prefix.
    pub(super) fn uuid(&self) -> Option<String> {
        let mut bytes = [0; 16];
        // SAFETY: the handle comes from `cuDeviceGet`; the driver writes 16 bytes.
        let status = unsafe { (self.functions.uuid?)(&raw mut bytes, self.handle) };
        let digits = format!("{:032x}", u128::from_be_bytes(bytes));
        let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        (status == SUCCESS).then(|| groups.join("-"))
    }

    pub(super) fn attribute(&self, attribute: Attribute) -> Option<c_int> {
        let mut value = 0;
        // SAFETY: the handle comes from `cuDeviceGet`; `value` is valid for the write.
        let status = unsafe { (self.functions.attribute)(&raw mut value, attribute as c_int, self.handle) };
        (status == SUCCESS).then_some(value)
    }

    /// Total memory in bytes.
    pub(super) fn memory_total(&self) -> Option<u64> {
        let mut bytes = 0;
        // SAFETY: the handle comes from `cuDeviceGet`; `bytes` is valid for the write.
        let status = unsafe { (self.functions.total)(&raw mut bytes, self.handle) };
        (status == SUCCESS).then_some(bytes as u64)
    }
}
