use super::{Area, Labels};

#[test]
fn labels_avoid_symbols_each_other_and_the_edge() {
    let mut labels = Labels::new(Area { left: 0.0, right: 100.0, top: 0.0, bottom: 60.0 });
    labels.avoid([50.0, 30.0], 3.0);
    let placed: Vec<_> = (0..9).map_while(|_| labels.place([50.0, 30.0], 3.0, 13.8)).collect();
    assert!((2..9).contains(&placed.len()), "{placed:?}");
    for (index, [x, y]) in placed.iter().enumerate() {
        assert!((8.9..=91.1).contains(x) && (10.0..=60.0).contains(y), "{placed:?}");
        let overlaps = |other: &[f64; 2]| (other[0] - x).abs() < 17.0 && (other[1] - y).abs() < 12.0;
        assert!(!placed[..index].iter().any(overlaps), "{placed:?}");
    }
}
