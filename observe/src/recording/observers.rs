//! Observers of a recording.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};

use super::Record;

/// Receives the records of a program in their order, within about a second.
///
/// A thread of the recorder calls it, and at the end the thread that drops the last recorder. The training thread does not.
pub trait Observer: Send {
    /// Receives a record.
    fn observe(&mut self, record: &Record);

    /// Writes buffered output; called after the records of about a second.
    fn flush(&mut self) {}
}

/// Observers that several sessions may share.
#[derive(Clone, Default)]
pub struct Observers(Vec<Arc<Mutex<dyn Observer>>>);

impl Observers {
    /// Adds an observer.
    pub fn push(&mut self, observer: impl Observer + 'static) {
        self.0.push(Arc::new(Mutex::new(observer)));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Calls all observers. An observer that panics is removed; training continues.
    pub(super) fn each(&mut self, mut call: impl FnMut(&mut (dyn Observer + 'static))) {
        self.0.retain(|observer| {
            let mut observer = observer.lock().unwrap_or_else(PoisonError::into_inner);
            let called = catch_unwind(AssertUnwindSafe(|| call(&mut *observer)));
            if called.is_err() {
                tracing::warn!("an observer of the recording panicked: it is not called again");
            }
            called.is_ok()
        });
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} observers", self.0.len())
    }
}
