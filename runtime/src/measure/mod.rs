//! Measuring what training steps take: memory without running them, where the device is a GPU, and time by running them.
//!
//! [`Session::measure_if_asked`](crate::Session::measure_if_asked) does all of it and writes `gpu-tuned.lock`, or times
//! steps over a range of settings, as `cargo gpu-tuned bench` asks it to. The parts are here for programs that measure in
//! their own way.

mod bench;
mod case;
#[cfg(any(feature = "cuda", test))]
mod counted;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod dry;
mod error;
#[cfg(any(feature = "cuda", test))]
mod gpu;
mod host;
mod memory;
mod pass;
mod patience;
mod range;
#[cfg(feature = "counting-allocator")]
mod replay;
mod report;
mod session;
mod shape;
mod subject;
mod timed;
mod trained;
mod training;
mod versions;

use std::thread;

use burn::tensor::Device;
use gpu_tuned_core::Bytes;

pub(crate) use case::Case;
#[cfg(feature = "cuda")]
pub use dry::dry;
pub use error::MeasureError;
pub use memory::Memory;
#[cfg(feature = "counting-allocator")]
pub use memory::held;
#[cfg(feature = "counting-allocator")]
pub use replay::{Replayed, Trace, Traces, missed};
pub use shape::{parameters, shape};
pub use subject::Subject;
pub use timed::{Times, timed};
pub use training::Step;

pub(crate) use range::precision as asked_precision;
#[cfg(feature = "warm")]
pub(crate) use session::{package, slug};
#[cfg(feature = "warm")]
pub(crate) use versions::burn as burn_release;

use crate::burn::catching;

/// Runs `measure` on a thread of its own, and turns a panic of it into an error.
///
/// `CubeCL` keeps memory pools for every thread, whose pages grow with the largest tensor and never shrink: on a new thread
/// a measurement finds what a new process would.
fn isolated<T: Send>(step: Step, measure: impl FnOnce() -> T + Send) -> Result<T, MeasureError> {
    let outcome = thread::scope(|scope| scope.spawn(|| catching(measure)).join());
    match outcome {
        Ok(outcome) => outcome.map_err(|message| step.failed(&message)),
        Err(_) => Err(step.failed(&"its thread ended")),
    }
}

/// Gives back what nothing uses any more.
fn release(device: &Device, step: Step) -> Result<(), MeasureError> {
    device.sync().map_err(|error| step.failed(&error))?;
    device.memory_cleanup();
    Ok(())
}

impl Step {
    fn failed(self, message: &dyn std::fmt::Display) -> MeasureError {
        MeasureError::Step { step: self, message: message.to_string() }
    }
}

/// What the device's memory pools hold, once everything queued has been launched; `None` on the CPU.
fn reserved(device: &Device) -> Option<Bytes> {
    device.memory_pool_usage().map(|usage| Bytes(usage.bytes_reserved))
}
