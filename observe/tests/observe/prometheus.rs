//! Prometheus text of a monitor and of a recording.

use gpu_tuned_observe::export::prometheus;
use gpu_tuned_observe::monitor::{Gathering, Latest, Summary, to_prometheus};
use gpu_tuned_observe::recording::{Record, Value};

use crate::recorded;

fn of_monitor(records: &[Record]) -> String {
    let (mut latest, mut gathering) = (Latest::default(), Gathering::default());
    for record in records {
        latest.observe(record);
        gathering.observe(record);
    }
    to_prometheus(&latest, &gathering.summary())
}

/// The parser of Prometheus' Python client accepts the snapshot.
#[test]
fn the_last_run_and_the_last_samples_are_exported() {
    let infinite = [("least", f64::NEG_INFINITY), ("most", f64::INFINITY)];
    let infinite = infinite.map(|(name, value)| Record::Value(Value::new(12.5, name, value)));
    insta::assert_snapshot!(prometheus(&[recorded(), infinite.into()].concat()));
    assert_eq!(prometheus(&[]), to_prometheus(&Latest::default(), &Summary::default()));
}

#[test]
fn a_monitor_and_a_recording_have_the_same_samples() {
    let is_sample = |record: &Record| !matches!(record, Record::Run(_) | Record::Step(_));
    let samples: Vec<_> = recorded().into_iter().filter(is_sample).collect();
    assert_eq!(of_monitor(&samples), prometheus(&samples));
}

#[test]
fn names_that_are_printed_alike_are_one_metric() {
    let value = |name: &str, value| Record::Value(Value::new(5.0, name, value));
    let text = prometheus(&[value("a\u{1}", 1.0), value("a\u{2}", 2.0)]);
    assert!(text.ends_with("# TYPE gpu_tuned_value gauge\ngpu_tuned_value{name=\"a\u{fffd}\"} 2\n"), "{text}");
}

#[test]
fn a_gpu_without_a_known_uuid_has_its_number_alone() {
    let samples: Vec<_> = recorded().into_iter().filter(|record| matches!(record, Record::Gpu(_))).collect();
    for text in [of_monitor(&samples), prometheus(&samples)] {
        let is_up: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("gpu_tuned_gpu_up")).collect();
        assert_eq!(is_up, ["{gpu=\"0\"} 1", "{gpu=\"0\",mig_slot=\"2\"} 1", "{gpu=\"1\"} 1"]);
    }
}
