//! An interrupted and resumed run must end like an uninterrupted one.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::{Device, Tensor},
};
use char_lm::{
    checkpoint::Checkpoints,
    config::TrainingConfig,
    model::Model,
    text::Corpus,
    training::{State, Training, learning_rates},
};
use gpu_tuned::train::Trainer;
use indicatif::ProgressBar;

const STEPS: usize = 20;
const GLOBAL_BATCH: usize = 8;
const MICRO_BATCH: usize = 5;

#[test]
fn a_resumed_run_ends_like_one_that_was_not_interrupted() {
    let corpus = corpus();
    let whole = advance(&corpus, fresh(&corpus), None, None);
    // In the middle of warm-up, after it, and in the middle of writing a checkpoint.
    for stop in [2, 7, 13] {
        let directory = tempfile::tempdir().unwrap();
        let checkpoints = Checkpoints::new(directory.path().to_owned(), 5);
        let stopped = advance(&corpus, fresh(&corpus), Some(&checkpoints), Some(stop));
        assert_eq!(stopped.steps_taken, stop);
        assert!(parameters(&stopped.model) != parameters(&whole.model), "the rest of the run must matter");

        let resumed = advance(&corpus, restored(&checkpoints), Some(&checkpoints), None);
        assert_eq!((resumed.steps_taken, STEPS), (whole.steps_taken, STEPS));
        assert_eq!(parameters(&resumed.model), parameters(&whole.model), "stopped after {stop}");
    }
}

#[test]
fn without_its_moments_a_resumed_run_would_end_elsewhere() {
    let corpus = corpus();
    let directory = tempfile::tempdir().unwrap();
    let checkpoints = Checkpoints::new(directory.path().to_owned(), 5);
    advance(&corpus, fresh(&corpus), Some(&checkpoints), Some(7));
    let whole = advance(&corpus, restored(&checkpoints), None, None);
    let forgetful = State { optimizer: fresh(&corpus).optimizer, ..restored(&checkpoints) };
    let forgetful = advance(&corpus, forgetful, None, None);
    assert!(parameters(&forgetful.model) != parameters(&whole.model), "the comparison does not see lost moments");
}

#[test]
fn the_learning_rate_goes_on_where_it_was() {
    let config = config(&corpus());
    let rates = |from: usize| {
        let mut schedule = learning_rates(&config, from).unwrap();
        (from..STEPS).map(|_| schedule.step().base()).collect::<Vec<f64>>()
    };
    let all = rates(0);
    for from in [1, 4, 5, 6, 19] {
        assert_eq!(rates(from), all[from..], "from step {from}");
    }
    // Four steps of warm-up along a line, then a cosine over the sixteen others.
    let cosine = |step: f64| 0.01 * 0.5 * (1.0 + (step / 16.0 * std::f64::consts::PI).cos());
    for (step, expected) in [(0, 0.002), (1, 0.004), (3, 0.008), (4, 0.01), (12, cosine(8.0)), (19, cosine(15.0))] {
        assert!((all[step] - expected).abs() < 1e-9, "step {step}: {} and not {expected}", all[step]);
    }
}

#[test]
fn the_last_two_checkpoints_are_kept() {
    let corpus = corpus();
    let directory = tempfile::tempdir().unwrap();
    advance(&corpus, fresh(&corpus), Some(&Checkpoints::new(directory.path().to_owned(), 5)), None);
    assert_eq!(names(directory.path()), ["step-00000015", "step-00000020"]);
}

#[test]
fn damaged_and_unfinished_checkpoints_are_passed_over_with_a_reason() {
    type Damage = fn(&Path);
    let cases: [(&str, Damage, &str); 5] = [
        (
            "killed while writing",
            |last| fs::rename(last, last.with_extension("partial")).unwrap(),
            "partial is unfinished",
        ),
        ("cut model", |last| cut(&last.join("model.bpk")), "model.bpk is damaged"),
        ("cut moments", |last| cut(&last.join("optimizer.bpk")), "optimizer.bpk is damaged"),
        ("cut description", |last| cut(&last.join("run.json")), "run.json is damaged"),
        ("lost file", |last| fs::remove_file(last.join("run.json")).unwrap(), "cannot read run.json"),
    ];
    for (name, damage, expected) in cases {
        let (directory, checkpoints) = interrupted();
        damage(&directory.path().join("step-00000010"));
        let (checkpoint, passed_over) = checkpoints.newest().unwrap();
        let checkpoint = checkpoint.unwrap();
        assert_eq!((checkpoint.run.steps_taken, passed_over.len()), (5, 1), "{name}");
        let reason = format!("{:#}", passed_over[0]);
        assert!(reason.contains(expected) && reason.contains("step-00000010"), "{name}: {reason}");

        let corpus = corpus();
        let resumed = checkpoint.restore(&device()).unwrap();
        advance(&corpus, resumed, Some(&Checkpoints::new(directory.path().to_owned(), 3)), Some(6));
        assert_eq!(names(directory.path()), ["step-00000005", "step-00000006"], "{name}: nothing damaged is left");
    }
}

/// A job that is restarted has one command for its first start and for the others.
#[test]
fn without_a_complete_checkpoint_a_run_begins() {
    let directory = tempfile::tempdir().unwrap();
    for path in [directory.path().to_owned(), directory.path().join("missing")] {
        let checkpoints = Checkpoints::new(path, 5);
        checkpoints.check_unused().unwrap();
        assert!(checkpoints.newest().unwrap().0.is_none());
    }
    // Killed in its first checkpoint.
    fs::create_dir(directory.path().join("step-00000005.partial")).unwrap();
    let (checkpoint, passed_over) = Checkpoints::new(directory.path().to_owned(), 5).newest().unwrap();
    assert_eq!((checkpoint.is_none(), passed_over.len()), (true, 1));
}

#[test]
fn damaged_checkpoints_are_not_taken_for_none() {
    let (directory, checkpoints) = interrupted();
    for name in names(directory.path()) {
        cut(&directory.path().join(name).join("model.bpk"));
    }
    let error = checkpoints.newest().err().expect("all are damaged").to_string();
    assert!(
        error.starts_with("there is no undamaged checkpoint in ") && error.contains("model.bpk is damaged"),
        "{error}"
    );
}

#[test]
fn a_new_run_does_not_mix_its_checkpoints_with_those_of_another() {
    let (_directory, checkpoints) = interrupted();
    let error = checkpoints.check_unused().unwrap_err().to_string();
    assert!(error.contains("has checkpoints of another run"), "{error}");
}

#[test]
fn another_text_or_global_batch_cannot_be_resumed_with() {
    let (_directory, checkpoints) = interrupted();
    let run = checkpoints.newest().unwrap().0.unwrap().run;
    run.check(&corpus(), 8).unwrap();
    let refused = |corpus: &Corpus, global_batch| run.check(corpus, global_batch).unwrap_err().to_string();
    assert!(refused(&corpus(), 16).contains("a global batch of 8, but this program plans 16"));
    let other = Corpus::new("another text");
    assert!(refused(&other, 8).contains("was started with another text"));
}

fn corpus() -> Corpus {
    static CORPUS: OnceLock<Corpus> = OnceLock::new();
    CORPUS.get_or_init(read_corpus).clone()
}

fn read_corpus() -> Corpus {
    let austen = Corpus::austen().unwrap();
    let text: String = austen.train[..20_000].iter().map(|&id| austen.vocabulary.character(id as usize)).collect();
    Corpus::new(&text)
}

fn config(corpus: &Corpus) -> TrainingConfig {
    TrainingConfig::new()
        .with_vocabulary(corpus.vocabulary.size())
        .with_window(16)
        .with_n_layers(2)
        .with_d_model(16)
        .with_n_heads(2)
        .with_steps(STEPS)
        .with_warm_up_steps(4)
        .with_learning_rate(0.01)
}

fn device() -> Device {
    Device::flex().autodiff()
}

fn fresh(corpus: &Corpus) -> State {
    let _drawing = super::drawing();
    let state = State::new(&config(corpus), &device());
    // Burn draws a parameter when it is first read.
    parameters(&state.model);
    state
}

fn advance(corpus: &Corpus, state: State, checkpoints: Option<&Checkpoints>, stop_after: Option<usize>) -> State {
    let config = config(corpus);
    let training = Training {
        corpus,
        config: &config,
        global_batch: GLOBAL_BATCH,
        part: 0..GLOBAL_BATCH,
        checkpoints,
        stop_after,
    };
    let trainer = Trainer::new(state.model, state.optimizer, device(), MICRO_BATCH);
    training.run(trainer, state.steps_taken, &ProgressBar::hidden()).unwrap().0
}

fn restored(checkpoints: &Checkpoints) -> State {
    checkpoints.newest().unwrap().0.unwrap().restore(&device()).unwrap()
}

/// A run stopped after ten steps, with checkpoints after five and ten.
fn interrupted() -> (tempfile::TempDir, Checkpoints) {
    let (directory, corpus) = (tempfile::tempdir().unwrap(), corpus());
    let checkpoints = Checkpoints::new(directory.path().to_owned(), 5);
    advance(&corpus, fresh(&corpus), Some(&checkpoints), Some(10));
    (directory, checkpoints)
}

fn cut(file: &PathBuf) {
    let bytes = fs::read(file).unwrap();
    fs::write(file, &bytes[..bytes.len() / 2]).unwrap();
}

fn names(directory: &Path) -> Vec<String> {
    let mut names: Vec<String> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn parameters(model: &Model) -> Vec<f32> {
    let mut values = Values(Vec::new());
    model.visit(&mut values);
    assert!(values.0.iter().all(|value| value.is_finite()), "a comparison of NaN would find no difference");
    values.0
}

struct Values(Vec<f32>);

impl ModuleVisitor for Values {
    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        self.0.extend(param.val().into_data().iter::<f32>());
    }
}
