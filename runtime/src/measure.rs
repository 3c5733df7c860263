//! Memory and time of training steps.
//!
//! On a GPU, memory is measured by dry runs: allocations happen, kernels do not run. Time is measured by running steps.
//!
//! [`Session::measure_if_asked`](crate::Session::measure_if_asked) does all of it and writes `gpu-tuned.lock`, or times steps
//! over a range of settings under `cargo gpu-tuned bench`. The parts are public for programs that measure by themselves.

#[cfg(feature = "cuda")]
#[doc(inline)]
pub use gpu_tuned_measure::measure::dry;
#[doc(inline)]
pub use gpu_tuned_measure::measure::{MeasureError, Memory, Step, Subject, Times, parameters, shape, timed};
#[cfg(feature = "counting-allocator")]
#[doc(inline)]
pub use gpu_tuned_measure::measure::{Replayed, Trace, Traces, held};
