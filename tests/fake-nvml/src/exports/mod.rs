//! NVML's C functions, in the newest version of nvml.h, which nvml-wrapper calls.
//!
//! Every function is called under NVML's contract: handles come from this library, and out-pointers are valid for
//! writes.
#![allow(non_snake_case, reason = "the names are NVML's")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_ulonglong, c_void};
use std::path::PathBuf;

use crate::Code;
use crate::scenario::{Call, Unit};
use crate::state;

mod counters;
mod memory;
mod mig;
mod pci;
mod processes;

/// `nvmlDevice_t`: not a pointer, but the index of the GPU and the slot of the slice, each counted from 1.
type Handle = *mut c_void;
type Return = c_uint;

fn handle(gpu: usize, slice: Option<usize>) -> Handle {
    std::ptr::without_provenance_mut((gpu + 1) | (slice.map_or(0, |slice| slice + 1) << 16))
}

fn ask<T>(device: Handle, call: Call, answer: impl FnOnce(&Unit) -> Result<T, Code>) -> Result<T, Code> {
    let (gpu, slice) = (device.addr() & 0xffff, device.addr() >> 16);
    state::query(gpu.checked_sub(1).ok_or(Code::InvalidArgument)?, slice.checked_sub(1), call, answer)
}

/// # Safety
/// `out` is valid for a write.
unsafe fn hand_out<T>(answer: Result<T, Code>, out: *mut T) -> Return {
    match answer {
        // SAFETY: by this function's contract.
        Ok(value) => unsafe { out.write(value) },
        Err(code) => return code as Return,
    }
    Code::Success as Return
}

/// # Safety
/// `out` is valid for `length` bytes.
unsafe fn hand_out_text(answer: Result<Vec<u8>, Code>, out: *mut c_char, length: c_uint) -> Return {
    let text = match answer {
        Ok(text) if text.len() < length as usize => text,
        Ok(_) => return Code::InsufficientSize as Return,
        Err(code) => return code as Return,
    };
    // SAFETY: text and its NUL fit into `length` bytes.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
    Code::Success as Return
}

#[unsafe(no_mangle)]
unsafe extern "C" fn fake_nvml_set_scenario(file: *const c_char) {
    // SAFETY: null or a string, as `play` passes it.
    let file = (!file.is_null()).then(|| unsafe { CStr::from_ptr(file) }.to_string_lossy().into_owned());
    state::set_scenario(file.map(PathBuf::from));
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInit_v2() -> Return {
    state::open() as Return
}

#[unsafe(no_mangle)]
extern "C" fn nvmlInitWithFlags(_flags: c_uint) -> Return {
    state::open() as Return
}

#[unsafe(no_mangle)]
extern "C" fn nvmlShutdown() -> Return {
    state::close() as Return
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetDriverVersion(out: *mut c_char, length: c_uint) -> Return {
    let version = state::query_system(|all| all.driver_version.clone().map(Into::into).ok_or(Code::NotSupported));
    // SAFETY: by NVML's contract.
    unsafe { hand_out_text(version, out, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCount_v2(out: *mut c_uint) -> Return {
    let count = state::query_system(|all| all.count.map_or(Ok(all.counted.unwrap_or(all.gpu.len() as c_uint)), Err));
    // SAFETY: by NVML's contract.
    unsafe { hand_out(count, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetHandleByIndex_v2(index: c_uint, out: *mut Handle) -> Return {
    let device = handle(index as usize, None);
    // SAFETY: by NVML's contract.
    unsafe { hand_out(ask(device, Call::Handle, |_| Ok(device)), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetName(device: Handle, out: *mut c_char, length: c_uint) -> Return {
    let name = ask(device, Call::Name, |unit| {
        let text = || unit.name.clone().map(String::into_bytes);
        unit.name_bytes.clone().or_else(text).ok_or(Code::NotSupported)
    });
    // SAFETY: by NVML's contract.
    unsafe { hand_out_text(name, out, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetUUID(device: Handle, out: *mut c_char, length: c_uint) -> Return {
    let uuid = ask(device, Call::Uuid, |unit| unit.uuid.clone().map(String::into_bytes).ok_or(Code::NotSupported));
    // SAFETY: by NVML's contract.
    unsafe { hand_out_text(uuid, out, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCudaComputeCapability(
    device: Handle,
    major: *mut c_int,
    minor: *mut c_int,
) -> Return {
    let capability = ask(device, Call::ComputeCapability, |unit| unit.compute_capability.ok_or(Code::NotSupported));
    // SAFETY: by NVML's contract.
    unsafe {
        hand_out(capability.map(|[major, _]| major), major);
        hand_out(capability.map(|[_, minor]| minor), minor)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMaxClockInfo(device: Handle, domain: c_uint, out: *mut c_uint) -> Return {
    // nvmlClockType_t: 0 graphics, 1 SM, 2 memory.
    let clock = match domain {
        0 | 1 => ask(device, Call::SmClock, |unit| unit.sm_clock_mhz.ok_or(Code::NotSupported)),
        2 => ask(device, Call::MemoryClock, |unit| unit.memory_clock_mhz.ok_or(Code::NotSupported)),
        _ => Err(Code::NotSupported),
    };
    // SAFETY: by NVML's contract.
    unsafe { hand_out(clock, out) }
}

/// `nvmlUtilization_t`.
#[repr(C)]
struct Utilisation {
    gpu: c_uint,
    memory: c_uint,
}

/// Functions that answer with one value of a device, which is not supported where it is absent.
macro_rules! answers {
    ($($symbol:ident: $call:ident -> $type:ty = $value:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(device: Handle, out: *mut $type) -> Return {
            let value: fn(&Unit) -> Option<$type> = $value;
            // SAFETY: by NVML's contract.
            unsafe { hand_out(ask(device, Call::$call, |unit| value(unit).ok_or(Code::NotSupported)), out) }
        }
    )*};
}
answers! {
    nvmlDeviceGetNumGpuCores: Cores -> c_uint = |unit| unit.cores;
    nvmlDeviceGetMemoryBusWidth: Bus -> c_uint = |unit| unit.bus_bits;
    nvmlDeviceGetPowerManagementLimit: PowerLimit -> c_uint = |unit| unit.power_limit_mw;
    nvmlDeviceGetEnforcedPowerLimit: EnforcedPowerLimit -> c_uint = |unit| unit.enforced_power_limit_mw;
    nvmlDeviceGetPowerManagementDefaultLimit: DefaultPowerLimit -> c_uint = |unit| unit.default_power_limit_mw;
    nvmlDeviceGetVirtualizationMode: Virtualization -> c_uint = |unit| unit.virtualization.map(|mode| mode as c_uint);
    nvmlDeviceGetGpuInstanceId: GpuInstance -> c_uint = |unit| unit.gpu_instance;
    nvmlDeviceGetComputeInstanceId: ComputeInstance -> c_uint = |unit| unit.compute_instance;
    nvmlDeviceGetPowerUsage: PowerDraw -> c_uint = |unit| unit.power_draw_mw;
    nvmlDeviceGetPerformanceState: PerformanceState -> c_uint = |unit| unit.performance_state;
    nvmlDeviceGetCurrPcieLinkGeneration: PcieGeneration -> c_uint = |unit| unit.pcie.map(|[generation, _]| generation);
    nvmlDeviceGetCurrPcieLinkWidth: PcieLanes -> c_uint = |unit| unit.pcie.map(|[_, lanes]| lanes);
    nvmlDeviceGetMaxPcieLinkGeneration: MaxPcieGeneration -> c_uint = |unit| unit.pcie_max.map(|[generation, _]| generation);
    nvmlDeviceGetMaxPcieLinkWidth: MaxPcieLanes -> c_uint = |unit| unit.pcie_max.map(|[_, lanes]| lanes);
    nvmlDeviceGetMaxMigDeviceCount: MigCount -> c_uint = |unit| Some(mig::slots(unit));
    nvmlDeviceGetAttributes_v2: Attributes -> mig::Attributes = mig::Attributes::from_unit;
    nvmlDeviceGetMemoryInfo: MemoryV1 -> memory::MemoryV1 = memory::MemoryV1::from_unit;
    nvmlDeviceGetPciInfo_v3: Pci -> pci::PciInfo = pci::PciInfo::from_unit;
    nvmlDeviceGetUtilizationRates: Utilisation -> Utilisation = |unit| {
        unit.utilisation_percent.map(|[gpu, memory]| Utilisation { gpu, memory })
    };
    nvmlDeviceGetCurrentClocksThrottleReasons: Throttle -> c_ulonglong = |unit| {
        let reasons = unit.throttle.as_ref()?;
        Some(reasons.iter().fold(0, |bits, reason| bits | *reason as c_ulonglong))
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetClockInfo(device: Handle, domain: c_uint, out: *mut c_uint) -> Return {
    let clock = ask(device, Call::Clocks, |unit| {
        let [sm, memory] = unit.clocks_mhz.ok_or(Code::NotSupported)?;
        // nvmlClockType_t, as above.
        if domain == 2 { Ok(memory) } else { Ok(sm) }
    });
    // SAFETY: by NVML's contract.
    unsafe { hand_out(clock, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTemperature(device: Handle, _sensor: c_uint, out: *mut c_uint) -> Return {
    let temperature = ask(device, Call::Temperature, |unit| unit.temperature_c.ok_or(Code::NotSupported));
    // SAFETY: by NVML's contract.
    unsafe { hand_out(temperature, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetPcieThroughput(device: Handle, counter: c_uint, out: *mut c_uint) -> Return {
    let traffic = ask(device, Call::PcieThroughput, |unit| {
        let [to_gpu, from_gpu] = unit.pcie_kb_s.ok_or(Code::NotSupported)?;
        // nvmlPcieUtilCounter_t: 0 is sent by the GPU, 1 is received.
        if counter == 0 { Ok(from_gpu) } else { Ok(to_gpu) }
    });
    // SAFETY: by NVML's contract.
    unsafe { hand_out(traffic, out) }
}
