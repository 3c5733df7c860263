//! The slope of Theil and Sen.

/// Standard deviations of 99% confidence, both sides.
const DEVIATIONS: f64 = 2.576;

/// A slope with its bounds at 99% confidence.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Slope {
    pub value: f64,
    pub at_least: f64,
    pub at_most: f64,
}

/// Returns the median slope over all pairs of points, which come in ascending order; `None` without a pair.
pub(super) fn slope(points: &[(f64, f64)]) -> Option<Slope> {
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
