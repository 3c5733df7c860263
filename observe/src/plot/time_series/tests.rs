use super::{TimeSeries, TimeSeriesPlot};

fn drawn(points: Vec<(f64, f64)>) -> Option<String> {
    let line = TimeSeries { name: String::new(), points };
    TimeSeriesPlot { title: "a <b> & c".to_owned(), lines: vec![line], ..TimeSeriesPlot::default() }.svg()
}

/// Heights of the points of the only line.
fn heights(svg: &str) -> Vec<f64> {
    let path = svg.split("class=\"c0 line\" d=\"M").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    path.split('L').map(|point| point.split(' ').nth(1).unwrap().parse().unwrap()).collect()
}

#[test]
fn without_points_there_is_no_plot() {
    assert_eq!(drawn(Vec::new()), None);
    assert_eq!(drawn(vec![(0.0, f64::NAN), (0.0, f64::INFINITY), (1.0, 1e308)]), None);
}

#[test]
fn time_is_labelled_in_one_unit() {
    for (seconds, labels) in [
        (2.0, ["0 s", "0.5 s", "1.0 s"]),
        (60.0, ["0 s", "10 s", "20 s"]),
        (1000.0, ["0 min", "5 min", "10 min"]),
        (40_000.0, ["0 h", "2 h", "4 h"]),
    ] {
        let svg = drawn(vec![(0.0, 1.0), (seconds, 1.0)]).unwrap();
        assert!(labels.iter().all(|label| svg.contains(&format!(">{label}<"))), "{seconds}: {svg}");
        assert!(svg.matches("v5\"/>").count() <= 9, "{seconds}: {svg}");
    }
}

#[test]
fn a_peak_among_very_many_points_is_there() {
    let mut points: Vec<_> = (0..100_000).map(|index| (f64::from(index) / 10.0, 50.0)).collect();
    points[77_777].1 = 100.0;
    points[33_333].1 = 0.0;
    let svg = drawn(points).unwrap();
    let heights = heights(&svg);
    assert!(heights.len() <= 802, "{}", heights.len());
    // The page's heights count downwards.
    let count = |is: fn(f64, f64) -> bool| heights.iter().filter(|height| is(**height, heights[0])).count();
    assert_eq!((count(|height, usual| height < usual), count(|height, usual| height > usual)), (1, 1));
}

#[test]
fn one_point_and_no_time_at_all_are_drawn_below_an_escaped_title() {
    let svg = drawn(vec![(5.0, 1.0)]).unwrap();
    assert!(svg.contains("<circle") && svg.contains("a &lt;b&gt; &amp; c") && !svg.contains("<b>"), "{svg}");
    let heights = heights(&drawn(vec![(5.0, 0.0), (5.0, 0.0)]).unwrap());
    assert!(heights.iter().all(|height| height.is_finite()));
}
