//! The rule that decides what growth is a leak.

/// Points that a judgement needs: each half of the last three quarters then has 7, and 6 are the fewest whose slope can be
/// positive at 99% confidence.
const MIN_POINTS: usize = 20;
/// Points that are compared: every pair of points has a slope, and more points hardly narrow the bounds.
const MAX_POINTS: usize = 240;
/// The slope of the later half over that of the earlier one, at least: growth that fades is a pool that fills up.
const MIN_LASTING: f64 = 0.4;
/// Bytes that were added during the judged points, at least: 1 MiB. Less may be the bookkeeping of an allocator, or a
/// log that keeps a number of each step.
const MIN_GROWTH: f64 = (1 << 20) as f64;
/// Length of a long run, in steps or in seconds (11.6 days).
const LONG_RUN: f64 = 1e6;
/// Bytes that a long run adds, at least: 1 GiB, a part that matters of the memory of a small GPU.
const MIN_GROWTH_OF_LONG_RUN: f64 = (1 << 30) as f64;
/// Standard deviations of 99% confidence, both sides.
const DEVIATIONS: f64 = 2.576;

/// Growth that goes on, per step or per second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Growth {
    /// Bytes per unit, with the bounds of 99% confidence.
    pub slope: Slope,
    /// The first and the last judged point: unit and bytes.
    pub first: (f64, f64),
    pub last: (f64, f64),
}

impl Growth {
    /// Measures the growth of a series in ascending order; `None` if it is not significant or fades.
    ///
    /// The first quarter is left out: pools and the optimizer's state grow there. Of the rest, the slope's lower bound at
    /// 99% confidence has to be positive, in each half as well, and the later half has to keep at least 0.4 of the slope of
    /// the earlier one.
    pub(crate) fn measure(points: &[(f64, f64)]) -> Option<Self> {
        let settled = points.get(points.len() / 4..).filter(|_| points.len() >= MIN_POINTS)?;
        let (first, last) = (*settled.first()?, *settled.last()?);
        let compared: Vec<_> = settled.iter().copied().step_by(settled.len().div_ceil(MAX_POINTS)).collect();
        let (early, late) = compared.split_at(compared.len() / 2);
        let (whole, early, late) = (slope(&compared)?, slope(early)?, slope(late)?);
        let is_significant = [whole, early, late].iter().all(|slope| slope.at_least > 0.0);
        (is_significant && late.value >= MIN_LASTING * early.value).then_some(Self { slope: whole, first, last })
    }

    /// Measures the growth of a series, and returns it if it is a leak: if it is material as well.
    ///
    /// Growth is material if it added 1 MiB and would add 1 GiB in a long run, or if it would fill the memory that is left
    /// in a long run. A long run has a million steps, or a million seconds.
    pub(crate) fn leak(points: &[(f64, f64)], bytes_left: Option<f64>) -> Option<Self> {
        let growth = Self::measure(points)?;
        let in_long_run = growth.slope.value * LONG_RUN;
        let is_large = growth.added() >= MIN_GROWTH && in_long_run >= MIN_GROWTH_OF_LONG_RUN;
        (is_large || bytes_left.is_some_and(|left| in_long_run >= left)).then_some(growth)
    }

    /// Bytes that were added from the first judged point to the last, along the slope.
    pub(crate) fn added(&self) -> f64 {
        self.slope.value * (self.last.0 - self.first.0)
    }
}

/// A slope with its bounds at 99% confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    pub value: f64,
    pub at_least: f64,
    pub at_most: f64,
}

/// Returns the slope of Theil and Sen: the median over all pairs of points, which come in ascending order; `None` without a pair.
fn slope(points: &[(f64, f64)]) -> Option<Slope> {
    let pairs = points.iter().enumerate().flat_map(|(index, a)| points[index + 1..].iter().map(move |b| (a, b)));
    let slopes = pairs.filter(|(a, b)| b.0 > a.0).map(|(a, b)| (b.1 - a.1) / (b.0 - a.0));
    let mut slopes: Vec<f64> = slopes.collect();
    slopes.sort_unstable_by(f64::total_cmp);
    let (count, points) = (slopes.len(), points.len() as f64);
    let last = count.checked_sub(1)?;
    // The variance of Kendall's statistic. Ties make the bounds wider than necessary.
    let deviation = (points * (points - 1.0) * (2.0 * points + 5.0) / 18.0).sqrt();
    let reach = DEVIATIONS * deviation;
    let below = ((count as f64 - reach) / 2.0).floor();
    let above = f64::midpoint(count as f64, reach).ceil();
    let bound = |index: f64, beyond: f64| {
        if index < 0.0 || index > last as f64 { beyond } else { slopes[index as usize] }
    };
    let value = f64::midpoint(slopes[last / 2], slopes[count / 2]);
    Some(Slope { value, at_least: bound(below, f64::NEG_INFINITY), at_most: bound(above, f64::INFINITY) })
}

#[cfg(test)]
mod tests {
    use super::{Slope, slope};

    /// Expected values from `scipy.stats.theilslopes(y, x, alpha=0.99)`.
    #[test]
    fn slope_and_bounds_equal_those_of_scipy() {
        let y = [2.1, 3.9, 6.2, 7.8, 30.0, 12.1, 14.2, 15.8, 18.1, 20.2, 22.0, 23.9, 26.3, 27.8, 30.1, 32.2];
        let points: Vec<_> = y.iter().enumerate().map(|(index, y)| (index as f64, *y)).collect();
        let found = slope(&points).unwrap();
        let scipy = Slope { value: 2.0, at_least: 1.95, at_most: 2.0375 };
        assert!((found.value - scipy.value).abs() < 1e-12, "{found:?}");
        assert!((found.at_least - scipy.at_least).abs() < 1e-12, "{found:?}");
        assert!((found.at_most - scipy.at_most).abs() < 1e-12, "{found:?}");
    }
}
