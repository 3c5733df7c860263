use super::Curve;
use crate::recording::{Expected, Run};

fn run() -> Run {
    let mut run = Run::new(0.0, 1);
    for (batch, samples_per_s, fits) in [(64, 640.0, true), (8, 200.0, true), (128, 645.0, true), (256, 900.0, false)] {
        let mut point = Expected::default();
        (point.batch, point.samples_per_s, point.fits) = (batch, samples_per_s, fits);
        run.expected.push(point);
    }
    run
}

#[test]
fn the_smallest_that_is_about_as_fast_as_the_best_is_taken() {
    let run = run();
    let curve = Curve::new(&run, false).unwrap();
    let near_best =
        |most, all: bool| curve.smallest_near_best(most, |point| all || point.fits).map(|point| point.batch);
    assert_eq!(near_best(1000, false), Some(64));
    assert_eq!(near_best(32, false), Some(8));
    assert_eq!(near_best(1000, true), Some(256));
    assert_eq!(near_best(4, true), None);
    assert!(Curve::new(&run, true).is_none());
}

#[test]
fn the_time_of_a_micro_batch_is_interpolated() {
    let run = run();
    let curve = Curve::new(&run, false).unwrap();
    for (batch, milliseconds) in [(1.0, 40.0), (8.0, 40.0), (36.0, 70.0), (64.0, 100.0), (512.0, 512.0 / 0.9)] {
        let micro = curve.seconds(batch) * batch * 1e3;
        assert!((micro - milliseconds).abs() < 1e-6, "{batch}: {micro}");
    }
}
