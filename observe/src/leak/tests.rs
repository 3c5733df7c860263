use super::{LeakCheck, MAX_KEPT, Slope, slope};

#[test]
fn a_long_run_is_judged_in_little_memory() {
    let mut check = LeakCheck::new();
    for step in 0..20_000 {
        assert!(check.observe(step, 900_000_000 + step * 2_654_435_761 % 10_000_000).is_none(), "{step}");
    }
    assert!(check.series.len() <= MAX_KEPT, "{}", check.series.len());
}

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
