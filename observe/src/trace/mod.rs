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

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

pub use event::{Trace, Track};
pub use live::Tracer;
pub use recorded::from_records;

/// Environment variable with the file of a live trace.
pub const VARIABLE: &str = "GPU_TUNED_TRACE";
/// Environment variable with the steps of a live trace.
pub const STEPS_VARIABLE: &str = "GPU_TUNED_TRACE_STEPS";

/// A range of steps with both ends: `11..20`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Steps {
    /// The first step, from 1.
    pub first: u64,
    /// The last step.
    pub last: u64,
}

/// Text that is no range of steps.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("`{text}` names no steps: expected FIRST..LAST, such as 11..20, or one step; the first step is 1")]
pub struct StepsError {
    /// The text.
    pub text: String,
}

/// Ten steps after kernels were compiled and autotuned.
impl Default for Steps {
    fn default() -> Self {
        Self { first: 11, last: 20 }
    }
}

impl Steps {
    /// All steps.
    pub const ALL: Self = Self { first: 1, last: u64::MAX };

    /// Returns whether the range has a step.
    pub const fn has(self, step: u64) -> bool {
        self.first <= step && step <= self.last
    }
}

impl FromStr for Steps {
    type Err = StepsError;

    fn from_str(text: &str) -> Result<Self, StepsError> {
        let number = |text: &str| text.trim().parse().ok().filter(|step| *step > 0);
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let steps = number(first).zip(number(last.strip_prefix('=').unwrap_or(last)));
        let steps = steps.filter(|(first, last)| first <= last);
        let (first, last) = steps.ok_or_else(|| StepsError { text: text.to_owned() })?;
        Ok(Self { first, last })
    }
}

impl fmt::Display for Steps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}..{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::Steps;

    #[test]
    fn steps_are_read() {
        for (text, first, last) in [("11..20", 11, 20), ("3", 3, 3), (" 1 .. 2 ", 1, 2), ("4..=6", 4, 6)] {
            assert_eq!(text.parse(), Ok(Steps { first, last }), "{text}");
        }
        for text in ["", "0", "0..3", "5..4", "..3", "3..", "a..b", "1...3"] {
            assert!(text.parse::<Steps>().is_err(), "{text}");
        }
    }
}
