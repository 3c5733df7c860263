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

fn elapsed_ms(begin: Handle, end: Handle) -> Result<f32, Return> {
    let numbered = numbered();
    let at = |event: Handle| numbered.events.get(&event.addr()).copied().ok_or(INVALID_VALUE);
    Ok(clock::milliseconds(at(begin)?, at(end)?))
}

answers! {
    cuStreamCreate(Handle, _flags: c_uint) = Ok(handle(next()));
    cuStreamCreateWithPriority(Handle, _flags: c_uint, _priority: i32) = Ok(handle(next()));
    cuEventCreate(Handle, _flags: c_uint) = Ok(handle(next()));
    // The name before version 12.8; cudarc chooses one of the two.
    cuEventElapsedTime(f32, begin: Handle, end: Handle) = elapsed_ms(begin, end);
    cuEventElapsedTime_v2(f32, begin: Handle, end: Handle) = elapsed_ms(begin, end);
}

nothing! {
    cuStreamDestroy_v2(Handle);
    cuStreamWaitEvent(Handle, Handle, c_uint);
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
