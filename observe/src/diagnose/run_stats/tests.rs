use super::Steps;
use crate::recording::StepRecord;

fn steps(seconds: impl Fn(u64) -> f64) -> Vec<StepRecord> {
    let mut at = 0.0;
    let record = |step| {
        let seconds = seconds(step);
        at += seconds;
        let mut record = StepRecord::new(at, step);
        (record.seconds, record.samples, record.waited_s) = (seconds, 10, Some(0.0));
        record
    };
    (1..=100).map(record).collect()
}

fn left_out(records: &[StepRecord]) -> Result<usize, usize> {
    Steps::from_records(&records.iter().collect::<Vec<_>>()).map(|steps| steps.left_out)
}

#[test]
fn warm_up_steps_are_left_out() {
    for (what, tunes, expected) in
        [("a warm start", 0, 2), ("the first", 1, 2), ("the first five", 5, 5), ("most: then they are usual", 80, 2)]
    {
        let records = steps(|step| if step <= tunes { 1.0 } else { 0.1 });
        assert_eq!(left_out(&records), Ok(expected), "{what}");
    }
    let two_slow = steps(|step| if step == 1 || step == 4 { 20.0 } else { 0.1 });
    assert_eq!(left_out(&two_slow), Ok(4));
}

#[test]
fn a_loader_that_delivers_in_bursts_is_no_warm_up() {
    let mut records = steps(|step| if step % 8 == 0 { 0.8 } else { 0.01 });
    for record in &mut records {
        record.waited_s = Some(record.seconds - 0.01);
    }
    assert_eq!(left_out(&records), Ok(2));
}

#[test]
fn pauses_do_not_count_and_too_few_steps_are_counted() {
    let mut records = steps(|step| if step % 25 == 0 { 5.1 } else { 0.1 });
    for record in records.iter_mut().filter(|record| record.seconds > 1.0) {
        record.outside_s = Some(5.0);
    }
    let judged = Steps::from_records(&records.iter().collect::<Vec<_>>()).unwrap();
    assert!((judged.samples_per_s() - 100.0).abs() < 1e-9, "{judged:?}");
    assert_eq!(left_out(&records[..10]), Err(8));
    assert_eq!(left_out(&[]), Err(0));
}
