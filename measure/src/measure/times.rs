//! Times of steps and of their parts.

use serde::{Deserialize, Serialize};

/// Shortest time of a part.
const LEAST_MS: f64 = 1e-3;

/// Times of a micro-batch's steps.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Times {
    /// Milliseconds of the forward and backward pass of a micro-batch.
    pub micro_step_ms: f64,
    /// Milliseconds of the optimizer.
    pub optimizer_ms: f64,
    /// Half of the range of the repeats of a step, as a share of their median.
    pub spread: f64,
}

/// Seconds of a step and of its parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seconds {
    pub(super) step: f64,
    pub(super) micro_step: f64,
    pub(super) optimizer: f64,
}

impl Seconds {
    /// The parts, neither of them negative, that best explain a step and one with `many` micro-batches.
    pub(super) fn from_steps(step: f64, longer: f64, many: usize) -> Self {
        let many = many as f64;
        let micro_step = ((longer - step) / (many - 1.0)).max(0.0);
        if micro_step <= step {
            return Self { step, micro_step, optimizer: step - micro_step };
        }
        // Noise hides an optimizer that takes next to nothing: the least squares without one.
        Self { step, micro_step: (step + many * longer) / (1.0 + many * many), optimizer: 0.0 }
    }
}

impl Times {
    pub(super) fn from_repeats(all: &[Seconds]) -> Self {
        let sorted = |of: fn(&Seconds) -> f64| {
            let mut values: Vec<f64> = all.iter().map(of).collect();
            let middle = median(&mut values);
            (middle, values)
        };
        let ms = |of| (sorted(of).0 * 1e3).max(LEAST_MS);
        let (step, steps) = sorted(|seconds| seconds.step);
        Self {
            micro_step_ms: ms(|seconds| seconds.micro_step),
            optimizer_ms: ms(|seconds| seconds.optimizer),
            spread: (steps[steps.len() - 1] - steps[0]) / 2.0 / step,
        }
    }
}

/// Median of at least one value. Sorts the values.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    if values.len().is_multiple_of(2) { values[middle - 1].midpoint(values[middle]) } else { values[middle] }
}
