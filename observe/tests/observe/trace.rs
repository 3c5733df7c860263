//! Traces of recordings, parsed by the published format.

use std::collections::{BTreeMap, BTreeSet};

use gpu_tuned_observe::recording::{GpuSample, Record, Run, StepRecord, Value};
use gpu_tuned_observe::trace::{RecordedTrace, Steps, Trace, from_records};
use serde::Deserialize;
use serde_json::Value as Json;

/// The file by the trace-event format, without other keys.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct File {
    display_time_unit: String,
    #[serde(rename = "otherData")]
    _other_data: BTreeMap<String, String>,
    trace_events: Vec<Event>,
}

/// An event of the format: metadata, counters with a time in microseconds, and spans with a length, too.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Event {
    name: String,
    #[serde(rename = "ph")]
    phase: String,
    #[serde(rename = "pid")]
    process: u64,
    #[serde(rename = "tid")]
    thread: u64,
    #[serde(rename = "ts")]
    begin: Option<f64>,
    #[serde(rename = "dur")]
    length: Option<f64>,
    #[serde(rename = "args", default)]
    figures: BTreeMap<String, Json>,
}

impl Event {
    fn begin(&self) -> f64 {
        self.begin.expect("a time")
    }

    fn length(&self) -> f64 {
        self.length.expect("a length")
    }
}

/// Parses a trace by the rules of the format.
fn strictly(trace: Option<RecordedTrace<'_>>) -> Vec<Event> {
    let mut text = Vec::new();
    let count = trace.expect("a trace").write(&mut text).unwrap();
    let File { display_time_unit, trace_events: events, .. } = serde_json::from_slice(&text).unwrap();
    assert_eq!(events.len(), count);
    assert!(["ms", "ns"].contains(&&*display_time_unit), "{display_time_unit}");
    for event in &events {
        let times = [event.begin, event.length];
        assert!(times.into_iter().flatten().all(|time| time.is_finite() && time >= 0.0), "{event:?}");
        let numbers = event.figures.values().all(Json::is_number);
        let argument = |key| event.figures.get(key).filter(|_| event.figures.len() == 1);
        let is_right = match (&*event.phase, &*event.name, times.map(|time| time.is_some())) {
            ("X", _, [true, true]) => numbers,
            ("C", _, [true, false]) => numbers && !event.figures.is_empty(),
            ("M", "process_name" | "thread_name", [false, false]) => argument("name").is_some_and(Json::is_string),
            ("M", "thread_sort_index", [false, false]) => argument("sort_index").is_some_and(Json::is_i64),
            _ => false,
        };
        assert!(is_right && !event.name.is_empty(), "{event:?}");
    }
    let rows = events.iter().map(|event| (event.process, event.thread, &event.name));
    for row in rows.collect::<BTreeSet<_>>() {
        let of_row = events.iter().filter(|event| (event.process, event.thread, &event.name) == row);
        assert!(of_row.filter_map(|event| event.begin).is_sorted(), "{row:?}: {events:?}");
    }
    nested(&events);
    events
}

/// Asserts that, within a row, a span that begins within another ends within it.
fn nested(events: &[Event]) {
    let complete: Vec<_> = events.iter().filter(|event| event.phase == "X").collect();
    for (index, a) in complete.iter().enumerate() {
        for b in &complete[index + 1..] {
            if (a.process, a.thread) == (b.process, b.thread) && b.begin() < a.begin() + a.length() - 5e-4 {
                assert!(b.begin() + b.length() <= a.begin() + a.length() + 5e-4, "{b:?} ends after {a:?}");
            }
        }
    }
}

fn step(number: u64, at: f64, seconds: f64) -> StepRecord {
    let mut step = StepRecord::new(at, number);
    (step.seconds, step.samples, step.loss) = (seconds, 64, Some(0.5));
    (step.waited_s, step.loss_s, step.backward_s) = (Some(0.1 * seconds), Some(0.2 * seconds), Some(0.3 * seconds));
    (step.update_s, step.drain_s, step.in_use_bytes) = (Some(0.1 * seconds), Some(0.25 * seconds), Some(1 << 30));
    step
}

fn records() -> Vec<Record> {
    let mut run = Run::new(99.0, 4711);
    run.workload = "digits".to_owned();
    let mut records = vec![Record::Run(Box::new(run))];
    for number in 1..=30 {
        // Clocks differ by some microseconds.
        let at = 100.0 + number as f64 * 0.5 - if number % 3 == 0 { 4e-6 } else { 0.0 };
        records.push(Record::Step(Box::new(step(number, at, 0.5))));
        let mut sample = GpuSample::new(at - 0.25, 0);
        (sample.utilisation_percent, sample.power_mw) = (Some(90.0 + number as f64 / 10.0), Some(400_000));
        records.push(Record::Gpu(sample));
    }
    records.push(Record::Value(Value::new(105.1, "valid/loss", 0.75)));
    records
}

#[test]
fn every_step_is_shown_with_its_phases() {
    let events = strictly(from_records(&records(), Steps::ALL));
    let all = |name: &str| events.iter().filter(|event| event.phase == "X" && event.name == name).count();
    for part in ["wait for loader", "forward", "backward", "optimizer", "drain"] {
        assert_eq!(all(part), 30, "{part}");
    }
    let steps: Vec<_> = events.iter().filter(|event| event.phase == "X" && event.name.starts_with("step ")).collect();
    assert_eq!(steps.len(), 30);
    assert!(steps.iter().all(|step| step.process == 4711 && (step.length() - 5e5).abs() < 10.0), "half a second in us");
    let drain = events.iter().find(|event| event.name == "drain").unwrap();
    assert!((drain.length() - 125_000.0).abs() < 10.0, "{drain:?}");
    let counters = |name: &str| events.iter().filter(|event| event.phase == "C" && event.name == name).count();
    for counter in ["GPU 0 utilisation_percent", "GPU 0 power_w", "loss", "memory pools (bytes)"] {
        assert_eq!(counters(counter), 30, "{counter}");
    }
    let power = events.iter().find(|event| event.name == "GPU 0 power_w").unwrap();
    assert_eq!(power.figures["value"], 400.0);
    let rows: Vec<_> = events.iter().filter(|event| event.phase == "M" && event.name == "thread_name").collect();
    assert_eq!(rows.len(), 6, "a row for each kind");
}

#[test]
fn only_the_requested_steps_are_shown_with_the_figures_of_their_time() {
    let events = strictly(from_records(&records(), Steps { first: 10, last: 12 }));
    let steps = events.iter().filter(|event| event.phase == "X" && event.name.starts_with("step "));
    assert_eq!(steps.map(|step| &*step.name).collect::<Vec<_>>(), ["step 10", "step 11", "step 12"]);
    let begin = events.iter().filter_map(|event| event.begin).fold(f64::MAX, f64::min);
    assert!(begin.abs() < 1e-6, "it begins at 0: {begin}");
    let samples = events.iter().filter(|event| event.phase == "C" && event.name.contains("utilisation")).count();
    assert_eq!(samples, 3);
    assert!(events.iter().any(|event| event.name == "valid/loss"), "at second 105.1, in step 11");
    assert!(from_records(&records(), Steps { first: 50, last: 60 }).is_none());
}

#[test]
fn a_recording_of_the_machine_alone_has_its_counters() {
    let samples: Vec<_> = records().into_iter().filter(|record| matches!(record, Record::Gpu(_))).collect();
    let events = strictly(from_records(&samples, Steps::ALL));
    assert_eq!(events.iter().filter(|event| event.phase == "C").count(), 60);
    assert!(from_records(&[], Steps::ALL).is_none());
}

#[test]
fn a_trace_is_written_completely_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.json");
    let mut trace = Trace::default();
    let track = trace.track(1, "steps");
    trace.complete(track, "inner", 5.0, 1.0, &[]);
    trace.complete(track, "outer", 5.0, 2.0, &[]);
    trace.save(&path).unwrap();
    let file: File = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    let spans = file.trace_events.iter().filter(|event| event.phase == "X").map(|event| &*event.name);
    assert_eq!(spans.collect::<Vec<_>>(), ["outer", "inner"], "a span is written after the one that encloses it");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is left");
    assert!(Trace::default().save(&folder.path().join("none/trace.json")).is_err());
}
