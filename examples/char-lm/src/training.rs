//! The training loop, and the parts of a run that checkpoints have.

use std::ops::Range;

use anyhow::{anyhow, ensure};
use burn::{
    lr_scheduler::{
        LrSchedulerConfig, cosine::CosineAnnealingLrSchedulerConfig, linear::LinearLrSchedulerConfig,
        module_lr_scheduler::ModuleLrScheduler, sequential::SequentialLrSchedulerConfig,
    },
    optim::{AdamWConfig, ModuleOptimizer},
    tensor::Device,
};
use gpu_tuned::{Checkpoints, Progress, measure::Subject, mixed::F32State, train::Trainer};
use serde::{Deserialize, Serialize};

use crate::{
    config::TrainingConfig,
    model::Model,
    text::{Corpus, Fingerprint, Vocabulary},
    windows::{Batch, Windows},
};

const STEPS_PER_LOSS: usize = 50;

/// State of the program in checkpoints.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Run {
    /// Fingerprint of the text.
    pub text: Fingerprint,
    /// The characters of the training text.
    pub vocabulary: Vocabulary,
    /// The settings, seed included.
    pub config: TrainingConfig,
}

impl Run {
    /// State of a run with this text.
    pub fn new(corpus: &Corpus, config: &TrainingConfig) -> Self {
        Self { text: corpus.fingerprint, vocabulary: corpus.vocabulary.clone(), config: config.clone() }
    }

    /// Checks that the run can resume with this text.
    ///
    /// # Errors
    ///
    /// If the text differs.
    pub fn check(&self, corpus: &Corpus) -> anyhow::Result<()> {
        let Self { text, vocabulary, .. } = self;
        ensure!(
            *text == corpus.fingerprint && *vocabulary == corpus.vocabulary,
            "the run was started with another text, of {} bytes; pass that text with --text",
            text.bytes
        );
        Ok(())
    }
}

/// Creates the optimizer, whose moments stay in fp32 in every precision.
pub fn optimizer() -> ModuleOptimizer {
    F32State::new(AdamWConfig::new().build()).into()
}

/// A training run.
#[derive(Clone)]
pub struct Training<'a> {
    /// The training text.
    pub corpus: &'a Corpus,
    /// The settings.
    pub config: &'a TrainingConfig,
    /// Windows in an optimizer step.
    pub global_batch: usize,
    /// Windows of a step that this process trains on.
    pub part: Range<usize>,
    /// Optimizer steps after which the run stops, as if interrupted.
    pub stop_after: Option<usize>,
}

impl Training<'_> {
    /// Takes the steps that the run has not taken, saves checkpoints, and returns the steps of the run.
    ///
    /// # Errors
    ///
    /// If the text is too short, a step fails, or a checkpoint cannot be written.
    pub fn run(
        &self,
        trainer: &mut Trainer<Model>,
        mut checkpoints: Option<Checkpoints>,
        mut progress: Progress,
    ) -> anyhow::Result<usize> {
        let &Self { corpus, config, global_batch, .. } = self;
        let windows = Windows::new(&corpus.train, config.window, global_batch, config.seed)?;
        let mut steps_taken = checkpoints.as_ref().map_or(0, |checkpoints| checkpoints.steps() as usize);
        let mut schedule = learning_rates(config, steps_taken)?;
        let end = self.stop_after.map_or(config.steps, |steps| steps.min(config.steps));
        let mut losses = Vec::new();

        while steps_taken < end {
            let step =
                trainer.step(schedule.step().base(), windows.step(steps_taken, self.part.clone()), Model::loss)?;
            steps_taken += 1;
            losses.push(step.loss);
            progress.step(&step);
            if steps_taken.is_multiple_of(STEPS_PER_LOSS) || steps_taken == end {
                let loss = losses.iter().sum::<f32>() / losses.len() as f32;
                losses.clear();
                if self.part.start == 0 {
                    progress.suspend(|| eprintln!("step {steps_taken:>4}: loss {loss:.4}"));
                }
            }
            if let Some(checkpoints) = &mut checkpoints {
                checkpoints.step(trainer)?;
            }
        }
        if let Some(checkpoints) = &mut checkpoints {
            checkpoints.finish(trainer)?;
        }
        Ok(steps_taken)
    }
}

/// The parts of an optimizer step that `cargo gpu-tuned measure` runs.
pub fn subject<'a>(windows: Windows<'a>, config: &'a TrainingConfig) -> Subject<'a, Model, Batch> {
    Subject::new(
        |device| Model::new(config, device),
        optimizer,
        move |samples, device| windows.first(samples, device),
        Model::loss,
    )
    .host_batch(move |samples| windows.first(samples, &Device::flex()))
}

/// Learning rates of the steps after the first `steps_taken`: linear warm-up, then cosine decay.
///
/// # Errors
///
/// If Burn rejects the learning rate or the number of steps.
pub fn learning_rates(config: &TrainingConfig, steps_taken: usize) -> anyhow::Result<ModuleLrScheduler> {
    let (highest, warm_up) = (config.learning_rate, config.warm_up_steps.min(config.steps / 2));
    let cosine = CosineAnnealingLrSchedulerConfig::new(highest, config.steps - warm_up);
    let schedule = if warm_up == 0 {
        cosine.init()
    } else {
        let line = LinearLrSchedulerConfig::new(highest / (warm_up as f64 + 1.0), highest, warm_up);
        let parts = vec![LrSchedulerConfig::Linear(line), LrSchedulerConfig::Cosine(cosine)];
        SequentialLrSchedulerConfig::new(parts, vec![warm_up]).init()
    };
    let mut schedule = schedule.map_err(|message| anyhow!("invalid learning-rate schedule: {message}"))?;
    for _ in 0..steps_taken {
        schedule.step();
    }
    Ok(schedule)
}
