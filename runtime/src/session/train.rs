//! Trainer, strategy and metrics of a session.

use burn::module::Module;
use burn::optim::ModuleOptimizer;
#[cfg(feature = "train")]
use burn::train::{LearnerModel, TrainStep, TrainingStrategy, logger::MetricLogger};
use gpu_tuned_measure::measure::is_requested;
#[cfg(feature = "train")]
use gpu_tuned_train::micro_batch::MicroBatch;
#[cfg(feature = "train")]
use gpu_tuned_train::train::metrics::{Metrics, RecordedMetrics};
#[cfg(feature = "train")]
use gpu_tuned_train::train::{BatchCheck, TakeLearnersFirstStep, strategy};
use gpu_tuned_train::train::{NotReady, Rank, Recipe, Replanning, TakeFirstStep, Trainer, TrainerError};

use super::Session;
use crate::tuned::Tuned;

impl<C: Tuned> Session<C> {
    /// Returns a trainer of `model`, which was created on [`device`](Self::device). The trainer cuts steps into the planned
    /// micro-batches, and after an out-of-memory into smaller ones.
    ///
    /// ```
    /// use burn::nn::{Linear, LinearConfig};
    /// use burn::optim::AdamWConfig;
    /// use burn::tensor::Tensor;
    /// use gpu_tuned::gpu_tuned;
    ///
    /// #[gpu_tuned(mlp(widths = [8, 1]), global_batch = 32, target = "generic")]
    /// #[derive(Clone, Debug)]
    /// struct Config {
    ///     #[tuned]
    ///     batch_size: usize,
    /// }
    ///
    /// let session = gpu_tuned::Options::default().cpu().start(Config::default())?;
    /// let device = session.device();
    /// let model = LinearConfig::new(8, 1).init(&device);
    /// let mut trainer = session.trainer(model, AdamWConfig::new().init())?;
    /// let batch = Tensor::<2>::ones([32, 8], &device);
    /// let step = trainer.step(1e-3, batch, |model: &Linear, input| model.forward(input).powi_scalar(2).mean())?;
    /// assert!(step.applied);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Warns if the model's parameter count differs from the measured one, or by more than 10% from the described one, and if
    /// steps get a micro-batch instead of all samples.
    ///
    /// # Errors
    ///
    /// [`TrainerError`] for a model that cannot be trained in the planned mixed precision, for a plan of several ranks in a process
    /// that was not launched as one of them, for an optimizer that was saved by one of several ranks with a part of the state, and
    /// if the ranks' models or states differ.
    pub fn trainer<M: Module>(&self, model: M, optimizer: ModuleOptimizer) -> Result<Trainer<M>, TrainerError> {
        let recipe = self.recipe()?;
        let first_step = self
            .requested_measurement()
            .map(|target| -> TakeFirstStep<M> { Box::new(move |step| Ok(target.take_first_step(&step)?)) });
        Trainer::planned(model, optimizer, &recipe, self.plan(), self.workload(), first_step)
    }

    /// Returns a strategy with the session's optimizer steps for Burn's training loop: see
    /// [`SupervisedTraining::with_training_strategy`](burn::train::SupervisedTraining::with_training_strategy).
    ///
    /// A batch of the training loader is a whole optimizer step on one rank, of
    /// [`Schedule::samples_per_rank`](crate::Schedule::samples_per_rank) samples. As with a [`Trainer`], the step is cut into
    /// micro-batches, and retried with smaller ones after an out-of-memory error. Metrics see every micro-batch. The learning rate
    /// advances once a step. Do not set the loop's own gradient accumulation.
    ///
    /// If the loader's batches have another size, training ends with an error before the first step. One of the first two
    /// batches may be smaller, because with several workers the last batch of an epoch can come early. If the program specifies
    /// neither `global_batch` nor, for full sequences, `global_tokens`, batches may have any size but that of one micro-batch
    /// of several.
    ///
    /// Outputs of the model's training step stay on the device until the optimizer step is complete, because a retried step
    /// shows nothing twice. For a `ClassificationOutput` these are the logits of all samples, while the plan counts those of one
    /// micro-batch. For large logits, return an output with the loss alone, or raise `memory_headroom`.
    ///
    /// Validation batches are not cut. After an out-of-memory error in validation, training ends with an error that names the planned
    /// `eval_batch_size`.
    ///
    /// Under `cargo gpu-tuned measure`, the first step is measured in place of being taken, and the process ends: see
    /// [`measure`](crate::measure).
    ///
    /// [`metrics`](Self::metrics) shows the strategy's steps.
    ///
    /// With `cuda_graphs`, micro-steps are replayed as by a [trainer](crate::train::Trainer::cuda_graphs). The outputs of
    /// replays are copies. Only Burn's own types can be copied; a training step with another output runs without graphs.
    ///
    /// In `mixed_bf16`, the learner's model is widened to fp32, which checkpoints store and the loop returns. A bf16 copy computes
    /// and is validated. `mixed_f16` is an error, because the loss would have to be scaled within the model's training step.
    ///
    /// # Errors
    ///
    /// [`TrainerError::BurnsLoop`] for several ranks. Burn's loop for several devices exchanges gradients within every
    /// backward pass, so a rank that retries micro-batches would block the others. Take steps with a
    /// [`trainer`](Self::trainer).
    #[cfg(feature = "train")]
    pub fn strategy<M>(&self) -> Result<TrainingStrategy<M>, TrainerError>
    where
        M: LearnerModel,
        <M as TrainStep>::Input: MicroBatch,
    {
        let recipe = self.recipe()?;
        if self.rank_of_several().is_some() {
            return Err(TrainerError::BurnsLoop);
        }
        let first_step = self.requested_measurement().map(|target| -> TakeLearnersFirstStep<M> {
            Box::new(move |learner, batch| Ok(target.take_learners_first_step(learner, batch)?))
        });
        let check = BatchCheck::new(self.schedule(), &self.config.asked());
        Ok(strategy(recipe, self.plan(), self.workload(), check, self.step_history.clone(), first_step))
    }
}

impl<C> Session<C> {
    /// Planned steps of this process.
    ///
    /// # Errors
    ///
    /// [`TrainerError::Ranks`] for a plan of several ranks in a process that is none of them, unless it only measures.
    fn recipe(&self) -> Result<Recipe, TrainerError> {
        let world_size = self.schedule().world_size;
        if world_size > 1 && self.rank_of_several().is_none() && !is_requested() {
            return Err(TrainerError::Ranks { world_size });
        }
        Ok(self.planned_steps())
    }

    /// Planned steps of this process's rank.
    pub(super) fn planned_steps(&self) -> Recipe {
        let inputs = &self.decision.inputs;
        let (facts, workload, device) = (inputs.facts.clone(), self.workload().clone(), self.device());
        let gpu = self.opened.gpu.clone();
        let replanning = Replanning::new(facts, workload, &inputs.goal, self.plan(), &device, gpu);
        // `bench` may time another precision than the planned one.
        let precision = gpu_tuned_measure::measure::requested_precision();
        let precision = precision.unwrap_or(self.plan().settings.precision);
        let batch_statistics = self.workload().batch_statistics;
        let instrumentation = self.instrumentation.clone();
        Recipe::planned(self.plan(), precision, batch_statistics, device, replanning, instrumentation)
            .when_not_ready(self.not_ready())
            .with_rank(self.rank_of_several())
    }

    /// Connection to the other ranks, if there are several.
    fn rank_of_several(&self) -> Option<Rank> {
        let ranks = self.ranks.as_ref().filter(|_| self.schedule().world_size > 1);
        ranks.map(|ranks| ranks.rank(self.schedule(), self.decision.inputs.goal.shard_optimizer))
    }

    /// Returns metrics of the [`strategy`](Self::strategy)'s steps and of the session's GPU, for Burn's training loop: see
    /// [`metrics`](crate::train::metrics). [`Gpu`](crate::train::metrics::Gpu) shows other GPUs.
    ///
    /// The strategy and the metrics must come from one session or its clones, for one training run at a time.
    #[cfg(feature = "train")]
    pub fn metrics(&self) -> Metrics {
        Metrics::new(self.step_history.clone(), self.selection().gpu.as_ref().map(|gpu| &gpu.reading))
    }

    /// Returns a metric logger that logs as `logger` does, and adds Burn's numbers to the session's recording, if there is one.
    /// The monitor, TensorBoard and reports then show them:
    ///
    /// | name | value of | recorded |
    /// |---|---|---|
    /// | `train/Loss` | a training item | after each item |
    /// | `train/epoch/Loss`, `valid/epoch/Loss` | an epoch | at its end |
    ///
    /// Another logger replaces Burn's own, which is `FileMetricLogger::new(directory)` with the directory of the training run.
    ///
    /// ```no_run
    /// # use burn::train::{LearnerModel, SupervisedTraining, logger::FileMetricLogger};
    /// # fn of<C, M: LearnerModel>(session: &gpu_tuned::Session<C>, training: SupervisedTraining<M>) -> SupervisedTraining<M> {
    /// # let directory = "run";
    /// training.with_metric_logger(session.metric_logger(FileMetricLogger::new(directory)))
    /// # }
    /// ```
    #[cfg(feature = "train")]
    pub fn metric_logger<L: MetricLogger>(&self, logger: L) -> RecordedMetrics<L> {
        RecordedMetrics::new(logger, self.recorder.clone(), self.instrumentation.clone())
    }

    /// Handler of a model that is not ready for 16 bits: the program starts again in f32, if the planner chose the precision
    /// of a new run.
    pub(super) fn not_ready(&self) -> NotReady {
        let goal = &self.decision.inputs.goal;
        let is_new = self.selection().resumed.is_none() && gpu_tuned_measure::measure::requested_precision().is_none();
        NotReady(if self.restarts && goal.plans_precision() && is_new { crate::restart::HANDLER } else { None })
    }
}
