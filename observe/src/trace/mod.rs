//! Traces of training steps that open in Perfetto (<https://ui.perfetto.dev>) and in Chrome's own viewer.
//!
//! There are two, both in the trace-event format (JSON):
//!
//! * **From a recording**, with [`of`]: every step with what it was made of, and figures of GPUs, the host and the program
//!   as counters. A recording has sums of each step, so what a step did is shown one after the other; what its
//!   micro-batches did in turn is not.
//! * **Live**, with the environment variable `GPU_TUNED_TRACE=FILE`: a session with feature `burn` notes when each phase of
//!   each micro-batch begins and ends, and when each of the loader's workers prepares a batch, in steps 11 to 20 or those
//!   that `GPU_TUNED_TRACE_STEPS=FIRST..LAST` names, and writes the file after the last of them.
//!
//! The times are those of the host: a device works beside it, and what it is late with shows as `drain`.
//!
//! ```
//! use gpu_tuned_observe::recording::{Record, StepRecord};
//! use gpu_tuned_observe::trace::{self, Steps};
//!
//! let mut step = StepRecord::new(100.0, 1);
//! step.seconds = 0.5;
//! step.drain_s = Some(0.4);
//! let trace = trace::of(&[Record::Step(Box::new(step))], Steps::ALL);
//! let json = serde_json::to_string(&trace)?;
//! assert!(json.contains(r#""name":"drain""#));
//! # Ok::<(), serde_json::Error>(())
//! ```

mod event;
mod live;
mod recorded;
mod steps;

pub use event::{Trace, Track};
pub use live::Tracer;
pub use recorded::of;
pub use steps::{Steps, StepsError};

/// The environment variable that names the file of a live trace.
pub const VARIABLE: &str = "GPU_TUNED_TRACE";
/// The environment variable that names the steps of a live trace.
pub const STEPS_VARIABLE: &str = "GPU_TUNED_TRACE_STEPS";
