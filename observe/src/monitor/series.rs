//! One figure over time.

use serde::Serialize;

/// Gathers a figure without keeping its values: what it was on average, at least, at most, and how far it went up and down.
///
/// Each value stands for the time before it, so that looks at varying intervals count by their length. The first value has
/// no time before it and is given that of the second.
#[derive(Clone, Debug, Default)]
pub struct Series {
    count: u64,
    min: f64,
    max: f64,
    mean: f64,
    /// Sum of the weights, and of their squares.
    weight: f64,
    weight_squares: f64,
    /// Weighted sum of squared distances from the mean.
    squares: f64,
    /// A value whose weight is not known yet.
    pending: Option<f64>,
}

/// What a [`Series`] amounts to, in the unit of its figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Stats {
    /// Values.
    pub count: u64,
    /// Average over time.
    pub mean: f64,
    /// The smallest value.
    pub min: f64,
    /// The largest value.
    pub max: f64,
    /// How far the values are from the mean: the unbiased estimate, which for equal intervals is that of `n - 1`. There is
    /// none of a single value.
    pub standard_deviation: Option<f64>,
}

impl Series {
    /// Adds a value that stands for so many seconds; `None` where nothing was seen before it.
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

    /// What it amounts to; `None` without values.
    pub fn stats(&self) -> Option<Stats> {
        let mut whole = self.clone();
        if let Some(pending) = whole.pending.take() {
            whole.add(pending, self.usual_weight());
        }
        // West's sum is one of squares; rounding can leave it a little below zero.
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
            // No time has passed at all: the last value is as good as any.
            self.mean = value;
        }
    }

    fn usual_weight(&self) -> f64 {
        if self.count > 0 && self.weight > 0.0 { self.weight / self.count as f64 } else { 1.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::{Series, Stats};

    /// Values that stand for one second each, but for the first one, of which that is not known.
    fn even(values: impl IntoIterator<Item = f64>) -> Stats {
        let mut series = Series::default();
        for (place, value) in values.into_iter().enumerate() {
            series.observe(value, (place > 0).then_some(1.0));
        }
        series.stats().expect("there are values")
    }

    fn near(got: Option<f64>, certified: f64, digits: i32) {
        let got = got.expect("there is one");
        assert!((got / certified - 1.0).abs() < 10f64.powi(-digits), "{got} for {certified}");
    }

    /// NIST Statistical Reference Datasets, univariate summary statistics: certified means and standard deviations.
    #[test]
    fn certified_figures_of_nist_are_met() {
        let accuracy = |base: f64| {
            let swing = (0..1000).map(move |place| if place % 2 == 0 { base + 0.1 } else { base + 0.3 });
            [base + 0.2].into_iter().chain(swing)
        };
        let first = even([10_000_001.0, 10_000_003.0, 10_000_002.0]);
        assert_eq!((first.mean, first.standard_deviation), (10_000_002.0, Some(1.0)));
        for (base, digits) in [(1.0, 12), (1_000_000.0, 8), (10_000_000.0, 7)] {
            let stats = even(accuracy(base));
            near(Some(stats.mean), base + 0.2, 14);
            near(stats.standard_deviation, 0.1, digits);
        }
        let lottery = even([162.0, 671.0, 933.0, 414.0, 788.0, 730.0, 817.0, 33.0, 536.0, 875.0]);
        // Python's `statistics`: fmean and stdev of the same ten.
        near(Some(lottery.mean), 595.9, 14);
        near(lottery.standard_deviation, 306.003_794_457_229_3, 12);
    }

    /// `numpy.average(x, weights=w)` and `numpy.cov(x, aweights=w)`.
    #[test]
    fn values_count_by_the_time_that_they_stand_for() {
        let mut series = Series::default();
        for (value, seconds) in [(10.0, Some(2.0)), (40.0, Some(0.5)), (25.0, Some(1.5)), (90.0, Some(6.0))] {
            series.observe(value, seconds);
        }
        let stats = series.stats().expect("there are values");
        near(Some(stats.mean), WEIGHTED_MEAN, 14);
        near(stats.standard_deviation, WEIGHTED_DEVIATION, 13);
        assert_eq!((stats.count, stats.min, stats.max), (4, 10.0, 90.0));
    }

    const WEIGHTED_MEAN: f64 = 61.75;
    const WEIGHTED_DEVIATION: f64 = 46.451_236_703_712_72;

    #[test]
    fn the_first_value_is_given_the_time_of_the_second() {
        let mut series = Series::default();
        series.observe(10.0, None);
        assert_eq!(series.stats().map(|stats| (stats.mean, stats.standard_deviation)), Some((10.0, None)));
        series.observe(20.0, Some(4.0));
        assert_eq!(series.stats().map(|stats| stats.mean), Some(15.0));
    }

    #[test]
    fn nothing_gives_nothing_and_what_is_no_number_is_left_out() {
        let mut series = Series::default();
        series.observe(f64::NAN, Some(1.0));
        series.observe(f64::INFINITY, None);
        assert_eq!(series.stats(), None);
        series.observe(3.0, Some(f64::NAN));
        assert_eq!(series.stats().map(|stats| stats.mean), Some(3.0));
    }
}
