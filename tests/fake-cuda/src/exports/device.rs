//! The device and its context.

use std::cell::Cell;
use std::ffi::{c_char, c_int, c_uint};

use super::{Handle, NO_DEVICE, Return, SUCCESS, ask, hand_out, hand_out_text, handle};
use crate::gpu::{Gpu, gpu};

/// The only context there is.
const CONTEXT: usize = 1;

thread_local! {
    static CURRENT: Cell<usize> = const { Cell::new(0) };
}

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> Return {
    if gpu().is_some() { SUCCESS } else { NO_DEVICE }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDriverGetVersion(out: *mut c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(0, |gpu| gpu.version), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetCount(out: *mut c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(0, |_| 1), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGet(out: *mut c_int, ordinal: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(ordinal, |_| ordinal), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetAttribute(out: *mut c_int, attribute: c_int, device: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(device, |gpu| gpu.attribute(attribute)), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetName(out: *mut c_char, length: c_int, device: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out_text(ask(device, |gpu| gpu.name.clone()), out, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetPCIBusId(out: *mut c_char, length: c_int, device: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out_text(ask(device, Gpu::pci_address), out, length) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid(out: *mut [u8; 16], device: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(device, |gpu| gpu.uuid), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceGetUuid_v2(out: *mut [u8; 16], device: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(device, |gpu| gpu.uuid), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDeviceTotalMem_v2(out: *mut usize, device: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(device, |gpu| gpu.memory_total as usize), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuDevicePrimaryCtxRetain(out: *mut Handle, device: c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(ask(device, |_| handle(CONTEXT)), out) }
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(_device: c_int) -> Return {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: Handle) -> Return {
    CURRENT.set(context.addr());
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetCurrent(out: *mut Handle) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(handle(CURRENT.get())), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe {
        hand_out(Ok(0), least);
        hand_out(Ok(-5), greatest)
    }
}
