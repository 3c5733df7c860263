//! Figures and outcomes of a setup.

use core::fmt;

use serde::{Deserialize, Serialize};

use gpu_tuned_core::{Bytes, grouped, three_digits};

gpu_tuned_core::sparse! {
    /// Measured figures of a setup.
    #[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
    pub struct Figures {
        /// Samples per second of whole steps, over the repeats.
        pub samples_per_s: Interval,
        /// Number of repeats.
        pub repeats: u64,
        /// Median milliseconds of a whole step, with overlapping parts.
        pub step_ms: f64,
        /// Parts of the step, each timed with a wait: their sum exceeds the step if the host runs ahead of the device.
        #[serde(flatten)]
        pub phases: Option<Phases>,
        /// Percent of the time in which a step waits for its batch, for batches prepared meanwhile.
        pub waiting_percent: Option<f64>,
        /// Bytes reserved by a GPU's pools after the steps; on a CPU, the peak of allocations. `None` if nothing counts.
        pub reserved_bytes: Option<Bytes>,
        /// Bytes in use after the forward pass.
        pub in_use_bytes: Option<Bytes>,
        /// Reserved bytes that a dry run predicted.
        pub predicted_bytes: Option<Bytes>,
        /// GPU utilization by all processes, in percent: the mean of the driver's samples.
        pub gpu_percent: Option<f64>,
        /// CPU time of the process in percent of all cores that it may use.
        pub cpu_percent: Option<f64>,
        /// The loss after the steps is finite; the weights are, where steps return no loss.
        pub is_finite: bool,
    }
}

/// Median and range of some repeats.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The median.
    pub median: f64,
    /// The minimum.
    pub least: f64,
    /// The maximum.
    pub most: f64,
}

/// Median times of the parts of a step, each timed with a wait.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Milliseconds of the forward pass.
    pub forward_ms: f64,
    /// Milliseconds of the backward pass.
    pub backward_ms: f64,
    /// Milliseconds of the optimizer.
    pub optimizer_ms: f64,
}

/// The outcome of a setup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Measured figures.
    Measured(Figures),
    /// Not run: by smaller batches or a dry run, it needs more memory than is available.
    DoesNotFit {
        /// Memory needed.
        needed_bytes: Bytes,
        /// Memory available.
        available_bytes: Bytes,
    },
    /// Not run: a step has fewer samples.
    TooLarge {
        /// Samples of a step on one rank.
        samples: u64,
    },
    /// Not run: the program does not describe how batches are prepared.
    Unfed,
    /// Out of memory.
    OutOfMemory {
        /// The error message.
        message: String,
    },
    /// The program panicked, or a step failed.
    Failed {
        /// The error message.
        message: String,
    },
    /// The process died.
    Died {
        /// Its status.
        how: String,
    },
}

impl Interval {
    /// Computes median and range; `None` without figures.
    pub fn from_figures(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
        Some(Self { median: low.midpoint(*high), least: *sorted.first()?, most: *sorted.last()? })
    }
}

impl Outcome {
    /// Returns the figures of a measured setup.
    pub const fn figures(&self) -> Option<&Figures> {
        if let Self::Measured(figures) = self { Some(figures) } else { None }
    }

    /// Returns whether the outcome depends on the moment, so that the setup is tried again.
    pub const fn is_transient(&self) -> bool {
        matches!(self, Self::DoesNotFit { .. } | Self::TooLarge { .. } | Self::Unfed)
    }
}

/// Formats the outcome in a few words.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(figures) => write!(f, "{} samples/s", three_digits(figures.samples_per_s.median)),
            Self::DoesNotFit { needed_bytes, available_bytes } => {
                write!(f, "does not fit: needs {needed_bytes} of {available_bytes}")
            }
            Self::TooLarge { samples } => write!(f, "not run: a step has {} samples", grouped(*samples)),
            Self::Unfed => f.write_str("not run: the program has no `host_batch` to prepare batches with"),
            Self::OutOfMemory { message } => write!(f, "out of memory: {}", first_line(message)),
            Self::Failed { message } => write!(f, "failed: {}", first_line(message)),
            Self::Died { how } => write!(f, "the process died: {how}"),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}

/// Marks the points on the Pareto frontier of memory and speed: no other point is as fast with less memory, or faster with
/// no more. Equal points are all marked.
pub fn frontier(points: &[(Bytes, f64)]) -> Vec<bool> {
    let beats = |a: &(Bytes, f64), b: &(Bytes, f64)| a.0 <= b.0 && a.1 >= b.1 && (a.0 < b.0 || a.1 > b.1);
    points.iter().map(|point| !points.iter().any(|other| beats(other, point))).collect()
}
