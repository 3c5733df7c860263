use std::fs;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::workload::{Mlp, ModelSpec, Training, WorkloadSpec};
use gpu_tuned_core::{Bytes, Precision};
use gpu_tuned_observe::bench::{Begin, Feed, Figures, Header, Interval, Line, Outcome, Phases, Planned, Setup};

use super::super::super::MeasureError;
use super::Journal;

pub(in crate::measure::range) fn header() -> Header {
    let model = ModelSpec::Mlp(Mlp { widths: vec![4, 2] });
    Header {
        format: Header::FORMAT,
        workload: "lm".to_owned(),
        device: "CPU (2 cores)".to_owned(),
        kind: DeviceKind::Cpu,
        memory_bytes: Bytes::from_mib(1024),
        sm_count: 0,
        cpu_threads: Some(2),
        driver: None,
        burn: "0.22.1".to_owned(),
        cubecl: None,
        parameters: 10,
        shape: "00".to_owned(),
        described: WorkloadSpec { model, training: Training::default() },
        debug: true,
        counts_memory: false,
        full_f32: false,
    }
}

pub(in crate::measure::range) const fn setup(batch: u64) -> Setup {
    Setup { precision: Precision::F32, checkpointing: true, batch, feed: None }
}

pub(in crate::measure::range) fn figures(reserved: Option<Bytes>) -> Figures {
    Figures {
        samples_per_s: Interval { median: 815.2, least: 799.9, most: 820.3 },
        repeats: 5,
        step_ms: 0.1 + 0.2,
        phases: Some(Phases { forward_ms: 6.1, backward_ms: 12.3, optimizer_ms: 1.4 }),
        waiting_percent: None,
        reserved_bytes: reserved,
        in_use_bytes: None,
        predicted_bytes: None,
        gpu_percent: None,
        cpu_percent: Some(97.0),
        is_finite: false,
    }
}

pub(in crate::measure::range) fn begin() -> Begin {
    let (precision, checkpointing) = (Precision::F32, false);
    let planned = Planned { precision, checkpointing, batch: 8, workers: 1, prefetch: 2, accumulation: 1 };
    Begin { planned, setups: vec![setup(8)] }
}

#[test]
fn what_was_written_is_known_again_and_what_was_cut_off_is_not() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gpu-tuned.bench.jsonl");
    let fed = Setup { feed: Some(Feed { workers: 2, prefetch: 4 }), ..setup(8) };
    let phaseless = Figures { phases: None, waiting_percent: Some(12.5), ..figures(None) };
    let measured = [(setup(8), figures(Some(Bytes(77)))), (fed, phaseless)];
    let outcomes = measured.map(|(setup, figures)| (setup, Outcome::Measured(figures)));
    {
        let mut journal = Journal::open(&path).expect("it is opened");
        journal.begin(header(), begin()).expect("it is written");
        for (setup, outcome) in &outcomes {
            journal.add(&Line::Started(*setup)).expect("it is written");
            let ended = Line::Ended { setup: *setup, outcome: Box::new(outcome.clone()) };
            journal.add(&ended).expect("it is written");
        }
    }
    let whole = fs::read_to_string(&path).expect("the file");
    fs::write(&path, format!("{whole}{{\"ended\":{{\"preci")).expect("it can be written");

    let mut journal = Journal::open(&path).expect("it is opened");
    assert_eq!(journal.known(0, &header()).expect("it is read"), outcomes);
    for other in [Header { shape: "01".to_owned(), ..header() }, Header { full_f32: true, ..header() }] {
        assert_eq!(journal.known(0, &other).expect("it is read"), []);
    }
    let ignored = fs::metadata(&path).expect("the file").len();
    assert_eq!(journal.known(ignored, &header()).expect("it is read"), []);
    // The next line is one of its own.
    journal.begin(header(), begin()).expect("it is written");
    let last = fs::read_to_string(&path).expect("the file");
    let last = last.lines().last().expect("a line");
    assert_eq!(serde_json::from_str::<Line>(last).expect("a line"), Line::Begin(begin()));
}

#[test]
fn two_do_not_write_at_once() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("gpu-tuned.bench.jsonl");
    let first = Journal::open(&path).expect("it is opened");
    assert!(matches!(Journal::open(&path), Err(MeasureError::Results { .. })));
    drop(first);
    assert!(Journal::open(&path).is_ok());
}
