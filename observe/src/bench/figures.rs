use core::fmt;

use serde::{Deserialize, Serialize};

use gpu_tuned_core::{Bytes, grouped, three_digits};

/// What was measured of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Samples per second of whole steps, over the repeats.
    pub samples_per_s: Interval,
    /// How often steps were timed.
    pub repeats: u64,
    /// Milliseconds of a whole step, a median: what overlaps counts once.
    pub step_ms: f64,
    /// Its parts, each waited for by itself: they add up to more than the step where the host runs ahead of the device.
    #[serde(default, flatten, skip_serializing_if = "Option::is_none")]
    pub phases: Option<Phases>,
    /// The part of the time in which a step waited for its batch, in percent, where it was prepared meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_percent: Option<f64>,
    /// What the memory pools of a GPU held after the steps; on a CPU, what was allocated at most. `None` where nothing counts it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved_bytes: Option<Bytes>,
    /// In use after the forward pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_use_bytes: Option<Bytes>,
    /// What a dry run had said that the pools would hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted_bytes: Option<Bytes>,
    /// Part of the time in which the GPU ran a kernel, of any process, in percent: a mean of what the driver said meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_percent: Option<f64>,
    /// The process's part of the time of all the cores that it may use, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_percent: Option<f64>,
    /// Whether the loss after the steps is a finite number; where steps keep it to themselves, whether the weights are.
    pub is_finite: bool,
}

/// The median of some repeats, and the range of them.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The middle one.
    pub median: f64,
    /// The smallest.
    pub least: f64,
    /// The largest.
    pub most: f64,
}

/// The parts of a step, each waited for by itself; medians.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phases {
    /// Milliseconds of the forward pass.
    pub forward_ms: f64,
    /// Milliseconds of the backward pass.
    pub backward_ms: f64,
    /// Milliseconds of the optimizer.
    pub optimizer_ms: f64,
}

/// What came of a setup.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It ran.
    Measured(Figures),
    /// It was not run, as it would have taken more than there was: known from smaller batches or a dry run.
    DoesNotFit {
        /// What it would have reserved.
        needed_bytes: Bytes,
        /// What there was for it.
        available_bytes: Bytes,
    },
    /// It was not run, as a step has fewer samples.
    TooLarge {
        /// Of a step, on one rank.
        samples: u64,
    },
    /// It was not run, as the program does not say how batches are prepared.
    Unfed,
    /// Memory ran out.
    OutOfMemory {
        /// What was said.
        message: String,
    },
    /// The program panicked, or a step could not be taken.
    Failed {
        /// What was said.
        message: String,
    },
    /// The process died.
    Died {
        /// Its status.
        how: String,
    },
}

impl Interval {
    /// Of some figures; `None` of nothing.
    pub fn of(figures: &[f64]) -> Option<Self> {
        let mut sorted = figures.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, high) = (sorted.get(sorted.len().checked_sub(1)? / 2)?, sorted.get(sorted.len() / 2)?);
        Some(Self { median: low.midpoint(*high), least: *sorted.first()?, most: *sorted.last()? })
    }
}

impl Outcome {
    /// What was measured, if anything was.
    pub const fn figures(&self) -> Option<&Figures> {
        if let Self::Measured(figures) = self { Some(figures) } else { None }
    }

    /// Whether it depends on the moment alone, so that it is found out anew.
    pub const fn is_of_the_moment(&self) -> bool {
        matches!(self, Self::DoesNotFit { .. } | Self::TooLarge { .. } | Self::Unfed)
    }
}

/// What came of it, but for figures, in a few words.
impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Measured(figures) => write!(f, "{} samples/s", three_digits(figures.samples_per_s.median)),
            Self::DoesNotFit { needed_bytes, available_bytes } => {
                write!(f, "does not fit: it would take {needed_bytes} of {available_bytes}")
            }
            Self::TooLarge { samples } => write!(f, "not run: a step has {} samples", grouped(*samples)),
            Self::Unfed => f.write_str("not run: the program does not say how batches are prepared (`host_batch`)"),
            Self::OutOfMemory { message } => write!(f, "out of memory: {}", first_line(message)),
            Self::Failed { message } => write!(f, "failed: {}", first_line(message)),
            Self::Died { how } => write!(f, "the process died: {how}"),
        }
    }
}

fn first_line(text: &str) -> &str {
    text.lines().next().unwrap_or_default()
}
