//! Memory and time of training steps.
//!
//! On a GPU, memory is measured by dry runs: allocations happen, kernels do not run. Time is measured by running steps.
//!
//! `Session::measure_if_asked` does all of it and writes `gpu-tuned.lock`, or times steps over a range of settings under
//! `cargo gpu-tuned bench`. The parts are public for programs that measure by themselves.

mod bench;
mod budget;
mod cpu;
#[cfg(feature = "cuda")]
mod cuda;
#[cfg(feature = "cuda")]
mod dry;
mod error;
mod first_step;
#[cfg(any(feature = "cuda", test))]
mod gpu;
mod host;
mod memory;
mod pass;
mod range;
#[cfg(feature = "counting-allocator")]
mod replay;
mod report;
mod subject;
mod target;
mod timed;
mod times;
mod training;

use burn::tensor::Device;
use gpu_tuned_core::Bytes;
use gpu_tuned_train::device::catching_on_thread;

#[cfg(feature = "cuda")]
pub use dry::dry;
pub use error::MeasureError;
pub use gpu_tuned_train::shape::{parameters, shape};
pub use memory::Memory;
use memory::counted;
#[cfg(feature = "counting-allocator")]
pub use memory::held;
pub use range::requested_precision;
#[cfg(feature = "counting-allocator")]
pub use replay::{Replayed, Trace, Traces};
pub use subject::Subject;
pub use target::{BuiltFor, MeasurementTarget};
pub use timed::timed;
pub use times::Times;
pub use training::Step;

use crate::requests::{archive_folder, is_measurement_requested};

/// Returns true if the command line runs the program to measure it, to bench it or to fill a kernel cache archive.
pub fn is_requested() -> bool {
    is_measurement_requested() || range::is_requested() || archive_folder().is_some()
}

/// Runs `measure` on a new thread, and turns a panic into an error.
///
/// `CubeCL` keeps memory pools for every thread, whose pages grow with the largest tensor and never shrink. A new thread
/// starts with the empty pools of a new process.
fn isolated<T: Send>(step: Step, measure: impl FnOnce() -> T + Send) -> Result<T, MeasureError> {
    catching_on_thread(measure).map_err(|message| step.failed(&message))
}

/// Releases memory that nothing uses.
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

/// Bytes reserved by the device's memory pools, once all queued work was launched; `None` on the CPU.
fn reserved(device: &Device) -> Option<Bytes> {
    device.memory_pool_usage().map(|usage| Bytes(usage.bytes_reserved))
}
