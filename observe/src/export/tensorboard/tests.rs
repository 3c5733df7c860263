use std::fs;

use prost::Message;

use super::{Event, EventWriter, Scalar, Summary};
use crate::recording::{GpuSample, Observer, Record, StepRecord, Value};

/// Reads the events of a file by their lengths.
fn events(bytes: &[u8]) -> Vec<Event> {
    let (mut events, mut rest) = (Vec::new(), bytes);
    while let Some((length, tail)) = rest.split_first_chunk::<8>() {
        let length = usize::try_from(u64::from_le_bytes(*length)).unwrap();
        events.push(Event::decode(&tail[4..4 + length]).unwrap());
        rest = &tail[8 + length..];
    }
    events
}

#[test]
fn records_are_exported_by_step_and_by_sample() {
    let folder = tempfile::tempdir().unwrap();
    let mut writer = EventWriter::create(folder.path().join("runs/one")).unwrap();
    let mut step = StepRecord::new(10.0, 7);
    (step.seconds, step.samples, step.loss, step.rank) = (0.5, 64, Some(0.0), 1);
    let mut gpu = GpuSample::new(11.0, 0);
    gpu.utilisation_percent = Some(98.0);
    let records = [Record::Gpu(gpu.clone()), Record::Gpu(gpu), Record::Value(Value::new(12.0, "valid/loss", 0.5))];
    writer.observe(&Record::Step(Box::new(step)));
    for record in &records {
        writer.observe(record);
    }
    Observer::flush(&mut writer);
    let events = events(&fs::read(writer.path()).unwrap());
    assert_eq!(events[0].file_version.as_deref(), Some("brain.Event:2"));
    let of_step = &events[1].summary.as_ref().unwrap().value;
    let value = |tag: &str| of_step.iter().find(|scalar| scalar.tag == tag).and_then(|scalar| scalar.simple_value);
    assert_eq!((value("rank1/train/loss"), value("rank1/time/samples_per_s")), (Some(0.0), Some(128.0)));
    assert_eq!(value("rank1/train/gradient_norm"), None);
    assert!(events[1..].iter().map(|event| event.step).eq([7, 1, 2, 7]));
}

#[test]
fn every_writer_has_its_own_file() {
    let folder = tempfile::tempdir().unwrap();
    let writers = [(); 3].map(|()| EventWriter::create(folder.path()).unwrap());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), writers.len());
}

/// Expected bytes: the same events by TensorBoard 2.21, `Event(...)` of `event_pb2` written by its `RecordWriter`.
#[test]
fn events_equal_those_of_tensorboards_writer() {
    let first = Event { wall_time: 1.5, step: 0, file_version: Some("brain.Event:2".to_owned()), summary: None };
    let scalar = |tag: &str, value| Scalar { tag: tag.to_owned(), simple_value: Some(value) };
    let summary = Summary { value: vec![scalar("train/loss", 0.25), scalar("zero", 0.0)] };
    let second = Event { wall_time: 1_795_347_200.5, step: 300, file_version: None, summary: Some(summary) };
    let bytes: Vec<u8> = [first, second].iter().flat_map(Event::framed).collect();
    let written = WRITTEN_BY_TENSORBOARD.as_bytes().chunks(2);
    let written = written.map(|byte| u8::from_str_radix(std::str::from_utf8(byte).unwrap(), 16).unwrap());
    assert_eq!(bytes, written.collect::<Vec<_>>());
}

const WRITTEN_BY_TENSORBOARD: &str = "\
    1800000000000000a37f4b2209000000000000f83f1a0d627261696e2e4576656e743a322a28646c2e00000000000000\
    c5cb57fa09000020c0b4c0da4110ac022a200a110a0a747261696e2f6c6f7373150000803e0a0b0a047a65726f150000\
    00000cec4293";
