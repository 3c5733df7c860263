//! Prometheus text of a monitor and of a recording.

use gpu_tuned_observe::export::prometheus;
use gpu_tuned_observe::monitor::{Gathering, Latest, Summary, to_prometheus};
use gpu_tuned_observe::recording::{
    Gpu, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, Throttle, Value,
};

/// Two GPUs, one of them with a slice, and a program; every figure that a sample can have.
fn records() -> Vec<Record> {
    let known = |gpu, slot, uuid: &str| {
        let mut known = Gpu::new(gpu);
        (known.mig_slot, known.uuid, known.memory_total_bytes) = (slot, Some(uuid.to_owned()), Some(1 << 36));
        known
    };
    let mut start = Start::default();
    start.gpus = vec![known(0, None, "GPU-0"), known(0, Some(2), "MIG-0"), known(1, None, "GPU-1")];
    let mut run = Run::new(10.0, 1);
    (run.workload, run.target) = ("digits".to_owned(), Some("h200".to_owned()));
    (run.device.name, run.memory_planned_bytes) = ("a \"GPU\"\\\n".to_owned(), Some(1000));
    let mut records = vec![Record::Start(start), Record::Run(Box::new(run))];
    for (second, gpu, slot) in [(11, 0, None), (11, 0, Some(2)), (11, 1, None), (12, 0, None), (12, 0, Some(2))] {
        let mut sample = GpuSample::new(f64::from(second), gpu);
        sample.mig_slot = slot;
        let percent = Some(f64::from(second));
        (sample.utilisation_percent, sample.memory_activity_percent, sample.sm_activity_percent) =
            (percent, percent, percent);
        (sample.sm_occupancy_percent, sample.tensor_activity_percent, sample.dram_activity_percent) =
            (percent, percent, percent);
        (sample.memory_used_bytes, sample.power_mw, sample.power_limit_mw) = (Some(5), Some(412_500), Some(700_000));
        (sample.sm_clock_mhz, sample.memory_clock_mhz, sample.temperature_c) = (Some(1980), Some(3201), Some(61));
        (sample.pcie_generation, sample.pcie_lanes) = (Some(5), Some(16));
        (sample.pcie_to_gpu_bytes_per_s, sample.pcie_from_gpu_bytes_per_s) = (Some(7), Some(8));
        sample.throttle = vec![Throttle::PowerCap];
        records.push(Record::Gpu(sample));
    }
    let mut host = HostSample::new(12.0);
    let mut process = ProcessSample::new(1);
    (process.cpu_percent, process.memory_bytes, process.busiest_thread_percent) = (Some(250.0), Some(9), Some(99.0));
    (host.cpu_percent, host.memory_used_bytes, host.process) = (Some(50.0), Some(10), Some(process));
    records.push(Record::Host(host));
    records.push(Record::Value(Value::new(12.5, "valid/\"loss\"", f64::NAN)));
    records.push(Record::Value(Value::new(12.5, "least", f64::NEG_INFINITY)));
    records.push(Record::Value(Value::new(12.5, "most", f64::INFINITY)));
    records
}

fn step(number: u64, rank: u64) -> StepRecord {
    let mut step = StepRecord::new(10.0 + number as f64, number);
    (step.pid, step.rank, step.seconds, step.samples) = (Some(1), rank, 0.5, 32);
    (step.loss, step.loss_s, step.in_use_bytes) = (Some(1.0 / number as f64), Some(0.25), Some(100 * number));
    step
}

fn of_monitor(records: &[Record]) -> String {
    let (mut latest, mut gathering) = (Latest::default(), Gathering::default());
    for record in records {
        latest.observe(record);
        gathering.observe(record);
    }
    to_prometheus(&latest, &gathering.summary())
}

/// Beside the run that began last, there are steps and values of others. The parser of Prometheus' Python client accepts
/// the snapshot.
#[test]
fn the_last_run_and_the_last_samples_are_exported() {
    let mut other = step(5, 0);
    other.pid = Some(2);
    let mut records = records();
    records.push(Record::Value(Value::new(5.0, "earlier", 1.0)));
    records.extend([step(1, 0), step(1, 1), other, step(2, 0)].map(|step| Record::Step(Box::new(step))));
    records.push(Record::Run(Box::new(Run::new(2.0, 3))));
    insta::assert_snapshot!(prometheus(&records));
    assert_eq!(prometheus(&[]), to_prometheus(&Latest::default(), &Summary::default()));
}

#[test]
fn a_monitor_and_a_recording_have_the_same_samples() {
    let of_run = |line: &&str| line.contains("gpu_tuned_run_info") || line.contains("gpu_tuned_memory_planned_bytes");
    let recording = prometheus(&records());
    let recording: Vec<_> = recording.lines().filter(|line| !of_run(line)).collect();
    assert_eq!(of_monitor(&records()).lines().collect::<Vec<_>>(), recording);
}

#[test]
fn names_that_are_printed_alike_are_one_metric() {
    let value = |name: &str, value| Record::Value(Value::new(5.0, name, value));
    let text = prometheus(&[value("a\u{1}", 1.0), value("a\u{2}", 2.0)]);
    assert!(text.ends_with("# TYPE gpu_tuned_value gauge\ngpu_tuned_value{name=\"a\u{fffd}\"} 2\n"), "{text}");
}

#[test]
fn a_gpu_without_a_known_uuid_has_its_number_alone() {
    let samples: Vec<_> = records().into_iter().filter(|record| matches!(record, Record::Gpu(_))).collect();
    for text in [of_monitor(&samples), prometheus(&samples)] {
        let is_up: Vec<_> = text.lines().filter_map(|line| line.strip_prefix("gpu_tuned_gpu_up")).collect();
        assert_eq!(is_up, ["{gpu=\"0\"} 1", "{gpu=\"0\",mig_slot=\"2\"} 1", "{gpu=\"1\"} 1"]);
    }
}
