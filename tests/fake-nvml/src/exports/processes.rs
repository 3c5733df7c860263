use std::ffi::{c_uint, c_ulonglong};

use super::{Handle, Return, ask};
use crate::Code;
use crate::scenario::Call;

/// `nvmlProcessInfo_t`.
#[repr(C)]
struct ProcessInfo {
    pid: c_uint,
    memory: c_ulonglong,
    gpu_instance: c_uint,
    compute_instance: c_uint,
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetComputeRunningProcesses_v3(
    device: Handle,
    count: *mut c_uint,
    out: *mut ProcessInfo,
) -> Return {
    let processes = match ask(device, Call::Processes, |unit| unit.processes.clone().ok_or(Code::NotSupported)) {
        Ok(processes) => processes,
        Err(code) => return code as Return,
    };
    // SAFETY: NVML's contract: `count` contains the capacity of `out`, and receives the number of processes.
    let room = unsafe { count.replace(processes.len() as c_uint) };
    if (room as usize) < processes.len() {
        return Code::InsufficientSize as Return;
    }
    let none = c_uint::MAX;
    for (place, process) in processes.iter().enumerate() {
        let info = ProcessInfo {
            pid: process.pid.unwrap_or_else(std::process::id),
            memory: process.memory_mib << 20,
            gpu_instance: none,
            compute_instance: none,
        };
        // SAFETY: there is room for all processes.
        unsafe { out.add(place).write(info) };
    }
    Code::Success as Return
}
