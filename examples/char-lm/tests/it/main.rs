//! Tests of the example in one program.

mod model;
mod resume;
mod text;
mod windows;

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Lock to hold while random numbers are drawn: a device has one sequence for the process, and tests run in parallel.
fn drawing() -> MutexGuard<'static, ()> {
    static DRAWING: Mutex<()> = Mutex::new(());
    DRAWING.lock().unwrap_or_else(PoisonError::into_inner)
}
