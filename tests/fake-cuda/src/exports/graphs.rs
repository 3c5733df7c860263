//! CUDA graphs: a stream that captures records launches, and a graph repeats their number.

use std::ffi::{c_int, c_uint, c_ulonglong};
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Handle, INVALID_VALUE, Return, SUCCESS, hand_out, handle};
use crate::clock;

/// Launches recorded since a capture began, plus 1; 0 outside of a capture.
static CAPTURED: AtomicU64 = AtomicU64::new(0);

/// Records a launch. Returns false outside of a capture.
pub(super) fn record() -> bool {
    let more = |captured: u64| (captured > 0).then_some(captured + 1);
    CAPTURED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
}

/// Returns true during a capture.
pub(super) fn is_capturing() -> bool {
    CAPTURED.load(Ordering::Relaxed) > 0
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamBeginCapture_v2(_stream: Handle, _mode: c_int) -> Return {
    CAPTURED.store(1, Ordering::Relaxed);
    SUCCESS
}

/// A graph's handle is the number of its launches, plus 1.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuStreamEndCapture(_stream: Handle, out: *mut Handle) -> Return {
    let captured = CAPTURED.swap(0, Ordering::Relaxed);
    // SAFETY: by the driver's contract.
    unsafe { hand_out(usize::try_from(captured).map(handle).map_err(|_| INVALID_VALUE), out) }
}

answers! {
    cuGraphInstantiateWithFlags(Handle, graph: Handle, _flags: c_ulonglong) = Ok(graph);
}

nothing! {
    cuGraphUpload(Handle, Handle);
    cuGraphExecDestroy(Handle);
    cuGraphDestroy(Handle);
}

#[unsafe(no_mangle)]
extern "C" fn cuGraphLaunch(graph: Handle, _stream: Handle) -> Return {
    (1..graph.addr()).for_each(|_| clock::launch(false));
    SUCCESS
}

/// The number of nodes is 0: their types are asked for, and there are only launches.
#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphGetNodes(_graph: Handle, _nodes: *mut Handle, number: *mut usize) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(0), number) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn cuGraphNodeGetType(_node: Handle, kind: *mut c_uint) -> Return {
    // SAFETY: by the driver's contract.
    unsafe { hand_out(Ok(0), kind) }
}
