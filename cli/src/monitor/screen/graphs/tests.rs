use ratatui::style::Style;

use super::Graph;

fn columns(points: &[(f64, f64)], count: usize, end: f64, seconds: f64) -> Vec<Option<u64>> {
    Graph { title: "", points: points.to_vec(), top: 100.0, said: |_| String::new(), style: Style::new() }
        .columns(count, end, seconds)
}

#[test]
fn each_column_is_the_mean_of_its_time() {
    let points = [(0.0, 10.0), (1.0, 20.0), (2.0, 40.0), (3.0, 60.0)];
    assert_eq!(columns(&points, 2, 3.0, 2.0), [Some(150), Some(500)]);
    assert_eq!(columns(&points, 6, 3.0, 1.0), [None, None, Some(100), Some(200), Some(400), Some(600)]);
}

#[test]
fn a_gap_is_shown_and_a_single_missing_column_is_none() {
    let points = [(0.0, 50.0), (2.0, 50.0), (6.0, 120.0)];
    let seen = columns(&points, 7, 6.0, 1.0);
    assert_eq!(seen, [Some(500), Some(500), Some(500), None, None, None, Some(1000)]);
}
