//! Memory of the device, pinned memory, and copies. Everything happens at once.

use std::ffi::{c_uint, c_void};
use std::slice;

use super::{Address, CAPTURE_UNSUPPORTED, Handle, INVALID_VALUE, Return, SUCCESS, ask, done, graphs, hand_out};
use crate::memory::{device, fill, pinned};

fn take(bytes: usize) -> Result<Address, Return> {
    let most = if graphs::is_capturing() { Err(CAPTURE_UNSUPPORTED) } else { ask(0, |gpu| gpu.memory_free) };
    most.and_then(|most| device().take(bytes as u64, most).map_err(Return::from))
}

fn take_pinned(bytes: usize) -> Result<*mut c_void, Return> {
    let taken = pinned().take(bytes as u64, u64::MAX).map_err(Return::from);
    taken.map(|address| std::ptr::with_exposed_provenance_mut(address as usize))
}

answers! {
    cuMemAlloc_v2(Address, bytes: usize) = take(bytes);
    cuMemAllocAsync(Address, bytes: usize, _stream: Handle) = take(bytes);
    cuMemAllocHost_v2(*mut c_void, bytes: usize) = take_pinned(bytes);
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: Address) -> Return {
    done(device().give_back(address))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeAsync(address: Address, _stream: Handle) -> Return {
    cuMemFree_v2(address)
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> Return {
    let used = device().used();
    // SAFETY: by the driver's contract.
    unsafe {
        hand_out(ask(0, |gpu| (gpu.memory_free - used) as usize), free);
        hand_out(ask(0, |gpu| gpu.memory_total as usize), total)
    }
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(address: *mut c_void) -> Return {
    done(pinned().give_back(address.addr() as Address))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyHtoDAsync_v2(to: Address, from: *const c_void, length: usize, _stream: Handle) -> Return {
    // SAFETY: by the driver's contract.
    let bytes = unsafe { slice::from_raw_parts(from.cast(), length) };
    done(device().write(to, bytes))
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpyDtoHAsync_v2(to: *mut c_void, from: Address, length: usize, _stream: Handle) -> Return {
    let memory = device();
    let bytes = match memory.written(from, length) {
        Ok(bytes) => bytes,
        Err(refused) => return refused.into(),
    };
    // SAFETY: by the driver's contract; `to` is no memory of the device.
    unsafe {
        to.cast::<u8>().copy_from_nonoverlapping(bytes.as_ptr(), length);
        fill(slice::from_raw_parts_mut(to.cast(), length));
    }
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(to: Address, from: Address, length: usize, _stream: Handle) -> Return {
    let mut memory = device();
    let bytes = memory.written(from, length).map(<[u8]>::to_vec);
    done(bytes.and_then(|bytes| memory.write(to, &bytes)))
}

/// `CUmemorytype`.
const HOST: c_uint = 1;
const DEVICE: c_uint = 2;

/// Source or target of a `CUDA_MEMCPY2D`.
#[repr(C)]
struct Side {
    x_in_bytes: usize,
    y: usize,
    memory_type: c_uint,
    host: *mut u8,
    device: Address,
    array: *mut c_void,
    pitch: usize,
}

/// `CUDA_MEMCPY2D`.
#[repr(C)]
struct Rectangle {
    from: Side,
    to: Side,
    width_in_bytes: usize,
    height: usize,
}

impl Side {
    /// Offset of a row, in bytes.
    fn row(&self, row: usize) -> usize {
        self.x_in_bytes + (self.y + row) * self.pitch
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuMemcpy2DAsync_v2(copy: *const Rectangle, stream: Handle) -> Return {
    // SAFETY: by the driver's contract.
    let Rectangle { from, to, width_in_bytes: width, height } = unsafe { &*copy };
    for row in 0..*height {
        let (source, target) = (from.row(row), to.row(row));
        // SAFETY: by the driver's contract all rows are inside the memory of both sides.
        let code = unsafe {
            match (from.memory_type, to.memory_type) {
                (HOST, DEVICE) => {
                    cuMemcpyHtoDAsync_v2(to.device + target as u64, from.host.add(source).cast(), *width, stream)
                }
                (DEVICE, HOST) => {
                    cuMemcpyDtoHAsync_v2(to.host.add(target).cast(), from.device + source as u64, *width, stream)
                }
                _ => INVALID_VALUE,
            }
        };
        if code != SUCCESS {
            return code;
        }
    }
    SUCCESS
}
