//! Traces of training steps that open in Perfetto (<https://ui.perfetto.dev>) and in Chrome's own viewer.
//!
//! Both kinds use the trace-event format (JSON):
//!
//! * **From a recording**, with [`from_records`]: every step with its phases, and figures of GPUs, host and program as
//!   counters. A recording has the sums of each phase, so the phases are shown one after the other, without micro-batches.
//! * **Live**, with the environment variable `GPU_TUNED_TRACE=FILE`: a session with feature `burn` records begin and end of
//!   each phase of each micro-batch, and of each batch of the loader's workers. It does so in steps 11 to 20, or in those of
//!   `GPU_TUNED_TRACE_STEPS=FIRST..LAST`, and writes the file after the last of them.
//!
//! Times are of the host's clock. The device works beside the host: the wait for it shows as `drain`.
//!
//! ```
//! use gpu_tuned_observe::recording::{Record, StepRecord};
//! use gpu_tuned_observe::trace::{self, Steps};
//!
//! let mut step = StepRecord::new(100.0, 1);
//! step.seconds = 0.5;
//! step.drain_s = Some(0.4);
//! let trace = trace::from_records(&[Record::Step(Box::new(step))], Steps::ALL);
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
pub use recorded::from_records;
pub use steps::{Steps, StepsError};

/// Environment variable with the file of a live trace.
pub const VARIABLE: &str = "GPU_TUNED_TRACE";
/// Environment variable with the steps of a live trace.
pub const STEPS_VARIABLE: &str = "GPU_TUNED_TRACE_STEPS";
