//! Prometheus text of a monitor and of a recording.

use std::collections::{BTreeMap, BTreeSet};

use gpu_tuned_observe::export::prometheus;
use gpu_tuned_observe::monitor::{Gathering, Latest, Summary, to_prometheus};
use gpu_tuned_observe::recording::{
    Gpu, GpuSample, HostSample, ProcessSample, Record, Run, Start, StepRecord, Throttle, Value,
};

/// Labels and their values.
type Labels = BTreeMap<String, String>;
/// Values of each metric by their labels.
type Samples = BTreeMap<String, BTreeMap<Labels, f64>>;

/// Parses the text format by its rules
/// (<https://prometheus.io/docs/instrumenting/exposition_formats/#text-format-details>): `HELP` and `TYPE` come once and
/// first, the lines of a metric follow each other, label sets are unique, and every line ends with a line feed.
fn parsed(text: &str) -> Samples {
    assert!(text.is_empty() || text.ends_with('\n'));
    let mut samples = Samples::new();
    let mut current = String::new();
    let mut described = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# ") {
            let (keyword, rest) = rest.split_once(' ').expect("a keyword");
            let (name, text) = rest.split_once(' ').expect("a name and a text");
            assert!(is_name(name), "{line}");
            assert!(described.insert((keyword.to_owned(), name.to_owned())), "twice: {line}");
            match keyword {
                "HELP" => {
                    unescaped(text, false);
                    assert!(!samples.contains_key(name), "in two places: {line}");
                    name.clone_into(&mut current);
                }
                "TYPE" => {
                    assert_eq!(name, current, "{line}");
                    assert_eq!(text, if name.ends_with("_total") { "counter" } else { "gauge" }, "{line}");
                }
                other => panic!("no keyword of the format: {other}"),
            }
            continue;
        }
        let end = line.find(['{', ' ']).expect("a value");
        let (name, rest) = line.split_at(end);
        assert!(is_name(name) && name == current, "{line}");
        let (labels, value) = if rest.starts_with('{') { labels(rest) } else { (Labels::new(), rest) };
        let value = value.strip_prefix(' ').expect("a space before the value");
        let value = match value {
            "NaN" => f64::NAN,
            "+Inf" => f64::INFINITY,
            "-Inf" => f64::NEG_INFINITY,
            number => {
                assert!(number.chars().all(|c| c.is_ascii_digit() || "+-.eE".contains(c)), "{line}");
                number.parse().unwrap_or_else(|_| panic!("no number: {line}"))
            }
        };
        assert!(samples.entry(name.to_owned()).or_default().insert(labels, value).is_none(), "twice: {line}");
    }
    samples
}

/// Parses `{name="value",…}` and returns the rest of the line.
fn labels(text: &str) -> (Labels, &str) {
    let mut labels = Labels::new();
    let mut rest = &text[1..];
    loop {
        let (name, after) = rest.split_once("=\"").expect("a label");
        assert!(is_name(name) && !name.contains(':') && !name.starts_with("__"), "{text}");
        let mut is_escaped = false;
        let end = after.find(|c| {
            let ends = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            ends
        });
        let (value, after) = after.split_at(end.expect("an end of the value"));
        assert!(labels.insert(name.to_owned(), unescaped(value, true)).is_none(), "twice: {text}");
        match after.as_bytes()[1] {
            b'}' => return (labels, &after[2..]),
            b',' => rest = &after[2..],
            other => panic!("{} after a label: {text}", other as char),
        }
    }
}

fn unescaped(text: &str, is_label: bool) -> String {
    let mut chars = text.chars();
    let mut plain = String::new();
    while let Some(char) = chars.next() {
        plain.push(match (char, is_label) {
            ('\\', _) => match chars.next() {
                Some('n') => '\n',
                Some('\\') => '\\',
                Some('"') if is_label => '"',
                other => panic!("no escape of the format: {other:?}"),
            },
            (char, _) => char,
        });
    }
    plain
}

fn is_name(name: &str) -> bool {
    let is_first = |c: char| c.is_ascii_alphabetic() || "_:".contains(c);
    name.starts_with(is_first) && name.chars().all(|c| is_first(c) || c.is_ascii_digit())
}

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
    records
}

fn step(number: u64, rank: u64) -> StepRecord {
    let mut step = StepRecord::new(10.0 + number as f64, number);
    (step.pid, step.rank, step.seconds, step.samples) = (Some(1), rank, 0.5, 32);
    (step.loss, step.loss_s, step.in_use_bytes) = (Some(1.0 / number as f64), Some(0.25), Some(100 * number));
    step
}

fn of_monitor(records: &[Record]) -> Samples {
    let (mut latest, mut gathering) = (Latest::default(), Gathering::default());
    for record in records {
        latest.observe(record);
        gathering.observe(record);
    }
    parsed(&to_prometheus(&latest, &gathering.summary()))
}

fn label_set(labels: &[(&str, &str)]) -> Labels {
    labels.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

#[test]
fn a_monitor_and_a_recording_have_the_same_samples() {
    let monitor = of_monitor(&records());
    let mut recording = parsed(&prometheus(&records()));
    let of_run: Vec<_> =
        ["gpu_tuned_run_info", "gpu_tuned_memory_planned_bytes"].map(|name| recording.remove(name)).into();
    assert!(of_run.iter().all(Option::is_some), "{of_run:?}");
    assert_eq!(format!("{monitor:#?}"), format!("{recording:#?}"));
    // 12 figures and 4 of its state, and whether it is up, its memory, energy and throttle reasons; 5 of the host; values.
    assert_eq!(monitor.len(), 20 + 5 + 1);
    let power = &monitor["gpu_tuned_gpu_power_watts"];
    let slice = label_set(&[("gpu", "0"), ("uuid", "MIG-0"), ("mig_slot", "2")]);
    assert_eq!((power.len(), power[&slice]), (3, 412.5));
    assert!(power.contains_key(&label_set(&[("gpu", "1"), ("uuid", "GPU-1")])), "{power:?}");
    assert_eq!(monitor["gpu_tuned_gpu_sm_clock_hertz"].values().next(), Some(&1.98e9));
    assert_eq!(monitor["gpu_tuned_gpu_energy_joules_total"].values().next(), Some(&412.5), "one second of 412.5 W");
    assert_eq!(monitor["gpu_tuned_process_cpu_cores"].values().next(), Some(&2.5));
}

#[test]
fn names_that_are_printed_alike_are_one_metric() {
    let value = |name: &str, value| Record::Value(Value::new(5.0, name, value));
    let samples = parsed(&prometheus(&[value("a\u{1}", 1.0), value("a\u{2}", 2.0)]));
    let name = label_set(&[("name", "a\u{fffd}")]);
    assert_eq!(samples["gpu_tuned_value"], BTreeMap::from([(name, 2.0)]));
}

#[test]
fn a_gpu_without_a_known_uuid_has_its_number_alone() {
    let samples: Vec<_> = records().into_iter().filter(|record| matches!(record, Record::Gpu(_))).collect();
    for metrics in [of_monitor(&samples), parsed(&prometheus(&samples))] {
        let labels: Vec<_> = metrics["gpu_tuned_gpu_up"].keys().cloned().collect();
        let slice = label_set(&[("gpu", "0"), ("mig_slot", "2")]);
        assert_eq!(labels, [label_set(&[("gpu", "0")]), slice, label_set(&[("gpu", "1")])]);
    }
}

#[test]
fn counters_are_those_of_the_run_that_began_last() {
    let earlier = Run::new(2.0, 3);
    let mut other = step(5, 0);
    other.pid = Some(2);
    let mut records = records();
    records.push(Record::Value(Value::new(5.0, "earlier", 1.0)));
    for record in [step(1, 0), step(1, 1), other, step(2, 0)] {
        records.push(Record::Step(Box::new(record)));
    }
    records.push(Record::Run(Box::new(earlier)));
    let metrics = parsed(&prometheus(&records));
    let first = label_set(&[("rank", "0")]);
    for (name, value) in
        [("steps_total", 2.0), ("steps_seconds_total", 1.0), ("loss", 0.5), ("pool_in_use_bytes", 200.0)]
    {
        assert_eq!(metrics[&format!("gpu_tuned_{name}")][&first], value, "{name}");
    }
    assert_eq!(metrics["gpu_tuned_samples_total"][&Labels::new()], 64.0);
    assert_eq!(metrics["gpu_tuned_step_phase_seconds_total"][&label_set(&[("phase", "loss"), ("rank", "0")])], 0.5);
    let run = label_set(&[("workload", "digits"), ("target", "h200"), ("device", "a \"GPU\"\\\n")]);
    assert_eq!(metrics["gpu_tuned_run_info"][&run], 1.0);
    assert!(metrics["gpu_tuned_value"].keys().all(|labels| labels["name"] == "valid/\"loss\""), "{metrics:?}");
    assert_eq!(prometheus(&[]), to_prometheus(&Latest::default(), &Summary::default()));
}
