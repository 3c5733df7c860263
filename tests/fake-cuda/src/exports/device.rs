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

answers! {
    cuDriverGetVersion(c_int) = ask(0, |gpu| gpu.version);
    cuDeviceGetCount(c_int) = ask(0, |_| 1);
    cuDeviceGet(c_int, ordinal: c_int) = ask(ordinal, |_| ordinal);
    cuDeviceGetAttribute(c_int, attribute: c_int, device: c_int) = ask(device, |gpu| gpu.attribute(attribute));
    cuDeviceGetUuid([u8; 16], device: c_int) = ask(device, |gpu| gpu.uuid);
    cuDeviceGetUuid_v2([u8; 16], device: c_int) = ask(device, |gpu| gpu.uuid);
    cuDeviceTotalMem_v2(usize, device: c_int) = ask(device, |gpu| gpu.memory_total as usize);
    cuDevicePrimaryCtxRetain(Handle, device: c_int) = ask(device, |_| handle(CONTEXT));
    cuCtxGetCurrent(Handle) = Ok(handle(CURRENT.get()));
}

nothing! {
    cuDevicePrimaryCtxRelease_v2(c_int);
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
extern "C" fn cuCtxSetCurrent(context: Handle) -> Return {
    CURRENT.set(context.addr());
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuCtxGetStreamPriorityRange(least: *mut c_int, greatest: *mut c_int) -> Return {
    // SAFETY: by the driver's contract.
    unsafe {
        hand_out(Ok(0), least);
        hand_out(Ok(-5), greatest)
    }
}
