use std::cell::RefCell;
use std::fs;
use std::time::Duration;

use gpu_tuned_core::device::DeviceKind;
use gpu_tuned_core::workload::{Mlp, ModelSpec, Training, WorkloadSpec};
use gpu_tuned_core::{Bytes, Kernels, Precision};
use gpu_tuned_observe::bench::{Begin, Feed, Figures, Header, Interval, Line, Outcome, Phases, Planned, Setup};
use tempfile::TempDir;

use super::{Journal, Progress, Sweep, about, line};
use crate::measure::range::StepRunner;
use crate::measure::{MeasureError, Memory, Step};

const MIB: u64 = 1 << 20;

/// Steps that take 100 MiB and 10 for each sample, and do what a device would.
struct Fake {
    room: Bytes,
    /// True if steps have dry runs, as on a GPU.
    is_gpu: bool,
    /// Batch that fails, with its message.
    fails: Option<(usize, &'static str)>,
    has_preparation: bool,
    other_kernels: Option<Kernels>,
    ran: RefCell<Vec<String>>,
}

fn fake(is_gpu: bool, room_mib: u64) -> Fake {
    let room = Bytes::from_mib(room_mib);
    Fake { room, is_gpu, fails: None, has_preparation: true, other_kernels: None, ran: RefCell::default() }
}

impl Fake {
    fn say(&self, what: &str, step: Step) {
        self.ran.borrow_mut().push(format!("{what} {}", step.batch));
    }

    fn takes(step: Step) -> Memory {
        let reserved_bytes = Bytes((100 + 10 * step.batch as u64) * MIB);
        Memory { reserved_bytes, in_use_bytes: Some(Bytes(MIB)) }
    }
}

impl StepRunner for Fake {
    fn room(&self) -> Result<Bytes, MeasureError> {
        Ok(self.room)
    }

    fn foresee(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        if !self.is_gpu {
            return Ok(None);
        }
        self.say("dry", step);
        Ok(Some(Self::takes(step)))
    }

    fn probe(&self, step: Step) -> Result<Option<Memory>, MeasureError> {
        if self.is_gpu {
            return Ok(None);
        }
        self.say("probe", step);
        Ok(Some(Self::takes(step)))
    }

    fn run(&self, step: Step) -> Result<Figures, MeasureError> {
        self.say("run", step);
        match self.fails {
            Some((batch, message)) if batch == step.batch => {
                Err(MeasureError::Step { step, message: message.to_owned() })
            }
            _ => Ok(figures(Some(Self::takes(step).reserved_bytes))),
        }
    }

    fn run_fed(&self, step: Step, feed: Feed) -> Result<Option<Figures>, MeasureError> {
        self.say(&format!("feed by {}", feed.workers), step);
        Ok(self.has_preparation.then(|| figures(None)))
    }
}

/// Outcomes of the configurations, and results on record afterwards.
struct Ran {
    known: Vec<(Setup, Outcome)>,
    folder: TempDir,
}

fn run(fake: &Fake, known: &[(Setup, Outcome)], setups: &[Setup]) -> Ran {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(&folder.path().join("results")).expect("it is opened");

    journal.begin(header(), begin()).expect("it is written");
    let climb = Sweep {
        runner: fake,
        largest: 512,
        checkpointing: &[false, true],
        known: known.to_vec(),
        journal: &mut journal,
        after_output: &|| (),
        other_kernels: &|| fake.other_kernels,
    };
    climb.run(setups).expect("nothing but steps fails");
    Ran { known: journal.known(0, &header()).expect("it is read"), folder }
}

impl Ran {
    fn outcomes(&self) -> Vec<String> {
        self.known.iter().map(|(setup, outcome)| format!("{}: {outcome}", setup.batch)).collect()
    }

    fn lines(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.path().join("results")).expect("the results");
        text.lines().map(|line| line.chars().skip(2).take_while(|c| *c != '"').collect()).collect()
    }
}

#[test]
fn what_would_take_too_much_is_told_by_smaller_batches_and_not_run() {
    let setups = [8, 16, 32, 64].map(setup);
    for (is_gpu, before) in
        [(true, ["dry 8", "run 8", "dry 16", "run 16"]), (false, ["probe 1", "probe 2", "run 8", "run 16"])]
    {
        let fake = fake(is_gpu, 300);
        let ran = run(&fake, &[], &setups);
        assert_eq!(*fake.ran.borrow(), before, "32 takes 420 MiB");
        let reported = ["8: 815 samples/s", "16: 815 samples/s", "32: does not fit: needs 420.0 MiB of 300.0 MiB"];
        assert_eq!(ran.outcomes()[..3], reported);
        assert!(ran.outcomes()[3].contains("740.0 MiB"), "{:?}", ran.outcomes());
    }
}

#[test]
fn a_first_batch_that_a_dry_run_says_is_too_large_is_not_run() {
    let fake = fake(true, 300);
    assert!(run(&fake, &[], &[setup(64)]).outcomes()[0].contains("does not fit"));
    assert_eq!(*fake.ran.borrow(), ["dry 64"]);
}

#[test]
fn what_is_on_record_is_not_run_again_and_tells_what_others_take() {
    let known = |batch: u64| {
        let taken = Bytes((100 + 10 * batch) * MIB);
        (setup(batch), Outcome::Measured(figures(Some(taken))))
    };
    let died = (setup(4), Outcome::Died { how: "signal 9".to_owned() });
    let misfit = Outcome::DoesNotFit { needed_bytes: Bytes(2), available_bytes: Bytes(1) };
    let fake = fake(false, 300);
    let known = [died, known(8), known(16), (setup(18), misfit)];
    let ran = run(&fake, &known, &[4, 8, 16, 18, 32].map(setup));
    // A batch that did not fit then may fit now.
    assert_eq!(*fake.ran.borrow(), ["run 18"]);
    assert!(ran.outcomes()[1].contains("420.0 MiB"), "{:?}", ran.outcomes());
}

#[test]
fn other_kernels_are_recorded_once() {
    let fake = Fake { other_kernels: Some(Kernels::Library), ..fake(true, 9000) };
    let ran = run(&fake, &[], &[setup(8), setup(16)]);
    assert_eq!(ran.lines(), ["header", "begin", "started", "ended", "other_kernels", "started", "ended"]);
}

#[test]
fn a_step_that_fails_is_the_end_of_its_setup_alone() {
    let fake = Fake { fails: Some((16, "no such image")), ..fake(true, 9000) };
    let fed = Setup { feed: Some(Feed { workers: 2, prefetch: 1 }), ..setup(16) };
    let ran = run(&fake, &[], &[setup(8), setup(16), fed, setup(32)]);
    let wanted = ["8: 815 samples/s", "16: failed: no such image", "16: failed: no such image", "32: 815 samples/s"];
    assert_eq!(ran.outcomes(), wanted);
    assert!(!fake.ran.borrow().iter().any(|ran| ran.starts_with("feed")));
    let each = ["started", "ended"];
    assert_eq!(ran.lines(), [&["header", "begin"][..], &each, &each, &each, &each].concat());
}

#[test]
fn where_memory_runs_out_the_rest_is_left_to_another_process() {
    let fake = Fake { fails: Some((16, "out of device memory allocating 4096 bytes")), ..fake(true, 9000) };
    let setups = [8, 16, 32].map(setup);
    let ran = run(&fake, &[], &setups);
    assert_eq!(ran.outcomes(), ["8: 815 samples/s", "16: out of memory: out of device memory allocating 4096 bytes"]);
    let next = run(&fake, &ran.known, &setups);
    assert_eq!(next.outcomes(), ["32: 815 samples/s"]);
}

#[test]
fn what_cannot_be_asked_of_the_program_is_said_and_not_run() {
    let fake = Fake { has_preparation: false, ..fake(true, 90_000) };
    let fed = Setup { feed: Some(Feed { workers: 1, prefetch: 1 }), ..setup(8) };
    let outcomes = run(&fake, &[], &[setup(8), fed, setup(1024)]).outcomes();
    assert!(outcomes[1].contains("host_batch"), "{outcomes:?}");
    assert_eq!(outcomes[2], "1024: not run: a step has 512 samples");
}

fn header() -> Header {
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
        kernels: Kernels::Burn,
    }
}

const fn setup(batch: u64) -> Setup {
    Setup { precision: Precision::F32, checkpointing: true, batch, feed: None }
}

fn figures(reserved: Option<Bytes>) -> Figures {
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

fn begin() -> Begin {
    let (precision, checkpointing, kernels) = (Precision::F32, false, Kernels::Burn);
    let planned = Planned { precision, checkpointing, batch: 8, workers: 1, prefetch: 2, accumulation: 1, kernels };
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
    let other_model = Header { shape: "01".to_owned(), ..header() };
    for other in [other_model, Header { full_f32: true, ..header() }, Header { kernels: Kernels::Library, ..header() }]
    {
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

#[test]
fn a_setup_is_one_line_with_the_time_that_is_left() {
    let setup = |batch| Setup { precision: Precision::F32, checkpointing: false, batch, feed: None };
    let setups = [setup(8), setup(16), setup(32), setup(64)];
    let mut progress = Progress::new(&setups, 3);
    let figures = Figures {
        samples_per_s: Interval { median: 815.2, least: 799.9, most: 820.3 },
        repeats: 5,
        step_ms: 19.628,
        phases: Some(Phases { forward_ms: 6.1, backward_ms: 12.3, optimizer_ms: 1.4 }),
        waiting_percent: None,
        reserved_bytes: Some(Bytes::from_mib(4738)),
        in_use_bytes: None,
        predicted_bytes: None,
        gpu_percent: None,
        cpu_percent: Some(97.0),
        is_finite: false,
    };
    let place = progress.after(setup(16), Duration::from_secs(30));
    assert_eq!(
        line(&place, &Outcome::Measured(figures)),
        "2/4 (about 60 s left) f32, batch 16: 815 samples/s (800 to 820), step 19.63 ms, forward 6.10, backward 12.30, \
         optimizer 1.40 ms, 4.6 GiB, the loss is no finite number"
    );
    progress.after(setup(32), Duration::from_secs(90));
    let failed = Outcome::Failed { message: "no such image\nbacktrace".to_owned() };
    let place = progress.after(setup(64), Duration::from_secs(1));
    assert_eq!(line(&place, &failed), "4/4 f32, batch 64: failed: no such image");
}

#[test]
fn time_is_told_in_the_unit_that_suits_it() {
    let reported = [0, 99, 100, 5999, 6000].map(|seconds| about(Duration::from_secs(seconds)));
    assert_eq!(reported, ["about 1 s", "about 99 s", "about 2 min", "about 100 min", "about 2 h"]);
}
