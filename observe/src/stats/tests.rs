use super::{Series, Stats, mean, median};

#[test]
fn medians_and_means() {
    assert_eq!(median([3.0, 1.0, 2.0]), Some(2.0));
    assert_eq!(median([4.0, 1.0, f64::NAN, 2.0, 3.0]), Some(2.5));
    assert_eq!(mean([1.0, 2.0, 6.0]), Some(3.0));
    assert_eq!((median([]), mean([])), (None, None));
}

/// Statistics of values at intervals of a second.
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
fn results_equal_certified_values_of_nist() {
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
fn values_are_weighted_by_time() {
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
fn the_first_value_gets_the_weight_of_the_second() {
    let mut series = Series::default();
    series.observe(10.0, None);
    assert_eq!(series.stats().map(|stats| (stats.mean, stats.standard_deviation)), Some((10.0, None)));
    series.observe(20.0, Some(4.0));
    assert_eq!(series.stats().map(|stats| stats.mean), Some(15.0));
}

#[test]
fn values_that_are_not_finite_are_left_out() {
    let mut series = Series::default();
    series.observe(f64::NAN, Some(1.0));
    series.observe(f64::INFINITY, None);
    assert_eq!(series.stats(), None);
    series.observe(3.0, Some(f64::NAN));
    assert_eq!(series.stats().map(|stats| stats.mean), Some(3.0));
}
