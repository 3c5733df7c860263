//! A run that stops and resumes, and checks of what it resumes with.

use std::{path::Path, sync::OnceLock};

use burn::{
    module::{Module, ModuleVisitor, Param},
    tensor::Tensor,
};
use char_lm::{
    config::TrainingConfig,
    model::Model,
    text::Corpus,
    training::{Run, Training, learning_rates, optimizer},
};
use gpu_tuned::{Checkpoint, Options, Session};

const STEPS: usize = 20;

#[test]
fn a_resumed_run_ends_like_one_that_was_not_interrupted() {
    let folder = tempfile::tempdir().unwrap();
    let whole = advance(&folder.path().join("whole"), None);
    assert_eq!(whole.0, STEPS);
    // In the middle of warm-up, after it, and right after a checkpoint.
    for stop in [2, 7, 10] {
        let folder = folder.path().join(stop.to_string());
        let stopped = advance(&folder, Some(stop));
        assert_eq!(stopped.0, stop);
        assert!(stopped.1 != whole.1, "the rest of the run must matter");
        assert_eq!(Checkpoint::newest(&folder).unwrap().unwrap().steps(), stop as u64);
        assert!(advance(&folder, None) == whole, "stopped after {stop}");
    }
}

#[test]
fn without_its_moments_a_resumed_run_would_end_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    advance(folder.path(), Some(7));
    let session = session(folder.path());
    let checkpoints = session.checkpoints(folder.path()).unwrap();
    let trainer = checkpoints.trainer(&session, fresh(&session), optimizer()).unwrap();
    let (model, moments) = trainer.into_parts();
    let next_step = |optimizer| {
        let mut trainer = session.trainer(model.clone(), optimizer).unwrap();
        training(&session, &corpus(), Some(8)).run(&mut trainer, None, session.progress(None)).unwrap();
        parameters(trainer.master())
    };
    assert!(next_step(moments) != next_step(optimizer()), "the comparison does not see lost moments");
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
fn another_text_cannot_be_resumed_with() {
    let run = Run::new(&corpus(), &config(&corpus()));
    run.check(&corpus()).unwrap();
    let error = run.check(&Corpus::new("another text")).unwrap_err().to_string();
    assert!(error.contains("was started with another text"), "{error}");
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

fn session(folder: &Path) -> Session<TrainingConfig> {
    Options::default().cpu().resume_or_start(folder).start(config(&corpus())).unwrap()
}

fn fresh(session: &Session<TrainingConfig>) -> Model {
    let _drawing = super::drawing();
    session.device().seed(1);
    let model = Model::new(session.config(), &session.device());
    // Burn draws a parameter when it is first read.
    parameters(&model);
    model
}

fn training<'a>(session: &'a Session<TrainingConfig>, corpus: &'a Corpus, stop_after: Option<usize>) -> Training<'a> {
    let global_batch = session.schedule().global_batch as usize;
    Training { corpus, config: session.config(), global_batch, part: session.part(global_batch), stop_after }
}

/// Starts the run in a folder, or goes on with it; returns its steps and parameters.
fn advance(folder: &Path, stop_after: Option<usize>) -> (usize, Vec<f32>) {
    let (session, corpus) = (session(folder), corpus());
    let checkpoints = session.checkpoints(folder).unwrap().every_steps(5);
    let mut trainer = checkpoints.trainer(&session, fresh(&session), optimizer()).unwrap();
    let training = training(&session, &corpus, stop_after);
    let steps = training.run(&mut trainer, Some(checkpoints), session.progress(None)).unwrap();
    (steps, parameters(trainer.master()))
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
