//! C functions of the CUDA driver, as declared in cuda.h: those called by training steps on one GPU.
//!
//! Every function is called under the driver's contract: handles come from this library, and pointers are valid for
//! reads and writes.
#![allow(non_snake_case, reason = "the names are the driver's")]

use std::ffi::{CStr, c_char, c_int, c_uint, c_void};

use crate::gpu::{Gpu, gpu};
use crate::memory::Refused;

/// Functions that write an answer through their first argument.
macro_rules! answers {
    ($($name:ident($out:ty $(, $argument:ident: $type:ty)*) = $answer:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name(out: *mut $out $(, $argument: $type)*) -> Return {
            let answer = $answer;
            // SAFETY: by the driver's contract.
            unsafe { hand_out(answer, out) }
        }
    )*};
}

/// Functions that do nothing.
macro_rules! nothing {
    ($($name:ident($($argument:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name($(_: $argument),*) -> Return {
            SUCCESS
        }
    )*};
}

mod device;
mod graphs;
mod kernels;
mod memory;
mod streams;

/// `CUresult`.
type Return = c_uint;
/// `CUdeviceptr`.
type Address = u64;
/// Contexts, streams, events, modules, functions: never a real pointer.
type Handle = *mut c_void;

const SUCCESS: Return = 0;
const INVALID_VALUE: Return = 1;
const OUT_OF_MEMORY: Return = 2;
/// Waits and allocations while a stream captures.
const CAPTURE_UNSUPPORTED: Return = 900;
const NO_DEVICE: Return = 100;
const INVALID_DEVICE: Return = 101;

fn handle(number: usize) -> Handle {
    std::ptr::without_provenance_mut(number)
}

/// Queries the GPU with that number.
fn ask<T>(device: c_int, answer: impl FnOnce(&'static Gpu) -> T) -> Result<T, Return> {
    let gpu = gpu().ok_or(NO_DEVICE)?;
    if device == 0 { Ok(answer(gpu)) } else { Err(INVALID_DEVICE) }
}

impl From<Refused> for Return {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Full => OUT_OF_MEMORY,
            Refused::Unknown => INVALID_VALUE,
        }
    }
}

fn done(answer: Result<(), Refused>) -> Return {
    answer.map_or_else(Return::from, |()| SUCCESS)
}

/// # Safety
/// `out` is valid for a write.
unsafe fn hand_out<T>(answer: Result<T, Return>, out: *mut T) -> Return {
    match answer {
        // SAFETY: by this function's contract.
        Ok(value) => unsafe { out.write(value) },
        Err(code) => return code,
    }
    SUCCESS
}

/// # Safety
/// `out` is valid for `length` bytes.
unsafe fn hand_out_text(answer: Result<String, Return>, out: *mut c_char, length: c_int) -> Return {
    let text = match answer {
        Ok(text) if text.len() < length as usize => text,
        Ok(_) => return INVALID_VALUE,
        Err(code) => return code,
    };
    // SAFETY: text and its NUL fit into `length` bytes.
    unsafe {
        out.cast::<u8>().copy_from_nonoverlapping(text.as_ptr(), text.len());
        out.add(text.len()).write(0);
    }
    SUCCESS
}

/// The name of a code, and its description.
fn words(code: Return) -> [&'static CStr; 2] {
    match code {
        SUCCESS => [c"CUDA_SUCCESS", c"no error"],
        OUT_OF_MEMORY => [c"CUDA_ERROR_OUT_OF_MEMORY", c"out of memory"],
        NO_DEVICE => [c"CUDA_ERROR_NO_DEVICE", c"no CUDA-capable device is detected"],
        CAPTURE_UNSUPPORTED => {
            [c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", c"operation not permitted when stream is capturing"]
        }
        INVALID_DEVICE => [c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"],
        _ => [c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"],
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorName(code: Return, out: *mut *const c_char) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(words(code)[0].as_ptr()), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGetErrorString(code: Return, out: *mut *const c_char) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(words(code)[1].as_ptr()), out) }
}
