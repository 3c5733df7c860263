//! The monitor, on this machine and on fake ones.

use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::recording::{Record, read};

use gpu_tuned_observe::monitor::{Monitor, MonitorError, Options, csv_header};

/// Options for a machine without a driver, with the shortest interval.
fn without_driver() -> Options {
    Options::default().library("/nonexistent/libnvidia-ml.so.1").interval(Duration::ZERO)
}

/// Waits until the monitor has taken `samples` of the host.
fn wait_for_samples(monitor: &Monitor, samples: u64) {
    let begin = Instant::now();
    while monitor.summary().polls < samples {
        assert!(begin.elapsed() < Duration::from_mins(1), "{:?}", monitor.summary());
        thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_host_is_sampled_without_a_driver_and_the_reason_is_given() {
    let monitor = Monitor::start(&without_driver()).unwrap();
    wait_for_samples(&monitor, 3);
    let latest = monitor.latest();
    assert_eq!((latest.gpus.len(), latest.start.trouble.len()), (0, 1));
    let why =
        if cfg!(feature = "nvml") { "no NVIDIA management library found" } else { "built without feature `nvml`" };
    assert!(latest.start.trouble[0].starts_with(why), "{:?}", latest.start.trouble);
    let process = latest.host.and_then(|host| host.process).expect("this program is watched");
    assert_eq!(process.pid, std::process::id());
    let summary = monitor.stop().unwrap();
    assert!(summary.seconds > 0.0 && summary.host.contains_key("process_memory_bytes"), "{summary:?}");
}

#[test]
fn the_last_value_of_the_program_is_kept() {
    let monitor = Monitor::start(&without_driver().no_program()).unwrap();
    monitor.value("valid/loss", 2.0);
    monitor.value("valid/loss", 1.0);
    let latest = &monitor.latest().values["valid/loss"];
    assert_eq!((latest.value, latest.step), (1.0, None));
    let prometheus = monitor.to_prometheus();
    assert!(prometheus.contains("\ngpu_tuned_value{name=\"valid/loss\"} 1\n"), "{prometheus}");
    let stats = monitor.stop().unwrap().values["valid/loss"];
    assert_eq!((stats.count, stats.mean), (2, 1.5));
}

#[test]
fn the_history_is_bounded_and_can_be_followed() {
    let monitor = Monitor::start(&without_driver().no_program().history(3)).unwrap();
    for value in 0..10 {
        monitor.value("step", f64::from(value));
    }
    let (next, records) = monitor.since(0);
    assert!(next >= 11 && records.len() <= 3 && monitor.history().len() <= 3, "{next}, {records:?}");
    monitor.value("last", 0.0);
    let (_, news) = monitor.since(next);
    assert!(news.iter().any(|record| matches!(record, Record::Value(value) if value.name == "last")), "{news:?}");
    assert!(monitor.since(u64::MAX).1.is_empty());
    assert_eq!(monitor.stop().unwrap().values["step"].count, 10, "dropped records are counted");
}

#[test]
fn the_recording_is_complete_when_the_monitor_is_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let monitor = Monitor::start(&without_driver().record(&path)).unwrap();
    monitor.value("a", 1.0);
    wait_for_samples(&monitor, 2);
    drop(monitor);
    let recording = read(&path).unwrap();
    assert!(matches!(&recording.records[0], Record::Start(start) if start.version == 1 && start.cores > 0));
    let kinds = |kind: fn(&Record) -> bool| recording.records.iter().filter(|record| kind(record)).count();
    assert!(kinds(|record| matches!(record, Record::Host(_))) >= 2, "{recording:?}");
    assert_eq!(kinds(|record| matches!(record, Record::Value(_))), 1);
    assert_eq!(recording.torn, [0; 0]);
}

#[test]
fn records_are_written_on_request() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let monitor =
        Monitor::start(&without_driver().no_program().interval(Duration::from_hours(1)).record(&path)).unwrap();
    wait_for_samples(&monitor, 1);
    monitor.value("a", 1.0);
    monitor.written().unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    assert!(text.contains("\"name\":\"a\""), "{text}");
}

#[test]
fn a_recording_that_cannot_be_written_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let error = Monitor::start(&without_driver().record(folder.path())).unwrap_err();
    assert!(matches!(&error, MonitorError::Record { path, .. } if path == folder.path()), "{error}");
    let other = folder.path().join("main.rs");
    for text in ["fn main() {}\n", "{\"version\": 1}\n", "\n", "\u{fffd}"] {
        std::fs::write(&other, text).unwrap();
        let error = Monitor::start(&without_driver().record(&other)).unwrap_err();
        assert!(matches!(&error, MonitorError::NoRecording { path } if *path == other), "{error}");
        assert_eq!(std::fs::read_to_string(&other).unwrap(), text);
    }
    if Path::new("/dev/full").exists() {
        let error = Monitor::start(&without_driver().record("/dev/full")).unwrap_err();
        assert!(error.to_string().starts_with("cannot write the recording `/dev/full`:"), "{error}");
    }
}

#[test]
fn samples_are_a_table() {
    let monitor = Monitor::start(&without_driver()).unwrap();
    wait_for_samples(&monitor, 2);
    let table = monitor.to_csv();
    assert!(table.starts_with(&csv_header()) && table.lines().count() >= 3, "{table}");
    let columns = |line: &str| line.split(',').count();
    assert!(table.lines().all(|line| columns(line) == columns(&csv_header())), "{table}");
}

#[cfg(feature = "nvml")]
mod fake {
    use gpu_tuned_observe::monitor::{Gathering, Latest, Options, Sampler, to_prometheus};
    use gpu_tuned_observe::recording::{Record, Throttle};

    /// Samples of a fake machine, without pauses.
    fn samples(name: &str, count: usize, options: impl FnOnce(Options) -> Options) -> Vec<Record> {
        fake_nvml::play(&format!("watch/{name}"), |library| {
            let mut sampler = Sampler::open(&options(Options::default().no_program().library(library)));
            let mut records = vec![Record::Start(sampler.start())];
            records.extend((0..count).flat_map(|_| sampler.sample()));
            records
        })
    }

    fn latest(records: &[Record]) -> (Latest, Gathering) {
        let (mut latest, mut gathering) = (Latest::default(), Gathering::default());
        for record in records {
            latest.observe(record);
            gathering.observe(record);
        }
        (latest, gathering)
    }

    #[test]
    fn gpus_are_identified_and_counted() {
        let (latest, gathering) = latest(&samples("eight-h200", 4, |options| options));
        assert!(latest.start.gpus.iter().all(|gpu| gpu.profile.as_deref() == Some("h200")), "{:?}", latest.start);
        assert_eq!((latest.start.gpus.len(), latest.gpus.len()), (8, 8));
        let summary = gathering.summary();
        assert_eq!((summary.gpus.len(), summary.gpus[3].figures["power_w"].count), (8, 4));
    }

    /// Takes the 10 s of the limit.
    #[test]
    fn a_driver_that_hangs_is_the_trouble_of_its_gpu_until_it_answers() {
        let records = samples("hangs", 4, |options| options);
        let troubles = records.iter().filter_map(|record| match record {
            Record::Gpu(sample) => Some(sample.trouble.as_deref()),
            _ => None,
        });
        let silent = Some("the driver has not answered for 10s");
        assert_eq!(troubles.collect::<Vec<_>>(), [None, silent, None, None], "{records:?}");
        assert_eq!(records.iter().filter(|record| matches!(record, Record::Host(_))).count(), 4);
    }

    #[test]
    fn only_the_requested_gpus_are_sampled() {
        let records = samples("eight-h200", 2, |options| options.gpus([6, 2, 9]));
        let (latest, _) = latest(&records);
        let numbers: Vec<_> = latest.gpus.iter().map(|gpu| gpu.gpu).collect();
        assert_eq!((numbers, latest.start.trouble), (vec![2, 6], vec!["there is no GPU 9".to_owned()]));
    }

    #[test]
    fn throttled_time_is_in_the_summary() {
        let (_, gathering) = latest(&samples("thermal", 40, |options| options));
        let throttled = &gathering.summary().gpus[0].throttled_s;
        let reasons: Vec<_> = throttled.keys().collect();
        assert_eq!(reasons, [&Throttle::ThermalSoftware, &Throttle::ThermalHardware]);
        assert!(throttled[&Throttle::ThermalSoftware] > throttled[&Throttle::ThermalHardware]);
    }

    /// The parser of Prometheus' Python client accepts the snapshot.
    #[test]
    fn a_mig_gpu_is_exported_for_prometheus() {
        let mut records = samples("mig", 2, |options| options);
        records.retain(|record| !matches!(record, Record::Host(_)));
        let (latest, _) = latest(&records);
        insta::assert_snapshot!(to_prometheus(&latest, &Gathering::default().summary()));
    }
}
