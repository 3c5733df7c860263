//! A program whose steps are timed over a range of settings, on the CPU: by itself, with a failure, and with a death.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

use burn::nn::{Linear, LinearConfig};
use burn::optim::AdamWConfig;
use burn::tensor::{Device, Tensor};
use gpu_tuned::mixed::in_f32;
use gpu_tuned::{Options, Precision, Session};
use gpu_tuned_observe::bench::{Feed, Line, Outcome, Request, Section, Sections, Setup};

use super::{Ended, Folder, one_layer};

const WIDTH: usize = 128;
/// The batches at which it fails and dies, and what a panic says.
const FAILS: &str = "TEST_FAILS_AT";
const DIES: &str = "TEST_DIES_AT";
const MESSAGE: &str = "TEST_MESSAGE";
/// Expected numbers.
const FLOAT: &str = "TEST_FLOAT";

config! { Config, mlp(widths = [128, 128]), global_batch = 64, target = "generic" }

fn session() -> Session<Config> {
    Options::default().cpu().start(Config::default()).expect("there is a CPU")
}

/// The loss, of numbers as they have to be.
fn mean(model: &Linear, batch: Tensor<2>) -> Tensor<1> {
    let float = format!("{:?}", (batch.dtype(), model.weight.dtype()));
    assert!(env::var(FLOAT).is_ok_and(|wanted| float == format!("({wanted}, {wanted})")), "{float}");
    in_f32(model.forward(batch)).mean()
}

fn at(variable: &str) -> Option<usize> {
    env::var(variable).ok()?.parse().ok()
}

/// Not a test of its own: what the others run.
#[test]
#[ignore = "a program for the tests below"]
fn program() {
    let (fails, dies) = (at(FAILS), at(DIES));
    let subject = one_layer(WIDTH, move |model, batch| {
        let samples = Some(batch.dims()[0]);
        assert!(samples != fails, "{}", env::var(MESSAGE).unwrap_or_else(|_| "no such image".to_owned()));
        if samples == dies {
            std::process::abort();
        }
        mean(model, batch)
    });
    match session().measure_if_asked("one-layer", &subject) {
        Ok(()) => println!("went on"),
        Err(error) => panic!("{error}"),
    }
}

/// Program that does not call `measure_if_asked`: it trains.
#[test]
#[ignore = "a program for the tests below"]
fn program_that_only_trains() {
    let session = session();
    let model = LinearConfig::new(WIDTH, WIDTH).init(&session.device());
    let mut trainer = session.trainer(model, AdamWConfig::new().init()).expect("a trainer");
    let batch = Tensor::<2>::ones([64, WIDTH], &Device::flex());
    trainer.step(1e-3, batch, mean).expect("a step");
    println!("went on");
}

/// Requests and answers.
struct Bench {
    folder: Folder,
    request: Request,
}

/// Request of f32 steps.
pub(super) fn request(results: PathBuf, batches: &[u64]) -> Request {
    Request {
        results,
        precision: Some(Precision::F32),
        batches: batches.to_vec(),
        checkpointing: vec![false],
        feeds: Vec::new(),
        seconds: 0.05,
        ignored_bytes: 0,
    }
}

impl Bench {
    fn of(batches: &[u64]) -> Self {
        let folder = Folder::new();
        let request = request(folder.0.path().join("gpu-tuned.bench.jsonl"), batches);
        Self { folder, request }
    }

    fn run(&self, program: impl Fn(), variables: &[(&str, &str)]) -> Ended {
        let request = serde_json::to_string(&self.request).expect("JSON");
        self.folder.run(program, &[&[(Request::VARIABLE, request.as_str()), (FLOAT, "F32")], variables].concat())
    }

    /// Records after a successful run.
    fn ran(&self, program: impl Fn(), variables: &[(&str, &str)]) -> Section {
        let ended = self.run(program, variables);
        assert!(ended.is_ok && !ended.went_on(), "{}{}", ended.stdout, ended.stderr);
        section(&self.request.results)
    }
}

fn section(results: &Path) -> Section {
    let text = fs::read_to_string(results).expect("results");
    let lines =
        text.lines().map(|line| serde_json::from_str::<Line>(line).unwrap_or_else(|error| panic!("{error}: {line}")));
    Sections::from_lines(lines).last().expect("a header").clone()
}

const fn setup(batch: u64) -> Setup {
    Setup { precision: Precision::F32, checkpointing: false, batch, feed: None }
}

#[test]
fn each_setup_is_timed_and_written_down() {
    let mut bench = Bench::of(&[8, 32]);
    bench.request.checkpointing = vec![false, true];
    bench.request.feeds = vec![Feed { workers: 1, prefetch: 2 }];
    let section = bench.ran(program, &[]);
    let header = &section.header;
    assert_eq!((header.workload.as_str(), header.parameters), ("one-layer", (WIDTH * WIDTH + WIDTH) as u64));
    assert!(header.device.starts_with("CPU") && header.cpu_threads.is_some() && header.driver.is_none());
    assert_eq!((section.outcomes.len(), section.open), (8, None));
    for (setup, outcome) in &section.outcomes {
        let figures = outcome.figures().unwrap_or_else(|| panic!("{setup}: {outcome}"));
        let speed = figures.samples_per_s;
        assert!(speed.least > 0.0 && speed.least <= speed.median && speed.median <= speed.most && figures.repeats >= 3);
        assert!(figures.is_finite && figures.cpu_percent.is_some_and(|percent| percent > 0.0));
        let is_fed = setup.feed.is_some();
        assert_eq!((figures.phases.is_none(), figures.waiting_percent.is_some()), (is_fed, is_fed), "{setup}");
        let counted = cfg!(feature = "counting-allocator") && !is_fed;
        assert_eq!(figures.reserved_bytes.is_some(), counted, "{setup}");
        if let Some(bytes) = figures.reserved_bytes {
            // The weights, their gradients and two moments.
            assert!(bytes.0 > 4 * 4 * header.parameters, "{setup}: {bytes}");
        }
    }
}

#[test]
fn what_is_on_record_is_not_run_again_unless_it_is_ignored() {
    let mut bench = Bench::of(&[8]);
    let first = bench.ran(program, &[]);
    bench.request.batches = vec![8, 16];
    let second = bench.ran(program, &[]);
    assert_eq!(second.outcomes[&setup(8)], first.outcomes[&setup(8)]);
    assert!(second.outcomes.contains_key(&setup(16)));
    bench.request.ignored_bytes = fs::metadata(&bench.request.results).expect("results").len();
    let third = bench.ran(program, &[]);
    assert_ne!(third.outcomes[&setup(8)], first.outcomes[&setup(8)]);
}

#[test]
fn a_failure_is_the_end_of_its_setup_alone() {
    let bench = Bench::of(&[8, 16, 32]);
    let outcomes = bench.ran(program, &[(FAILS, "16")]).outcomes;
    assert!(matches!(&outcomes[&setup(16)], Outcome::Failed { message } if message.contains("no such image")));
    assert!(outcomes[&setup(8)].figures().is_some() && outcomes[&setup(32)].figures().is_some(), "{outcomes:?}");
}

#[test]
fn where_memory_runs_out_the_process_ends_and_the_next_does_the_rest() {
    let bench = Bench::of(&[8, 16, 32]);
    let variables = [(FAILS, "16"), (MESSAGE, "out of device memory allocating 4096 bytes")];
    let first = bench.ran(program, &variables).outcomes;
    assert!(matches!(&first[&setup(16)], Outcome::OutOfMemory { .. }), "{first:?}");
    assert!(!first.contains_key(&setup(32)));
    assert!(bench.ran(program, &variables).outcomes[&setup(32)].figures().is_some());
}

#[test]
fn what_a_process_died_of_is_what_it_had_begun() {
    let bench = Bench::of(&[8, 16, 32]);
    assert!(!bench.run(program, &[(DIES, "16")]).is_ok);
    let section = section(&bench.request.results);
    assert_eq!(section.open, Some(setup(16)));
    assert!(section.outcomes[&setup(8)].figures().is_some());
}

#[test]
fn a_program_that_only_trains_is_timed_in_place_of_its_first_step() {
    let bench = Bench::of(&[16, 64, 128]);
    let outcomes = bench.ran(program_that_only_trains, &[]).outcomes;
    assert!(outcomes[&setup(16)].figures().is_some() && outcomes[&setup(64)].figures().is_some(), "{outcomes:?}");
    assert_eq!(outcomes[&setup(128)], Outcome::TooLarge { samples: 64 });
}

#[test]
fn without_batches_they_are_those_around_the_planned_one() {
    let bench = Bench::of(&[]);
    let section = bench.ran(program, &[]);
    let begin = section.begin.expect("it has begun");
    let batches: Vec<u64> = begin.setups.iter().map(|setup| setup.batch).collect();
    assert_eq!(batches, Request::around(begin.planned.batch, 64));
    assert!(
        section.outcomes.iter().any(|(setup, outcome)| begin.planned.matches(setup, section.header.kernels) && outcome.figures().is_some())
    );
}

#[test]
fn other_number_formats_are_timed_where_they_are_asked_for() {
    for precision in [Precision::Bf16Params, Precision::MixedBf16] {
        times_what_is_asked_for(program, Precision::F32, precision);
        times_what_is_asked_for(program_that_only_trains, Precision::F32, precision);
    }
}

#[test]
fn what_is_asked_for_counts_before_what_is_planned() {
    // The only 16-bit format that is planned for a CPU.
    for asked in [Precision::F32, Precision::Bf16Params, Precision::MixedBf16] {
        times_what_is_asked_for(program_that_only_trains, Precision::MixedF16, asked);
    }
}

fn times_what_is_asked_for(program: impl Fn(), planned: Precision, asked: Precision) {
    let mut bench = Bench::of(&[1]);
    bench.request.precision = Some(asked);
    let float = if asked == Precision::F32 { "F32" } else { "BF16" };
    let section = bench.ran(program, &[(FLOAT, float), (Options::SET_VARIABLE, &format!("precision={planned}"))]);
    assert_eq!(section.begin.as_ref().expect("it has begun").planned.precision, planned);
    let outcome = &section.outcomes[&Setup { precision: asked, ..setup(1) }];
    let figures = outcome.figures().unwrap_or_else(|| panic!("{asked} for {planned}: {outcome}"));
    assert_eq!(figures.reserved_bytes.is_some(), cfg!(feature = "counting-allocator"));
    let Some(bytes) = figures.reserved_bytes else { return };
    // Weights, gradients and two moments, and a result or two of the optimizer's: of 2 bytes or of 4, whatever computes.
    let each = bytes.0 as f64 / section.header.parameters as f64;
    let right = if asked == Precision::Bf16Params { 8.0..17.0 } else { 18.0..26.0 };
    assert!(right.contains(&each), "{asked} for {planned}: {each} bytes for each parameter");
}

#[test]
fn what_cannot_be_read_is_an_error() {
    let bench = Bench::of(&[8]);
    let Ended { is_ok, stderr, .. } = bench.run(program, &[(Request::VARIABLE, "1")]);
    assert!(!is_ok && stderr.contains("GPU_TUNED_BENCH"), "{stderr}");
    assert!(!bench.request.results.exists());
}
