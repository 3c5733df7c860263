//! Statistics of sets and series of values.

#[cfg(test)]
mod tests;

use serde::Serialize;

/// Returns the mean, or `None` without values.
pub(crate) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// Returns the median of the finite values, or `None` without any.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

/// Computes mean, minimum, maximum and standard deviation of a figure without keeping its values.
///
/// A value is weighted by the time before it, so that varying intervals count by their length. The first value has no time
/// before it and gets the weight of the second.
#[derive(Clone, Debug, Default)]
pub struct Series {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    /// Sum of the weights, and of their squares.
    weight: f64,
    weight_squares: f64,
    /// Weighted sum of squared deviations from the mean.
    squares: f64,
    /// A value whose weight is not determined yet.
    pending: Option<f64>,
}

/// Statistics of a [`Series`], in the unit of its figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Number of values.
    pub count: u64,
    /// Mean over time.
    pub mean: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// Standard deviation: the unbiased estimate, with `n - 1` for equal intervals; `None` for a single value.
    pub standard_deviation: Option<f64>,
}

impl Series {
    /// Adds a value with the seconds since the one before; `None` for the first.
    pub fn observe(&mut self, value: f64, seconds: Option<f64>) {
        if !value.is_finite() {
            return;
        }
        let seconds = seconds.map(|seconds| if seconds.is_finite() { seconds.max(0.0) } else { 0.0 });
        if let Some(pending) = self.pending.take() {
            let weight = seconds.unwrap_or_else(|| self.usual_weight());
            self.add(pending, weight);
        }
        match seconds {
            Some(seconds) => self.add(value, seconds),
            None => self.pending = Some(value),
        }
    }

    /// Returns the statistics, or `None` without values.
    pub fn stats(&self) -> Option<Stats> {
        let mut whole = self.clone();
        if let Some(pending) = whole.pending.take() {
            whole.add(pending, self.usual_weight());
        }
        // Rounding can leave West's sum of squares slightly below zero.
        let degrees = whole.weight - whole.weight_squares / whole.weight;
        let variance = (whole.count > 1 && degrees > 0.0).then(|| (whole.squares / degrees).max(0.0));
        (whole.count > 0).then_some(Stats {
            count: whole.count,
            mean: whole.mean,
            min: whole.min,
            max: whole.max,
            standard_deviation: variance.map(f64::sqrt),
        })
    }

    /// West's update of a weighted mean and sum of squares.
    fn add(&mut self, value: f64, weight: f64) {
        (self.min, self.max) =
            if self.count == 0 { (value, value) } else { (self.min.min(value), self.max.max(value)) };
        self.count += 1;
        self.weight += weight;
        self.weight_squares += weight * weight;
        if self.weight > 0.0 {
            let distance = value - self.mean;
            self.mean += distance * weight / self.weight;
            self.squares += weight * distance * (value - self.mean);
        } else {
            // Without any weight, the last value is taken.
            self.mean = value;
        }
    }

    fn usual_weight(&self) -> f64 {
        if self.count > 0 && self.weight > 0.0 { self.weight / self.count as f64 } else { 1.0 }
    }
}
