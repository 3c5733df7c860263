use std::ffi::{c_uint, c_ulonglong};

use super::{Handle, Return, ask, hand_out};
use crate::Code;
use crate::scenario::{Call, Unit};

/// `nvmlMemory_t`.
#[repr(C)]
pub(super) struct MemoryV1 {
    total: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `nvmlMemory_v2_t`.
#[repr(C)]
struct MemoryV2 {
    version: c_uint,
    total: c_ulonglong,
    reserved: c_ulonglong,
    free: c_ulonglong,
    used: c_ulonglong,
}

/// `NVML_STRUCT_VERSION(Memory, 2)`.
const VERSION_2: c_uint = size_of::<MemoryV2>() as c_uint | (2 << 24);

impl MemoryV1 {
    pub(super) fn from_unit(unit: &Unit) -> Option<Self> {
        let MemoryV2 { total, free, .. } = MemoryV2::from_unit(unit)?;
        Some(Self { total, free, used: total.saturating_sub(free) })
    }
}

impl MemoryV2 {
    fn from_unit(unit: &Unit) -> Option<Self> {
        let bytes = |mib: u64| mib << 20;
        let total = bytes(unit.memory_total_mib?);
        let reserved = bytes(unit.memory_reserved_mib.unwrap_or(0));
        let free = unit.memory_free_mib.map_or(total.saturating_sub(reserved), bytes);
        let used = total.saturating_sub(reserved).saturating_sub(free);
        Some(Self { version: VERSION_2, total, reserved, free, used })
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMemoryInfo_v2(device: Handle, out: *mut MemoryV2) -> Return {
    // SAFETY: NVML's contract has the caller set the version first.
    if unsafe { (*out).version } != VERSION_2 {
        return Code::ArgumentVersionMismatch as Return;
    }
    let memory = ask(device, Call::MemoryV2, |unit| MemoryV2::from_unit(unit).ok_or(Code::NotSupported));
    // SAFETY: by NVML's contract.
    unsafe { hand_out(memory, out) }
}
