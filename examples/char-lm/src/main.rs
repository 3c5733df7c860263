//! Trains the character model and prints its perplexity on the validation text.
//!
//! Under a launcher each process trains on its part of every step, and the first one prints and saves.

use std::{path::PathBuf, time::Instant};

use anyhow::Context;
use burn::module::Module;
use char_lm::{
    config::TrainingConfig,
    model::Model,
    perplexity::Perplexities,
    sampling::sample,
    text::Corpus,
    training::{Run, Training, optimizer, subject},
    windows::Windows,
};
use clap::Parser;
use gpu_tuned::{Checkpoint, Checkpoints, Options, Session};
use tracing_subscriber::EnvFilter;

mod report;

use report::Report;

/// Trains a small character-level transformer on two novels by Jane Austen, or on any other text.
#[derive(Parser)]
#[expect(clippy::struct_excessive_bools, reason = "switches of a command line")]
struct Arguments {
    /// UTF-8 file to train on, instead of the novels; the last tenth is for validation
    #[arg(long, value_name = "FILE")]
    text: Option<PathBuf>,
    /// Directory for checkpoints; default: no checkpoints
    #[arg(long, value_name = "DIR")]
    checkpoint_dir: Option<PathBuf>,
    /// Optimizer steps between two checkpoints
    #[arg(long, value_name = "STEPS", default_value_t = 50, requires = "checkpoint_dir")]
    checkpoint_every: u64,
    /// Resume from the newest complete checkpoint, with the settings of its run; start a new run if there is none
    #[arg(long, requires = "checkpoint_dir")]
    resume: bool,
    /// Stop after this number of optimizer steps, as if interrupted, and write a checkpoint
    #[arg(long, value_name = "STEPS", requires = "checkpoint_dir")]
    stop_after: Option<usize>,
    /// Optimizer steps of the whole run
    #[arg(long)]
    steps: Option<usize>,
    /// Highest learning rate
    #[arg(long)]
    learning_rate: Option<f64>,
    /// Seed of the initial weights and of the order of the windows
    #[arg(long)]
    seed: Option<u64>,
    /// Characters in a window
    #[arg(long)]
    window: Option<usize>,
    /// Transformer blocks
    #[arg(long)]
    layers: Option<usize>,
    /// Width of the network
    #[arg(long)]
    d_model: Option<usize>,
    /// Attention heads; must divide the width
    #[arg(long)]
    heads: Option<usize>,
    /// Windows in one micro-batch, instead of the planned number
    #[arg(long)]
    batch_size: Option<usize>,
    /// Generate and print this number of characters after training
    #[arg(long, value_name = "CHARACTERS")]
    sample: Option<usize>,
    /// Train on the CPU, even if there are GPUs
    #[arg(long)]
    cpu: bool,
    /// Fail if the compiled settings do not suit this machine
    #[arg(long)]
    strict: bool,
    /// Probe the precision of the device's fp32 products before training
    #[arg(long)]
    probe_tf32: bool,
    /// Print one line of JSON instead of the report
    #[arg(long)]
    json: bool,
}

impl Arguments {
    fn corpus(&self) -> anyhow::Result<Corpus> {
        self.text.as_deref().map_or_else(Corpus::austen, Corpus::read)
    }

    /// State of the run to resume; `None` for a new run.
    fn saved(&self, corpus: &Corpus) -> anyhow::Result<Option<Run>> {
        let Some(folder) = self.checkpoint_dir.as_ref().filter(|_| self.resume) else { return Ok(None) };
        let Some(checkpoint) = Checkpoint::newest(folder)? else { return Ok(None) };
        let run: Run = checkpoint.state()?;
        run.check(corpus)?;
        eprintln!("resuming from {}, after step {}", checkpoint.path().display(), checkpoint.steps());
        Ok(Some(run))
    }

    /// Settings of the run: those of its checkpoint, or the defaults with command-line overrides.
    fn config(&self, corpus: &Corpus) -> anyhow::Result<TrainingConfig> {
        let run = self.saved(corpus)?;
        let is_new = run.is_none();
        let mut config = match run {
            Some(run) => run.config.replanned(),
            None => TrainingConfig::new().with_vocabulary(corpus.vocabulary.size()),
        };
        let saved = config.to_string();
        config.steps = self.steps.unwrap_or(config.steps);
        config.learning_rate = self.learning_rate.unwrap_or(config.learning_rate);
        config.seed = self.seed.unwrap_or(config.seed);
        config.window = self.window.unwrap_or(config.window);
        config.n_layers = self.layers.unwrap_or(config.n_layers);
        config.d_model = self.d_model.unwrap_or(config.d_model);
        config.n_heads = self.heads.unwrap_or(config.n_heads);
        anyhow::ensure!(
            is_new || config.to_string() == saved,
            "the run was started with other settings, which it keeps: leave them out with --resume, or use another directory"
        );
        config.batch_size = self.batch_size.unwrap_or(config.batch_size);
        Ok(config)
    }
}

fn main() -> anyhow::Result<()> {
    tracing_subscriber::fmt().with_env_filter(EnvFilter::from_default_env()).with_writer(std::io::stderr).init();
    let arguments = Arguments::parse();
    let corpus = arguments.corpus()?;
    let session = options(&arguments).start(arguments.config(&corpus)?)?;
    measure_if_asked(&session, &corpus)?;
    let checkpoints = checkpoints(&arguments, &session, &corpus)?;
    if !arguments.json && session.is_first_rank() {
        println!("{session}\n");
    }
    if let Some(probe) = arguments.probe_tf32.then(|| session.probe_tf32()).flatten() {
        eprintln!("{}", probe.context("the device could not be probed")?);
    }
    let training = Training {
        corpus: &corpus,
        config: session.config(),
        global_batch: session.schedule().global_batch as usize,
        part: session.part(session.schedule().global_batch as usize),
        stop_after: arguments.stop_after,
    };
    let report = run(&training, checkpoints, &session, arguments.sample)?;
    if session.is_first_rank() {
        println!("{}", if arguments.json { report.json(&session) } else { report.text(&session) });
    }
    Ok(())
}

fn measure_if_asked(session: &Session<TrainingConfig>, corpus: &Corpus) -> anyhow::Result<()> {
    let (config, global_batch) = (session.config(), session.schedule().global_batch as usize);
    let windows = Windows::new(&corpus.train, config.window, global_batch, config.seed)?;
    Ok(session.measure_if_asked("char-lm", &subject(windows, config))?)
}

/// Start-up options; a resumed run keeps its schedule.
fn options(arguments: &Arguments) -> Options {
    let options = Options::default().strict(arguments.strict).distributed_if_launched();
    let options = if arguments.cpu { options.cpu() } else { options };
    match &arguments.checkpoint_dir {
        Some(folder) if arguments.resume => options.resume_or_start(folder),
        _ => options,
    }
}

/// The checkpoints of the run, if it has a folder.
fn checkpoints(
    arguments: &Arguments,
    session: &Session<TrainingConfig>,
    corpus: &Corpus,
) -> anyhow::Result<Option<Checkpoints>> {
    let Some(folder) = &arguments.checkpoint_dir else { return Ok(None) };
    let mut checkpoints = session.checkpoints(folder)?.every_steps(arguments.checkpoint_every);
    checkpoints.set_state(&Run::new(corpus, session.config()))?;
    Ok(Some(checkpoints))
}

fn run(
    training: &Training,
    checkpoints: Option<Checkpoints>,
    session: &Session<TrainingConfig>,
    sampled: Option<usize>,
) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let (config, corpus, device) = (training.config, training.corpus, session.inner_device());
    session.device().seed(config.seed);
    let (model, optimizer) = (Model::new(config, &session.device()), optimizer());
    let mut trainer = match &checkpoints {
        Some(checkpoints) => checkpoints.trainer(session, model, optimizer)?,
        None => session.trainer(model, optimizer)?,
    };
    let resumed_after = checkpoints.as_ref().map_or(0, |checkpoints| checkpoints.steps() as usize);
    let progress = session.progress(config.steps as u64).resumed_after(resumed_after as u64);
    let steps_taken = training.run(&mut trainer, checkpoints, progress).context("training stopped")?;
    let mut report = Report { resumed_after, steps_taken, ..Report::default() };
    if steps_taken >= config.steps && session.is_first_rank() {
        let model = trainer.model().valid();
        report.perplexities = Some(Perplexities::measure(&model, corpus, config, &device)?);
        let sampled = sampled.map(|characters| sample(&model, &corpus.vocabulary, config, characters, &device));
        report.sample = sampled.transpose().context("cannot read the generated text")?;
    }
    report.seconds = begin.elapsed().as_secs_f64();
    Ok(report)
}
