//! Statistics of series.

/// Points that a slope is taken over: pairs of more take long, and say no more.
const MOST_POINTS: usize = 300;
/// A trend needs so many points.
const LEAST_POINTS: usize = 20;
/// The trend has to rise above so many times the usual distance from it.
const ABOVE_NOISE: f64 = 4.0;
/// What still rises at the end rises at least at so large a part of the pace.
const STILL_RISING: f64 = 0.5;

/// The mean; `None` of nothing.
pub(in super::super) fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let (sum, count) = values.into_iter().fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    (count > 0).then(|| sum / f64::from(count))
}

/// The value in the middle; `None` of nothing.
pub(in super::super) fn median(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let upper = *values.get(middle)?;
    Some(if values.len() % 2 == 1 { upper } else { f64::midpoint(values[middle - 1], upper) })
}

/// A steady rise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in super::super) struct Trend {
    /// Per unit of the first coordinate.
    pub slope: f64,
    /// From the first to the last point, along the slope.
    pub growth: f64,
}

/// The rise of a series that goes on rising to its end; `None` of one that does not rise, that comes to rest, or whose
/// rise is lost in its noise.
///
/// The slope is the median of those between all pairs of points, after Theil and Sen: jumps and spikes do not move it.
pub(in super::super) fn trend(points: &[(f64, f64)]) -> Option<Trend> {
    let points = thinned(points);
    let (first, last) = (points.first()?, points.last()?);
    if points.len() < LEAST_POINTS {
        return None;
    }
    let slope = slope(&points)?;
    let growth = slope * (last.0 - first.0);
    let offset = median(points.iter().map(|(x, y)| y - slope * x))?;
    let noise = median(points.iter().map(|(x, y)| (y - offset - slope * x).abs()))?;
    let quarters: Vec<_> = points.chunks(points.len().div_ceil(4)).collect();
    let levels: Vec<_> = quarters.iter().filter_map(|part| median(part.iter().map(|(_, y)| *y))).collect();
    let rises = levels.windows(2).all(|pair| pair[0] < pair[1]);
    let half = &points[points.len() / 2..];
    let goes_on = self::slope(half)? >= STILL_RISING * slope;
    (slope > 0.0 && rises && goes_on && growth > ABOVE_NOISE * noise).then_some(Trend { slope, growth })
}

fn slope(points: &[(f64, f64)]) -> Option<f64> {
    let later = |index: usize| points[index + 1..].iter();
    let of_pair = |from: &(f64, f64), to: &(f64, f64)| (to.1 - from.1) / (to.0 - from.0);
    median(points.iter().enumerate().flat_map(|(index, from)| later(index).map(move |to| of_pair(from, to))))
}

/// Every so manieth point, so that there are few enough.
fn thinned(points: &[(f64, f64)]) -> Vec<(f64, f64)> {
    let every = points.len().div_ceil(MOST_POINTS).max(1);
    points.iter().copied().step_by(every).collect()
}

#[cfg(test)]
mod tests {
    use super::{mean, median, trend};

    fn series(of: impl Fn(f64) -> f64) -> Vec<(f64, f64)> {
        (0..200).map(|step| (f64::from(step), of(f64::from(step)))).collect()
    }

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median([4.0, 1.0, 2.0, 3.0]), Some(2.5));
        assert_eq!((median([]), mean([])), (None, None));
    }

    #[test]
    fn a_rise_has_its_slope_whatever_spikes_there_are() {
        for (what, points) in [
            ("a line", series(|x| 100.0 + 3.0 * x)),
            ("spikes", series(|x| 3.0 * x + if x % 17.0 == 0.0 { 1e6 } else { 0.0 })),
            ("noise", series(|x| 3.0 * x + 20.0 * (x * 12.9898).sin())),
            ("pages of 60", series(|x| (3.0 * x / 60.0).floor() * 60.0)),
        ] {
            let slope = trend(&points).unwrap_or_else(|| panic!("{what}")).slope;
            assert!((slope / 3.0 - 1.0).abs() < 0.05, "{what}: {slope}");
        }
    }

    #[test]
    fn what_does_not_go_on_rising_is_no_rise() {
        for (what, points) in [
            ("flat", series(|_| 5.0)),
            ("falling", series(|x| -x)),
            ("pools that fill up", series(|x| 100.0 * (1.0 - (-x / 20.0).exp()))),
            ("one jump", series(|x| if x < 60.0 { 1.0 } else { 2.0 })),
            ("noise", series(|x| (x * 12.9898).sin() * 43_758.545)),
            ("a saw", series(|x| x % 50.0)),
            ("few points", series(|x| x)[..10].to_vec()),
        ] {
            assert_eq!(trend(&points), None, "{what}");
        }
    }
}
