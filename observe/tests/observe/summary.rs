//! Summaries of recordings.

use gpu_tuned_observe::monitor::Summary;
use gpu_tuned_observe::recording::{Gpu, GpuSample, HostSample, Record, Start, StepRecord, Throttle, Value};

/// Samples of GPU 0 at times in seconds, with its power in watts.
fn samples(samples: &[(f64, Option<u32>)]) -> Vec<Record> {
    let sample = |&(at, watts): &(f64, Option<u32>)| {
        let mut sample = GpuSample::new(at, 0);
        sample.power_mw = watts.map(|watts| watts * 1000);
        sample.trouble = watts.is_none().then(|| "lost".to_owned());
        Record::Gpu(sample)
    };
    samples.iter().map(sample).collect()
}

#[test]
fn energy_is_integrated_over_samples() {
    let gpu = Summary::from_records(&samples(&[(0.0, Some(100)), (2.0, Some(300)), (3.0, Some(300))])).gpus.remove(0);
    assert_eq!(gpu.energy_j, Some(400.0 + 300.0));
    let power = gpu.figures["power_w"];
    // The first sample gets the 2 s of the second.
    assert_eq!((power.mean, power.min, power.max), ((2.0 * 100.0 + 2.0 * 300.0 + 300.0) / 5.0, 100.0, 300.0));
    assert_eq!(Summary::from_records(&samples(&[(0.0, Some(100))])).gpus[0].energy_j, None);
}

#[test]
fn a_lost_gpu_does_not_count() {
    let all = [(0.0, Some(100)), (1.0, Some(100)), (2.0, None), (60.0, None), (61.0, Some(400)), (62.0, Some(400))];
    let gpu = Summary::from_records(&samples(&all)).gpus.remove(0);
    assert_eq!((gpu.energy_j, gpu.lost_polls), (Some(100.0 + 400.0), 2));
    assert_eq!((gpu.figures["power_w"].count, gpu.figures["power_w"].mean), (4, 250.0));
}

#[test]
fn a_second_monitor_in_the_same_file_does_not_count_the_time_between() {
    let mut records = samples(&[(0.0, Some(100)), (1.0, Some(100))]);
    let mut start = Start::default();
    start.gpus = vec![Gpu::new(0)];
    start.gpus[0].name = Some("NVIDIA H200".to_owned());
    records.push(Record::Start(start));
    records.extend(samples(&[(1000.0, Some(200)), (1001.0, Some(200))]));
    let mut summary = Summary::from_records(&records);
    let gpu = summary.gpus.remove(0);
    assert_eq!((summary.seconds, gpu.energy_j, gpu.figures["power_w"].mean), (2.0, Some(300.0), 150.0));
    assert_eq!(gpu.gpu.name.as_deref(), Some("NVIDIA H200"));
}

#[test]
fn throttled_time_is_summed_by_reason() {
    let sample = |at: f64, throttle: &[Throttle]| {
        let mut sample = GpuSample::new(at, 0);
        sample.throttle = throttle.to_vec();
        Record::Gpu(sample)
    };
    let (power, heat) = (Throttle::PowerCap, Throttle::ThermalSoftware);
    let gpu = Summary::from_records(&[
        sample(0.0, &[]),
        sample(1.0, &[power]),
        sample(3.0, &[power, heat]),
        sample(4.0, &[]),
    ]);
    assert_eq!(gpu.gpus[0].throttled_s, [(power, 3.0), (heat, 2.0)].into());
}

#[test]
fn steps_of_the_first_rank_are_counted_with_the_samples_of_all() {
    let step = |number: u64, rank: u64, seconds: f64, loss: Option<f64>| {
        let mut step = StepRecord::new(number as f64, number);
        (step.rank, step.seconds, step.samples, step.loss) = (rank, seconds, 64, loss);
        Record::Step(Box::new(step))
    };
    let records =
        [step(1, 0, 0.5, Some(3.0)), step(1, 1, 0.5, None), step(2, 0, 2.0, Some(1.0)), step(3, 0, 0.5, None)];
    let steps = Summary::from_records(&records).steps.expect("there are steps");
    assert_eq!((steps.steps, steps.samples, steps.last_loss), (3, 192, Some(1.0)));
    assert_eq!((steps.samples_per_s.mean, steps.loss.map(|loss| loss.mean)), (64.0, Some(2.0)));
    // Of a recording of one rank, that one.
    let steps = Summary::from_records(&records[1..2]).steps.expect("there are steps");
    assert_eq!((steps.steps, steps.samples), (1, 64));
}

#[test]
fn values_and_host_are_summarized() {
    let mut host = HostSample::new(5.0);
    host.cpu_percent = Some(40.0);
    let records = [
        Record::Host(HostSample::new(3.0)),
        Record::Value(Value::new(3.5, "valid/loss", 2.0)),
        Record::Value(Value::new(4.0, "valid/loss", 1.0)),
        Record::Host(host),
        Record::Unknown,
    ];
    let summary = Summary::from_records(&records);
    assert_eq!((summary.seconds, summary.polls, summary.host["cpu_percent"].mean), (2.0, 2, 40.0));
    assert_eq!((summary.values["valid/loss"].mean, summary.values["valid/loss"].count), (1.5, 2));
    assert!(summary.steps.is_none() && summary.gpus.is_empty());
}
