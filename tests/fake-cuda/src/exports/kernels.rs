//! Modules, kernels, and their launches, which do nothing.

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use super::{Handle, Return, SUCCESS, graphs, hand_out, handle};
use crate::{clock, kernels};

/// The module of every kernel.
const MODULE: usize = 1;
/// Handle of an ordinary kernel.
const COMPUTES: usize = 1;
const MEASURES: usize = 2;

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleLoadData(out: *mut Handle, image: *const c_char) -> Return {
    // SAFETY: CubeCL passes PTX, which is text that ends with a NUL.
    kernels::keep(unsafe { CStr::from_ptr(image) }.to_bytes());
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(handle(MODULE)), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuModuleGetFunction(out: *mut Handle, _module: Handle, name: *const c_char) -> Return {
    // SAFETY: by the driver's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_string_lossy();
    let kernel = if kernels::measures(&name) { MEASURES } else { COMPUTES };
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(handle(kernel)), out) }
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    kernel: Handle,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared_bytes: c_uint,
    _stream: Handle,
    _arguments: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> Return {
    if !graphs::record() {
        clock::launch(kernel.addr() == MEASURES);
    }
    SUCCESS
}

nothing! {
    cuModuleUnload(Handle);
    cuFuncSetAttribute(Handle, c_int, c_int);
    // Descriptors that kernels load tiles by: nobody reads them.
    cuTensorMapEncodeTiled(
        *mut c_void, c_uint, u32, *mut c_void, *const u64, *const u64, *const u32, *const u32, c_uint, c_uint, c_uint,
        c_uint
    );
    cuTensorMapEncodeIm2col(
        *mut c_void, c_uint, u32, *mut c_void, *const u64, *const u64, *const c_int, *const c_int, u32, u32, *const u32,
        c_uint, c_uint, c_uint, c_uint
    );
}
