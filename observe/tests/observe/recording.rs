//! Reading, writing and recording.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use gpu_tuned_observe::recording::{
    GpuSample, Observer, Observers, Record, Recorder, StepRecord, Value, Writer, parse, read,
};
use tempfile::TempDir;

/// A folder and a file in it.
fn file() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    (folder, path)
}

#[test]
fn unfinished_records_are_left_out_and_those_behind_them_read() {
    let gpu = |at| Record::Gpu(GpuSample::new(at, 0));
    let (first, second) = (r#"{"kind":"gpu","at":1.5,"gpu":0}"#, r#"{"kind":"gpu","at":2.5,"gpu":0}"#);
    let (one, two) = (vec![gpu(1.5)], vec![gpu(1.5), gpu(2.5)]);
    for (text, records, torn) in [
        // Kinds and figures of newer versions.
        (r#"{"kind":"gpu","at":1.5,"gpu":0,"smell":3}"#.to_owned(), &one, &[][..]),
        (format!("{first}\n{{\"kind\":\"weather\",\"at\":2.0}}\n"), &vec![gpu(1.5), Record::Unknown], &[]),
        (format!("{first}\n{{\"kind\":\"gpu\",\"at\":1."), &one, &[2]),
        (format!("{first}\n{{{second}\n"), &two, &[2]),
        (format!("{first}\n{{\"ki{second}\n"), &two, &[2]),
        (format!("{first}\n{{\"kind\":\"step\",\"at\":1000.5,\"st{second}\n"), &two, &[2]),
        (format!("{first}\n{{\"kind\":\"st{{\"kind\":\"value\",\"at\":1.{second}\n"), &two, &[2]),
        (format!("{first}{second}\n"), &two, &[]),
        (format!("{first}\n{{\"kind\":\"gp{{\"kind\":\"gpu\",\"at\":1."), &one, &[2]),
    ] {
        let recording = parse("run.jsonl", &text).expect(&text);
        assert_eq!((&recording.records, &*recording.torn), (records, torn), "{text}");
    }
}

#[test]
fn counters_that_ran_over_are_left_out_of_what_is_read() {
    let gpu = r#"{"gpu":0,"default_power_limit_mw":450000,"max_pcie_generation":4,"max_pcie_lanes":16}"#;
    let start = format!("{{\"kind\":\"start\",\"version\":1,\"gpus\":[{gpu}]}}\n");
    let sample = |milliwatts: u64, bytes: u64| {
        format!("{{\"kind\":\"gpu\",\"gpu\":0,\"power_mw\":{milliwatts},\"pcie_to_gpu_bytes_per_s\":{bytes}}}\n")
    };
    let text = start + &sample(3_700_000, 4_294_967_295_000) + &sample(451_000, 26_000_000_000);
    let kept: Vec<_> = parse("run.jsonl", &text).expect("records").records[1..]
        .iter()
        .map(|record| if let Record::Gpu(sample) = record { sample.clone() } else { panic!("{record:?}") })
        .map(|sample| (sample.power_mw, sample.pcie_to_gpu_bytes_per_s))
        .collect();
    assert_eq!(kept, [(None, None), (Some(451_000), Some(26_000_000_000))]);
}

#[test]
fn errors_have_a_position() {
    const NOT_JSON: &str = "not a line of a recording: it is not JSON; GPU_TUNED_RECORD=FILE records a program, \
                            `cargo gpu-tuned monitor --record FILE` the GPUs";
    for (text, message) in [
        ("{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":0}\n{\"kind\":\"gpu\",\"at\":x}\n", "run.jsonl:2:20: {NOT_JSON}"),
        ("{\"kind\":\"value\",\"name\":\"потери\",\"value\":x}\n", "run.jsonl:1:41: {NOT_JSON}"),
        ("{\"kind\":\"step\",\"st{\"kind\":\"gpu\",\"at\":x}\n", "run.jsonl:1:38: {NOT_JSON}"),
        ("nonsense{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":0}\n", "run.jsonl:1:2: {NOT_JSON}"),
        (
            "{\"kind\":\"start\",\"at\":1.5,\"version\":99}\n",
            "run.jsonl:1:1: the recording has format 99; this release reads up to 1: update gpu-tuned",
        ),
        (
            "{\"kind\":\"host\",\"at\":1.0,\"cpu_percent\":1e308}\n",
            "run.jsonl:1:1: `cpu_percent` is negative, or more than 1e15",
        ),
        ("{\"kind\":\"step\",\"seconds\":-1.0}\n", "run.jsonl:1:1: `seconds` is negative, or more than 1e15"),
        (
            "{\"kind\":\"step\",\"seconds\":1.0,\"drain_s\":1e300}\n",
            "run.jsonl:1:1: `drain_s` is negative, or more than 1e15",
        ),
        ("{\"kind\":\"host\",\"at\":-1e300}\n", "run.jsonl:1:1: the time is more than 1e15 s from 1970"),
    ] {
        assert_eq!(parse("run.jsonl", text).expect_err(text).to_string(), message.replace("{NOT_JSON}", NOT_JSON));
    }
    let gpus =
        |count| (0..count).map(|gpu| format!("{{\"kind\":\"gpu\",\"at\":1.5,\"gpu\":{gpu}}}\n")).collect::<String>();
    assert_eq!(parse("run.jsonl", &gpus(1024).repeat(2)).expect("GPUs").records.len(), 2048);
    let message = parse("run.jsonl", &gpus(1025)).expect_err("too many").to_string();
    assert_eq!(message, "run.jsonl:1025:1: the recording has more than 1024 GPUs, the most that is read");
}

#[test]
fn a_line_without_an_end_does_not_damage_the_next_and_nan_is_read_again() {
    let (_folder, path) = file();
    std::fs::write(&path, "{\"kind\":\"value\",\"at\":1.0,\"name\":\"a\",\"val").unwrap();
    let mut writer = Writer::append(&path).unwrap();
    writer.write(&Record::Value(Value::new(2.0, "valid/loss", f64::NAN))).unwrap();
    drop(writer);
    let recording = read(&path).unwrap();
    let [Record::Value(value)] = recording.records.as_slice() else { panic!("{recording:?}") };
    assert!(recording.torn == [1] && value.at > 1.5 && value.value.is_nan(), "{recording:?}");
}

#[test]
fn a_file_that_is_no_recording_is_left_alone() {
    let (_folder, path) = file();
    for (text, is_recording) in
        [("", true), ("{\"kind\":\"gpu\",\"at\":1.", true), ("notes\n", false), ("{\"a\":1}\n", false)]
    {
        std::fs::write(&path, text).unwrap();
        let writer = Writer::append(&path).and_then(|mut writer| writer.write(&Record::Gpu(GpuSample::new(1.0, 0))));
        assert_eq!(writer.is_ok(), is_recording, "{text}");
        assert_eq!(std::fs::read_to_string(&path).unwrap() == text, !is_recording, "{text}");
    }
    let refused = Writer::append(&path).unwrap_err();
    assert!(refused.to_string().contains("is no recording; name another file"), "{refused}");
}

#[test]
fn lines_of_several_writers_stay_whole() {
    let (_folder, path) = file();
    thread::scope(|scope| {
        for number in 0..4 {
            let path = &path;
            scope.spawn(move || {
                let mut writer = Writer::append(path).unwrap();
                for step in 0..500 {
                    writer.write(&Record::Step(Box::new(StepRecord::new(f64::from(number), step)))).unwrap();
                    if step % 7 == 0 {
                        writer.flush().unwrap();
                    }
                }
            });
        }
    });
    let recording = read(&path).unwrap();
    assert_eq!((recording.records.len(), recording.torn), (2000, Vec::new()));
}

#[test]
fn records_are_written_within_about_a_second_and_at_the_end() {
    let (_folder, path) = file();
    let recorder = Recorder::append(&path).unwrap();
    recorder.value("one", 1.0);
    assert_eq!(read(&path).unwrap().records.len(), 0, "it is buffered");
    let begin = Instant::now();
    while read(&path).unwrap().records.is_empty() {
        assert!(begin.elapsed() < Duration::from_mins(1), "it is never written");
        thread::sleep(Duration::from_millis(10));
    }
    recorder.value("two", 2.0);
    drop(recorder);
    assert_eq!(read(&path).unwrap().records.len(), 2);
}

#[test]
fn a_step_without_a_process_gets_this_one() {
    let (_folder, path) = file();
    let recorder = Recorder::append(&path).unwrap();
    for pid in [None, Some(7)] {
        let mut step = StepRecord::new(1.0, 1);
        step.pid = pid;
        recorder.record(Record::Step(Box::new(step)));
    }
    drop(recorder);
    let pid = |record: &Record| if let Record::Step(step) = record { step.pid } else { None };
    let pids: Vec<_> = read(&path).unwrap().records.iter().map(pid).collect();
    assert_eq!(pids, [Some(std::process::id()), Some(7)]);
}

/// Keeps the records and counts the flushes.
#[derive(Clone, Default)]
struct Collector(Arc<Mutex<(Vec<Record>, usize)>>);

impl Observer for Collector {
    fn observe(&mut self, record: &Record) {
        self.0.lock().unwrap().0.push(record.clone());
    }

    fn flush(&mut self) {
        self.0.lock().unwrap().1 += 1;
    }
}

#[test]
fn observers_are_called_without_a_file() {
    let collector = Collector::default();
    let mut observers = Observers::default();
    observers.push(collector.clone());
    let (folder, _) = file();
    let unwritable = || Some(folder.path().join("none/run.jsonl"));
    let recorder = Recorder::open(unwritable(), &observers).expect("an observer");
    recorder.value("one", 1.0);
    drop(recorder);
    let collected = collector.0.lock().unwrap();
    assert_eq!((collected.0.len(), collected.1), (1, 1));
    assert!(Recorder::open(None, &Observers::default()).is_none());
    assert!(Recorder::open(unwritable(), &Observers::default()).is_none());
}

/// Values that an observer records: more than the buffer has room for.
const MANY: usize = 5000;

/// Records many values and flushes whenever it is called, and then panics.
struct Rude(Arc<Mutex<Option<Recorder>>>);

impl Observer for Rude {
    fn observe(&mut self, _: &Record) {
        let recorder = self.0.lock().unwrap().clone().expect("a recorder");
        (0..MANY).for_each(|_| recorder.value("more", 1.0));
        recorder.flush();
        assert!(format!("{recorder:?}").starts_with("Recorder"));
        panic!("rude");
    }
}

#[test]
fn an_observer_that_records_and_panics_ends_nothing() {
    let (collector, slot) = (Collector::default(), Arc::new(Mutex::new(None)));
    let mut observers = Observers::default();
    observers.push(Rude(Arc::clone(&slot)));
    observers.push(collector.clone());
    let recorder = Recorder::open(None, &observers).expect("observers");
    *slot.lock().unwrap() = Some(recorder.clone());
    recorder.value("one", 1.0);
    recorder.flush();
    recorder.value("two", 2.0);
    recorder.flush();
    assert_eq!(collector.0.lock().unwrap().0.len(), 2 + MANY);
    slot.lock().unwrap().take();
}
