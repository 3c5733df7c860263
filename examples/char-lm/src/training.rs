//! The training loop: gradients of micro-batches are added up until an optimizer step is complete.

use burn::{
    lr_scheduler::{
        LrSchedulerConfig, cosine::CosineAnnealingLrSchedulerConfig, linear::LinearLrSchedulerConfig,
        module_lr_scheduler::ModuleLrScheduler, sequential::SequentialLrSchedulerConfig,
    },
    optim::{AdamWConfig, GradientsAccumulator, GradientsParams, ModuleOptimizer},
    tensor::{Device, Tensor, TensorReadError},
};
use gpu_tuned::measure::Subject;
use indicatif::ProgressBar;

use crate::{
    checkpoint::{CheckpointError, Checkpoints, Run},
    config::TrainingConfig,
    model::Model,
    text::{Corpus, TextError},
    windows::{Batch, HostBatch, Windows},
};

// Reading the loss waits for the device.
const STEPS_PER_LOSS: usize = 50;

/// Why a training run stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainingError {
    /// Burn takes no such learning rate or number of steps.
    #[error("no learning-rate schedule: {0}")]
    Schedule(String),
    /// The text does not fill one optimizer step.
    #[error(transparent)]
    Text(#[from] TextError),
    /// A checkpoint could not be written.
    #[error("cannot write a checkpoint")]
    Checkpoint(#[from] CheckpointError),
    /// A result could not be read from the device. An earlier failure, as of memory, shows here first.
    #[error("cannot read a result from the device")]
    Device(#[from] TensorReadError),
}

/// What the optimizer steps of a run change.
pub struct State {
    /// The network, on a device with autodiff.
    pub model: Model,
    /// The optimizer with its moments.
    pub optimizer: ModuleOptimizer,
    /// Optimizer steps taken.
    pub steps_taken: usize,
}

impl State {
    /// Before the first step.
    pub fn new(config: &TrainingConfig, device: &Device) -> Self {
        device.seed(config.seed);
        Self { model: Model::new(config, device), optimizer: AdamWConfig::new().init(), steps_taken: 0 }
    }
}

/// A training run on a device with autodiff.
#[derive(Clone, Copy)]
pub struct Training<'a> {
    /// What to learn.
    pub corpus: &'a Corpus,
    /// The settings.
    pub config: &'a TrainingConfig,
    /// Sizes of the micro-batches of an optimizer step, in windows.
    pub micro_batches: &'a [usize],
    /// Where.
    pub device: &'a Device,
    /// Where checkpoints go.
    pub checkpoints: Option<&'a Checkpoints>,
    /// Optimizer steps after which the run stops, as if it were interrupted.
    pub stop_after: Option<usize>,
}

impl Training<'_> {
    /// Takes the steps that are left, and writes checkpoints on the way and at the end.
    ///
    /// # Errors
    ///
    /// See [`TrainingError`].
    pub fn run(&self, mut state: State, bar: &ProgressBar) -> Result<State, TrainingError> {
        let Self { corpus, config, micro_batches, device, .. } = *self;
        let global_batch = self.global_batch();
        let windows = Windows::new(&corpus.train, config.window, global_batch, config.seed)?;
        let mut schedule = learning_rates(config, state.steps_taken)?;
        let end = self.stop_after.map_or(config.steps, |steps| steps.min(config.steps));
        let mut losses = Losses::new(device);

        bar.set_length((config.steps * global_batch) as u64);
        bar.set_position((state.steps_taken * global_batch) as u64);
        bar.reset_eta();
        while state.steps_taken < end {
            let step = windows.step(state.steps_taken, micro_batches);
            let (model, loss) = optimize(state.model, &mut state.optimizer, schedule.step().base(), &step, device);
            state.model = model;
            state.steps_taken += 1;
            losses.add(loss);
            bar.set_prefix(format!("step {}/{}", state.steps_taken, config.steps));
            bar.inc(global_batch as u64);
            if state.steps_taken.is_multiple_of(STEPS_PER_LOSS) || state.steps_taken == end {
                let loss = losses.take()?;
                bar.set_message(format!("loss {loss:.4}"));
                bar.suspend(|| eprintln!("step {:>4}: loss {loss:.4}", state.steps_taken));
            }
            if let Some(checkpoints) = self.checkpoints
                && (checkpoints.is_due(state.steps_taken) || state.steps_taken == end)
            {
                checkpoints.write(&self.describe(state.steps_taken), &state)?;
            }
        }
        Ok(state)
    }

    /// Windows in an optimizer step.
    pub fn global_batch(&self) -> usize {
        self.micro_batches.iter().sum()
    }

    fn describe(&self, steps_taken: usize) -> Run {
        Run {
            steps_taken,
            global_batch: self.global_batch(),
            text: self.corpus.fingerprint,
            vocabulary: self.corpus.vocabulary.clone(),
            config: self.config.clone(),
        }
    }
}

/// Takes one optimizer step, and returns the loss, a mean over all of the step's windows, still on the device.
///
/// Burn's accumulator adds gradients up. Each micro-batch counts by its share of the windows, so that the sum is the
/// gradient of the mean over the whole step, however it is split.
pub fn optimize(
    model: Model,
    optimizer: &mut ModuleOptimizer,
    learning_rate: f64,
    step: &[HostBatch],
    device: &Device,
) -> (Model, Tensor<1>) {
    let mut accumulator = GradientsAccumulator::new();
    let mut step_loss = Tensor::zeros([1], &device.clone().inner());
    let windows: usize = step.iter().map(HostBatch::windows).sum();
    for batch in step {
        let loss = model.loss(batch.to_device(device)) * (batch.windows() as f64 / windows as f64);
        step_loss = step_loss + loss.clone().inner();
        accumulator.accumulate(&model, GradientsParams::from_grads(loss.backward(), &model));
    }
    (optimizer.step(learning_rate, model, accumulator.grads()), step_loss)
}

/// What `cargo gpu-tuned measure` measures: the parts of an optimizer step.
pub fn subject<'a>(windows: Windows<'a>, config: &'a TrainingConfig) -> Subject<'a, Model, Batch> {
    Subject::new(
        |device| Model::new(config, device),
        || AdamWConfig::new().init(),
        move |samples, device| windows.first(samples).to_device(device),
        Model::loss,
    )
    .host_batch(move |samples| windows.first(samples))
}

/// The learning rates of the steps after the first `steps_taken`: warm-up along a line, then down along a cosine.
///
/// # Errors
///
/// [`TrainingError::Schedule`].
pub fn learning_rates(config: &TrainingConfig, steps_taken: usize) -> Result<ModuleLrScheduler, TrainingError> {
    let (highest, warm_up) = (config.learning_rate, config.warm_up_steps.min(config.steps / 2));
    let cosine = CosineAnnealingLrSchedulerConfig::new(highest, config.steps - warm_up);
    let schedule = if warm_up == 0 {
        cosine.init()
    } else {
        let line = LinearLrSchedulerConfig::new(highest / (warm_up as f64 + 1.0), highest, warm_up);
        let parts = vec![LrSchedulerConfig::Linear(line), LrSchedulerConfig::Cosine(cosine)];
        SequentialLrSchedulerConfig::new(parts, vec![warm_up]).init()
    };
    let mut schedule = schedule.map_err(TrainingError::Schedule)?;
    for _ in 0..steps_taken {
        schedule.step();
    }
    Ok(schedule)
}

/// Losses of steps, added up on the device.
struct Losses {
    sum: Tensor<1>,
    steps: usize,
}

impl Losses {
    fn new(device: &Device) -> Self {
        Self { sum: Tensor::zeros([1], &device.clone().inner()), steps: 0 }
    }

    fn add(&mut self, loss: Tensor<1>) {
        self.sum = self.sum.clone() + loss;
        self.steps += 1;
    }

    /// The mean since the last call.
    fn take(&mut self) -> Result<f32, TensorReadError> {
        let fresh = Self { sum: self.sum.zeros_like(), steps: 0 };
        let Self { sum, steps } = std::mem::replace(self, fresh);
        Ok(sum.try_into_scalar::<f32>()? / steps as f32)
    }
}
