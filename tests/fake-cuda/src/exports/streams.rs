//! Streams without work to wait for, and events, which record the number of earlier launches.

use std::collections::HashMap;
use std::ffi::c_uint;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::{CAPTURE_UNSUPPORTED, Handle, INVALID_VALUE, Return, SUCCESS, graphs, hand_out, handle};
use crate::clock;

#[derive(Default)]
struct Numbered {
    last: usize,
    /// Clock values of recorded events.
    events: HashMap<usize, u64>,
}

fn numbered() -> MutexGuard<'static, Numbered> {
    static NUMBERED: LazyLock<Mutex<Numbered>> = LazyLock::new(Mutex::default);
    NUMBERED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn next() -> usize {
    let mut numbered = numbered();
    numbered.last += 1;
    numbered.last
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreate(out: *mut Handle, _flags: c_uint) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(handle(next())), out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamCreateWithPriority(out: *mut Handle, flags: c_uint, _priority: i32) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { cuStreamCreate(out, flags) }
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(_stream: Handle) -> Return {
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamSynchronize(_stream: Handle) -> Return {
    if graphs::is_capturing() {
        return CAPTURE_UNSUPPORTED;
    }
    clock::wait();
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(_stream: Handle, _event: Handle, _flags: c_uint) -> Return {
    SUCCESS
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventCreate(out: *mut Handle, _flags: c_uint) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(handle(next())), out) }
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: Handle) -> Return {
    numbered().events.remove(&event.addr());
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: Handle, _stream: Handle) -> Return {
    numbered().events.insert(event.addr(), clock::now());
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuEventSynchronize(_event: Handle) -> Return {
    clock::wait();
    SUCCESS
}

/// CUDA's name of `cuEventElapsedTime` before version 12.8; cudarc chooses one of the two.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime(out: *mut f32, begin: Handle, end: Handle) -> Return {
    let numbered = numbered();
    let at = |event: Handle| numbered.events.get(&event.addr()).copied().ok_or(INVALID_VALUE);
    let took = at(begin).and_then(|begin| Ok(clock::milliseconds(begin, at(end)?)));
    // SAFETY: by the driver's contract.
    unsafe { hand_out(took, out) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuEventElapsedTime_v2(out: *mut f32, begin: Handle, end: Handle) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { cuEventElapsedTime(out, begin, end) }
}
