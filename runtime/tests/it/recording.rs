//! Records that a session writes of its steps.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::Duration;

use burn::data::dataset::InMemDataset;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::optim::SgdConfig;
use gpu_tuned::recording::{Observer, Record, Run, StepRecord, read};
use gpu_tuned::trace::Steps;
use gpu_tuned::train::Step;
use gpu_tuned::workload::Family;
use gpu_tuned::{Options, Session};
use networks::Rows;
use serde_json::Value;

// Optimizer steps of 32 samples, in micro-batches of 8.
config! {
    Config { #[tuned] batch_size: usize, #[tuned] num_workers: usize },
    mlp(widths = [4, 4]), global_batch = 32, target = "generic"
}

fn dataset(steps: usize) -> InMemDataset<[f32; 4]> {
    let row = |number: f32| [number, 1.0 - number, number * number, 1.0];
    InMemDataset::new((0..32 * steps).map(|index| row((index * 7 % 11) as f32 / 11.0)).collect())
}

fn options(path: &Path) -> Options {
    Options::default().cpu().record(path)
}

const NONE: Duration = Duration::ZERO;

/// Times that a run takes where it could be quick.
#[derive(Clone, Copy)]
struct Slow {
    batch: Duration,
    loss: Duration,
    outside: Duration,
}

fn train(session: &Session<Config>, steps: usize, slow: Slow) -> Vec<Step> {
    // Random ones would be dealt out among tests that run at once.
    let weights = Initializer::Constant { value: 0.3 };
    let model = LinearConfig::new(4, 1).with_initializer(weights).init(&session.device());
    let mut trainer = session.trainer(model, SgdConfig::new().init()).expect("one rank");
    let mut taken = Vec::new();
    for batch in session.loader(dataset(steps), Rows { delay: slow.batch }).iter() {
        let loss = |model: &Linear, rows| {
            sleep(slow.loss);
            model.forward(rows).powi_scalar(2).mean()
        };
        taken.push(trainer.step(0.01, batch.expect("rows"), loss).expect("it fits"));
        sleep(slow.outside);
    }
    taken
}

fn parts(path: &Path) -> (Run, Vec<StepRecord>) {
    let (mut run, mut steps) = (None, Vec::new());
    for record in read(path).expect("a recording").records {
        match record {
            Record::Run(found) => assert!(run.replace(*found).is_none(), "one start"),
            Record::Step(step) => steps.push(*step),
            other => panic!("{other:?}"),
        }
    }
    (run.expect("a start"), steps)
}

fn recorded(slow: Slow) -> Vec<StepRecord> {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let session = options(&path).start(Config { batch_size: 8, num_workers: 1 }).expect("it fits");
    let taken = train(&session, 5, slow);
    drop(session);
    let (_, steps) = parts(&path);
    assert_eq!(steps.len(), taken.len());
    steps
}

#[test]
fn the_start_says_what_is_trained_where_and_how_and_what_else_was_expected() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    let session = options(&path).start(Config { batch_size: 8, num_workers: 0 }).expect("it fits");
    session.recorder().expect("it records").flush();
    let (run, _) = parts(&path);
    assert_eq!((&*run.workload, run.target.as_deref()), ("Config", Some("generic")));
    assert_eq!((run.pid, run.device.is_gpu, run.world_size), (std::process::id(), false, 1));
    assert_eq!((run.global_batch, run.settings), (Some(32), Some(session.plan().settings)));
    assert_eq!(run.memory_planned_bytes, Some(session.plan().memory.total().0));
    assert_eq!(run.fallbacks.len(), session.selection().fallbacks.len());
    assert_eq!((run.family, run.library_speed_up), (Some(Family::Other), None));
    assert!(run.reasons.contains(&"batch_size = 8: set in the config (declared)".to_owned()), "{:?}", run.reasons);
    let batches: Vec<_> =
        run.expected.iter().filter(|expected| !expected.checkpointing).map(|expected| expected.batch).collect();
    for batch in [1, 8, 32, 64] {
        assert!(batches.contains(&batch), "{batches:?}");
    }
    let planned = run.expected.iter().find(|expected| expected.batch == 8 && !expected.checkpointing).expect("it");
    assert!((planned.samples_per_s / session.plan().samples_per_s - 1.0).abs() < 1e-9, "{planned:?}");
}

#[test]
fn steps_say_where_their_time_went() {
    let long = Duration::from_millis(20);
    let quick = Slow { batch: NONE, loss: NONE, outside: NONE };
    let seconds = |time: Option<f64>| time.expect("it is known");
    for step in recorded(Slow { loss: long, ..quick }) {
        assert_eq!((step.samples, step.micro_batches, step.micro_batch, step.applied), (32, 4, 8, true));
        assert!(seconds(step.loss_s) >= 4.0 * long.as_secs_f64(), "{step:?}");
        assert!(step.loss_cpu_s.is_none_or(|processor| processor < 0.5 * seconds(step.loss_s)), "{step:?}");
    }
    let steps = recorded(Slow { batch: long, ..quick });
    // On a busy machine a batch may be ready before the trainer asks for it, but not all of them.
    assert!(steps.iter().any(|step| seconds(step.waited_s) > 0.25 * long.as_secs_f64()), "{steps:?}");
    // On a busy machine the batches of two steps may be prepared in one, and none in the other.
    for step in &steps[1..] {
        assert!(step.prepared_cpu_s.is_none_or(|processor| processor <= seconds(step.prepared_s)), "{step:?}");
    }
    let steps = recorded(Slow { outside: long, ..quick });
    assert!(steps[1..].iter().all(|step| seconds(step.outside_s) >= long.as_secs_f64()), "{steps:?}");
    // On a busy machine the loader may be late, but not every time.
    assert!(steps.iter().any(|step| step.queued > Some(0)), "{steps:?}");
}

#[test]
fn the_parts_of_a_step_are_no_more_than_the_whole_and_nearly_all_of_it() {
    let long = Duration::from_millis(5);
    let steps = recorded(Slow { batch: NONE, loss: long, outside: long });
    let mut all = (0.0, 0.0);
    for step in &steps {
        let parts =
            [step.waited_s, step.outside_s, step.upload_s, step.loss_s, step.backward_s, step.update_s, step.drain_s];
        let sum: f64 = parts.into_iter().flatten().sum();
        assert!(sum <= step.seconds + 1e-6, "{step:?}");
        all = (all.0 + sum, all.1 + step.seconds);
    }
    assert!(all.0 >= 0.5 * all.1, "{steps:?}");
    assert!(steps.iter().map(|step| step.step).eq(1..=5));
    assert!(steps.is_sorted_by(|a, b| a.at <= b.at));
    let prepared: u64 = steps.iter().filter_map(|step| step.prepared).sum();
    assert_eq!(prepared, 5, "every batch once");
}

#[test]
fn recording_changes_nothing_of_the_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let config = || Config { batch_size: 8, num_workers: 1 };
    let slow = Slow { batch: NONE, loss: NONE, outside: NONE };
    let plain = train(&Options::default().cpu().start(config()).expect("it fits"), 4, slow);
    let path = folder.path().join("run.jsonl");
    let recorded = train(&options(&path).start(config()).expect("it fits"), 4, slow);
    assert_eq!(plain, recorded);
    let (_, steps) = parts(&path);
    let losses = |step: &Step| Some(f64::from(step.loss));
    assert!(steps.iter().map(|step| step.loss).eq(plain.iter().map(losses)));
    let nowhere = folder.path().join("none/run.jsonl");
    assert_eq!(plain, train(&options(&nowhere).start(config()).expect("it fits"), 4, slow), "and no file ends no run");
}

#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Record>>>);

impl Observer for Seen {
    fn observe(&mut self, record: &Record) {
        self.0.lock().expect("nobody panics").push(record.clone());
    }
}

#[test]
fn an_observer_sees_steps_and_figures_as_they_come() {
    let seen = Seen::default();
    let session = Options::default().cpu().observe(seen.clone()).start(Config::default()).expect("it fits");
    session.value("valid/accuracy", 0.5);
    train(&session, 2, Slow { batch: NONE, loss: NONE, outside: NONE });
    session.recorder().expect("somebody looks").flush();
    let records = seen.0.lock().expect("nobody panics");
    let kinds = records.iter().map(|record| match record {
        Record::Run(_) => "run",
        Record::Step(_) => "step",
        Record::Value(value) if value.name == "valid/accuracy" => "value",
        _ => "other",
    });
    assert_eq!(kinds.collect::<Vec<_>>(), ["run", "value", "step", "step"]);
}

#[cfg(feature = "distributed")]
#[test]
fn every_rank_records_its_own_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    crate::launched::launched(2, |_, as_rank| {
        let session = as_rank(options(&path)).start(Config { batch_size: 8, num_workers: 1 });
        train(&session.expect("it fits"), 3, Slow { batch: NONE, loss: NONE, outside: NONE });
    });
    for (rank, path) in [(0, path), (1, folder.path().join("run.rank1.jsonl"))] {
        let (run, steps) = parts(&path);
        assert_eq!(run.world_size, 2);
        let reported = steps
            .iter()
            .map(|step| (step.rank, step.step, step.samples, step.micro_batches, step.exchange_s.is_some()));
        let expected = [1, 2, 3].map(|step| (rank, step, 32, 2, true));
        assert_eq!(reported.collect::<Vec<_>>(), expected);
    }
}

#[cfg(feature = "distributed")]
#[test]
fn the_first_rank_records_the_slowest() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("run.jsonl");
    crate::launched::launched(2, |rank, as_rank| {
        let session = as_rank(options(&path)).start(Config { batch_size: 8, num_workers: 1 }).expect("it fits");
        let loss = Duration::from_millis(if rank == 1 { 100 } else { 0 });
        train(&session, 10, Slow { batch: NONE, loss, outside: NONE });
    });
    let (_, steps) = parts(&path);
    let slowest = steps.last().and_then(|step| step.slowest_rank.clone()).expect("ranks report their times");
    assert_eq!(slowest.rank, 1);
    assert!(slowest.seconds > 1.5 * slowest.others_s, "{slowest:?}");
    let (_, steps) = parts(&folder.path().join("run.rank1.jsonl"));
    assert!(steps.iter().all(|step| step.slowest_rank.is_none()));
}

#[test]
fn a_live_trace_has_the_phases_of_every_micro_batch_within_their_steps() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("trace.json");
    let steps = Steps { first: 3, last: 4 };
    let session = Options::default().cpu().trace(&path, steps).start(Config { batch_size: 8, num_workers: 2 });
    train(&session.expect("it fits"), 6, Slow { batch: NONE, loss: Duration::from_millis(1), outside: NONE });
    let trace: Value = serde_json::from_slice(&std::fs::read(&path).expect("it was written")).expect("JSON");
    let events = trace["traceEvents"].as_array().expect("events");
    let names = |name: &str| events.iter().filter(|event| event["ph"] == "X" && event["name"] == name).count();
    assert_eq!((names("step 3"), names("step 4"), names("step 2"), names("step 5")), (1, 1, 0, 0));
    for phase in ["micro-batch", "upload", "forward", "backward", "accumulation"] {
        assert_eq!(names(phase), 8, "{phase}");
    }
    assert_eq!((names("drain"), names("wait for loader")), (2, 2));
    let span = |event: &Value| {
        let (begin, length) = (event["ts"].as_f64().expect("ts"), event["dur"].as_f64().expect("dur"));
        (begin, begin + length)
    };
    let all = |prefix: &str| -> Vec<_> {
        let begins = |event: &&Value| event["name"].as_str().is_some_and(|name| name.starts_with(prefix));
        events.iter().filter(|event| event["ph"] == "X").filter(begins).map(span).collect()
    };
    let steps = all("step ");
    for inner in all("micro-batch") {
        assert!(steps.iter().any(|step| step.0 <= inner.0 && inner.1 <= step.1 + 0.001), "{inner:?} in {steps:?}");
    }
    for inner in all("forward") {
        assert!(inner.1 - inner.0 >= 1000.0, "a millisecond in microseconds: {inner:?}");
    }
}
