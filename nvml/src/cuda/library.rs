//! The CUDA driver's library, loaded at the first call. None of these calls creates a context.

use std::ffi::{CStr, c_char, c_int, c_uint};

use libloading::{Error, Library};

use super::CudaError;

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
    /// Names the slice under MIG. Missing in drivers before CUDA 11.4.
    uuid: Option<unsafe extern "C" fn(*mut [u8; 16], c_int) -> Status>,
    error_name: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
    error_text: unsafe extern "C" fn(Status, *mut *const c_char) -> Status,
}

/// A device that CUDA lists.
pub(super) struct Device {
    functions: Functions,
    handle: c_int,
}

/// Every device that CUDA lists, in its order.
pub(super) fn devices() -> Result<Vec<Device>, CudaError> {
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
