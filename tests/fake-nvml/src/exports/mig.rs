use std::ffi::{c_uint, c_ulonglong};

use super::{Handle, Return, ask, hand_out, handle};
use crate::Code;
use crate::scenario::{Call, Unit};

/// The most slices that any GPU has (MIG user guide).
const SLOTS: c_uint = 7;

/// `nvmlDeviceAttributes_t`.
#[repr(C)]
pub(super) struct Attributes {
    multiprocessors: c_uint,
    copy_engines: c_uint,
    decoders: c_uint,
    encoders: c_uint,
    jpeg: c_uint,
    optical_flow: c_uint,
    gpu_instance_slices: c_uint,
    compute_instance_slices: c_uint,
    memory_mb: c_ulonglong,
}

impl Attributes {
    pub(super) fn from_unit(unit: &Unit) -> Option<Self> {
        Some(Self {
            multiprocessors: unit.sm_count?,
            copy_engines: 1,
            decoders: 0,
            encoders: 0,
            jpeg: 0,
            optical_flow: 0,
            gpu_instance_slices: 1,
            compute_instance_slices: 1,
            memory_mb: unit.memory_total_mib.unwrap_or(0),
        })
    }
}

fn is_enabled(unit: &Unit) -> Option<bool> {
    unit.mig_enabled.or((!unit.mig.is_empty()).then_some(true))
}

/// Slots of a GPU that can be divided; 0 for another.
pub(super) fn slots(unit: &Unit) -> c_uint {
    if is_enabled(unit).is_some() { SLOTS } else { 0 }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigMode(device: Handle, current: *mut c_uint, pending: *mut c_uint) -> Return {
    let mode = ask(device, Call::MigMode, |unit| is_enabled(unit).map(c_uint::from).ok_or(Code::NotSupported));
    // SAFETY: by NVML's contract.
    unsafe {
        hand_out(mode, pending);
        hand_out(mode, current)
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetMigDeviceHandleByIndex(device: Handle, slot: c_uint, out: *mut Handle) -> Return {
    let slice = ask(device, Call::MigHandle, |unit| {
        let mut slices = unit.mig.iter().enumerate();
        let found = slices.find(|(place, slice)| slice.slot.unwrap_or(*place as c_uint) == slot);
        found.map(|(place, _)| handle((device.addr() & 0xffff) - 1, Some(place))).ok_or(Code::NotFound)
    });
    // SAFETY: by NVML's contract.
    unsafe { hand_out(slice, out) }
}
