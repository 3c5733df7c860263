//! A second CUDA stream of a device, beside the one of CubeCL's kernels.

use std::ffi::c_void;

use cudarc::driver::DriverError;
use cudarc::driver::result::{event, stream};
use cudarc::driver::sys::{CUevent, CUevent_flags, CUevent_wait_flags, CUstream};

/// A stream of the highest priority, so that what it runs need not wait until a long kernel has left. It lasts as long as the
/// process.
#[derive(Debug)]
pub(super) struct SecondStream {
    stream: CUstream,
    event: CUevent,
}

// SAFETY: streams and events of CUDA have no ties to a thread, only to a context, which is current where they are used.
unsafe impl Send for SecondStream {}

impl SecondStream {
    /// Makes a stream in the context that is current.
    pub(super) fn new() -> Result<Self, DriverError> {
        let (_, greatest) = stream::get_priority_range()?;
        Ok(Self {
            stream: stream::create_with_priority(stream::StreamKind::NonBlocking, greatest)?,
            event: event::create(CUevent_flags::CU_EVENT_DISABLE_TIMING)?,
        })
    }

    /// The handle for a library.
    pub(super) fn handle(&self) -> *mut c_void {
        self.stream.cast()
    }

    /// Orders what is put on this stream from now on behind what is on `first`.
    ///
    /// # Safety
    ///
    /// `first` is a `CUstream` of the context that is current, in which this stream was made.
    pub(super) unsafe fn follow(&self, first: *mut c_void) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { self.order(first.cast(), self.stream) }
    }

    /// Orders what is put on `first` from now on behind what is on this stream.
    ///
    /// # Safety
    ///
    /// As [`follow`](Self::follow).
    pub(super) unsafe fn precede(&self, first: *mut c_void) -> Result<(), DriverError> {
        // SAFETY: the caller's promise.
        unsafe { self.order(self.stream, first.cast()) }
    }

    /// Lets `later` wait for what is on `earlier` now. The event may be recorded again at once: a wait is for the last record
    /// before it.
    unsafe fn order(&self, earlier: CUstream, later: CUstream) -> Result<(), DriverError> {
        // SAFETY: streams and event live, and belong to the context that is current.
        unsafe {
            event::record(self.event, earlier)?;
            stream::wait_event(later, self.event, CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT)
        }
    }
}
