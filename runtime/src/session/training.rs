//! Loaders, trainers, measurements and kernel caches of a session.

use std::process;

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
#[cfg(feature = "train")]
use burn::train::{LearnerModel, TrainStep, TrainingStrategy, logger::MetricLogger};
use gpu_tuned_core::matching::Match;
use gpu_tuned_core::plan::{STATISTICS_FLOOR, Schedule};
use gpu_tuned_kernels::selection::{load_library, was_library_operation_called};
use gpu_tuned_measure::measure::{BuiltFor, MeasureError, MeasurementTarget, Subject, is_requested};
#[cfg(not(feature = "warm"))]
use gpu_tuned_measure::requests::archive_folder;
#[cfg(feature = "warm")]
use gpu_tuned_measure::warm::{Fingerprint, WarmError, WarmStart};
#[cfg(feature = "warm")]
use gpu_tuned_measure::warm_up::WarmUp;
use gpu_tuned_observe::log::warn_user;
#[cfg(feature = "warm")]
use gpu_tuned_train::device::tf32_is_off;
use gpu_tuned_train::load::PrefetchLoader;
#[cfg(feature = "train")]
use gpu_tuned_train::micro_batch::MicroBatch;
#[cfg(feature = "train")]
use gpu_tuned_train::train::metrics::{Metrics, RecordedMetrics};
#[cfg(feature = "train")]
use gpu_tuned_train::train::{BatchCheck, TakeLearnersFirstStep, strategy};
use gpu_tuned_train::train::{NotReady, Rank, Recipe, Replanning, TakeFirstStep, Trainer, TrainerError};

use super::Session;
use crate::lock::LockedWorkload;
use crate::selection::Fallback;
use crate::tuned::Tuned;

impl<C> Session<C> {
    /// Loads the training data of one rank. Each batch has the samples of a whole optimizer step; the last of an epoch may have
    /// fewer, unless the goal drops it.
    ///
    /// Workers and prefetch are as planned. Batches that wait on the device take at most the bytes of the planned number of
    /// micro-batches. A larger step stays in host memory, and is uploaded micro-batch by micro-batch.
    ///
    /// With several ranks, each loads its part of every step. Give [`shuffle`](PrefetchLoader::shuffle) the same seed on all.
    /// A step compares the epochs that the ranks are reading: number of items, seed, and number of the epoch. Batches that another
    /// thread reads are not compared.
    /// The last step of an epoch is shared in proportion, and dropped if it has too few samples for every rank. A
    /// [`strategy`](PrefetchLoader::strategy) forms one batch a rank for each step.
    ///
    /// ```
    /// # use burn::data::dataloader::batcher::Batcher;
    /// use burn::data::dataset::InMemDataset;
    /// # use burn::tensor::{Device, Tensor};
    /// # use gpu_tuned::{MicroBatch, gpu_tuned};
    /// # #[gpu_tuned(mlp(widths = [1, 1]), global_batch = 4, target = "generic")]
    /// # #[derive(Clone, Debug)]
    /// # struct Training {
    /// #     #[tuned]
    /// #     batch_size: usize,
    /// # }
    /// # #[derive(Clone)]
    /// # struct Numbers;
    /// # impl Batcher<f32, Tensor<1>> for Numbers {
    /// #     fn batch(&self, items: Vec<f32>, device: &Device) -> Tensor<1> {
    /// #         Tensor::from_floats(&items[..], device)
    /// #     }
    /// # }
    /// let session = gpu_tuned::start(Training::default())?;
    /// let dataset = InMemDataset::new(vec![1.0, 2.0, 3.0, 4.0, 5.0, 6.0]);
    /// # let mut sizes = Vec::new();
    /// for batch in session.loader(dataset, Numbers).shuffle(42).iter() {
    ///     let batch: Tensor<1> = batch?;
    ///     // trainer.step(learning_rate, batch, |model, micro| model.loss(micro))?;
    ///     # sizes.push(MicroBatch::len(&batch));
    /// }
    /// # assert_eq!(sizes, [4, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn loader<I, B>(
        &self,
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, B> + 'static,
    ) -> PrefetchLoader<I, B> {
        let schedule = self.schedule();
        let samples = dataset.len() as u64;
        let short = short_epoch(samples, schedule.global_batch, schedule.drop_last);
        let warning =
            short.or_else(|| few_for_statistics(samples, schedule).filter(|_| self.workload().batch_statistics));
        if let Some(warning) = warning {
            warn_user(&warning);
        }
        self.planned_steps().loader(dataset, batcher)
    }

    /// Loads the whole dataset for evaluation, in order and in batches of the planned size, on the device without autodiff.
    pub fn eval_loader<I, B>(
        &self,
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, B> + 'static,
    ) -> PrefetchLoader<I, B> {
        let settings = &self.plan().settings;
        PrefetchLoader::new(dataset, batcher, size(settings.eval_batch_size))
            .depth(size(settings.prefetch_depth))
            .num_workers(size(settings.num_workers))
            .device(self.inner_device())
    }
}

/// Warning for a dataset of less than one step.
fn short_epoch(samples: u64, step: u64, drop_last: bool) -> Option<String> {
    if samples == 0 {
        return Some("the training dataset is empty: an epoch has no steps".to_owned());
    }
    let steps = if drop_last { "empty, because an incomplete step is dropped" } else { "one step over all of them" };
    (samples < step).then(|| {
        format!("the training dataset has {samples} samples, fewer than the {step} of an optimizer step: an epoch is {steps}")
    })
}

/// Warning for a last step of an epoch with a micro-batch that is too small for batch statistics.
fn few_for_statistics(samples: u64, schedule: &Schedule) -> Option<String> {
    let rest = samples % schedule.global_batch;
    let on_rank = match schedule.share {
        Some(share) => share.part(rest, schedule.global_batch).count() as u64,
        None => rest / schedule.world_size,
    };
    let least = schedule.split(on_rank).last().filter(|least| *least < STATISTICS_FLOOR && !schedule.drop_last)?;
    Some(format!(
        "the last step of an epoch has a micro-batch of size {least}, and batch statistics need {STATISTICS_FLOOR} \
         samples: set `drop_last = true` in `#[gpu_tuned(…)]` or in `[goal]` to leave the step out"
    ))
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

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
    fn planned_steps(&self) -> Recipe {
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
    fn not_ready(&self) -> NotReady {
        let goal = &self.decision.inputs.goal;
        let is_new = self.selection().resumed.is_none() && gpu_tuned_measure::measure::requested_precision().is_none();
        NotReady(if self.restarts && goal.plans_precision() && is_new { crate::restart::HANDLER } else { None })
    }
}

impl<C: Tuned> Session<C> {
    /// Measures the workload and ends the process under `cargo gpu-tuned measure` or `bench`; else returns at once.
    ///
    /// `GPU_TUNED_MEASURE=1` requests a measurement on the session's device, in the session's precision, with and without
    /// activation checkpointing: see [`measure`](Self::measure). The result is the workload `name` in `gpu-tuned.lock`, mode by
    /// mode, beside its other entries. `GPU_TUNED_LOCK` names the lock; the default is in the folder of the package that cargo
    /// runs, else in the current folder. Progress goes to standard error. `GPU_TUNED_MEASURE_JSON=1` prints the result as one
    /// line of JSON on standard output.
    ///
    /// Under `cargo gpu-tuned warm`, archives the kernels and tuning of the planned steps instead, and ends the process: see
    /// module `warm`. Without feature `warm` that is an error.
    ///
    /// Under `cargo gpu-tuned bench`, times steps over a range of settings, and ends the process. `GPU_TUNED_BENCH` has the
    /// request as JSON. Each result is recorded at once.
    ///
    /// Call this method before creating the model: a measurement needs the whole device.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`]. On an error, an existing archive stays as it was, and a lock has the modes that were measured
    /// before the error.
    pub fn measure_if_asked<M: Module, B: Clone>(
        &self,
        name: &str,
        subject: &Subject<'_, M, B>,
    ) -> Result<(), MeasureError> {
        #[cfg(feature = "warm")]
        self.planned_warm_up().archive_if_requested(name, subject, self.fingerprint(), &self.warm_start().caches)?;
        #[cfg(not(feature = "warm"))]
        if archive_folder().is_some() {
            return Err(MeasureError::NothingToWarm);
        }
        if let Some(target) = self.requested_measurement() {
            target.run(name, subject)?;
            process::exit(0);
        }
        Ok(())
    }

    /// Measures the workload on the session's device, without and with activation checkpointing.
    ///
    /// On a GPU, memory is measured by dry runs of micro-batches up to a rank's part of the global batch. Time is
    /// measured by steps that leave much memory free. The sizes that plans need are tried first. Tries that
    /// would end after 120 s are left out, except for the first two. On the CPU, steps run for 25 s a mode.
    /// `GPU_TUNED_MEASURE_BUDGET` sets other seconds.
    ///
    /// With feature `counting-allocator`, allocations of a few CPU steps are simulated for the GPU that the program was
    /// built for, in `f32` and `bf16_params`, except in a session of mixed precision.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn measure<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<LockedWorkload, MeasureError> {
        self.measurement_target().measure(subject, &mut |_| Ok(()))
    }

    /// Target of the requested measurement, if there is a request.
    fn requested_measurement(&self) -> Option<MeasurementTarget> {
        is_requested().then(|| self.measurement_target())
    }

    /// Returns true on a GPU, if neither the config nor this start asks for kernels.
    fn compares_kernels(&self) -> bool {
        let (goal, selection) = (&self.decision.inputs.goal, self.selection());
        // Without the library, it is no longer asked for.
        let is_missing = selection.fallbacks.iter().any(|fallback| matches!(fallback, Fallback::Kernels { .. }));
        let is_asked = goal.kernels.or(goal.pins.kernels).is_some() || is_missing;
        selection.gpu.is_some() && !is_asked
    }

    fn measurement_target(&self) -> MeasurementTarget {
        let (goal, selection) = (self.config.asked(), self.selection());
        let is_specified = goal.global_batch.is_some() || goal.global_tokens.is_some();
        let profile = selection.device().and_then(Match::exact_profile).map(|profile| profile.id.to_string());
        let facts = self.facts();
        let precisions = self.decision.inputs.goal.precisions(&facts);
        let built_for = BuiltFor { targets: C::BUILT.targets, table: C::BUILT.table };
        MeasurementTarget {
            device: self.inner_device(),
            facts,
            reading: selection.gpu.as_ref().map(|gpu| gpu.reading.clone()),
            gpu: self.opened.gpu.clone(),
            driver: self.machine.driver_version.clone(),
            profile,
            settings: self.plan().settings,
            described: self.config.workload(),
            samples_per_rank: is_specified.then(|| self.schedule().samples_per_rank()),
            goal,
            max_samples: None,
            built_for: selection.gpu.is_none().then_some(built_for),
            precisions,
            has_other_kernels: self.compares_kernels().then_some(has_other_kernels),
            not_ready: self.not_ready(),
        }
    }
}

/// Returns true if the library can compute operations of this process, and is found.
fn has_other_kernels() -> bool {
    was_library_operation_called() && load_library().is_ok()
}

#[cfg(feature = "warm")]
impl<C> Session<C> {
    /// State of the caches of compiled kernels and tuning at the first step: see [`warm`](crate::warm).
    pub fn warm_start(&self) -> &WarmStart {
        &self.opened.warm
    }

    /// Fingerprint of the session's kernels and tuning; `None` on the CPU.
    pub fn fingerprint(&self) -> Option<Fingerprint> {
        let gpu = self.selection().gpu.iter().map(|gpu| &gpu.reading);
        let fingerprint = Fingerprint::new(gpu, self.machine.driver_version.as_deref())?;
        Some(fingerprint.full_f32(tf32_is_off()))
    }

    /// Takes the planned steps with throwaway weights, so that their kernels are compiled and tuned. Returns the micro-batches:
    /// the planned one, then those of OOM recovery, for at most a minute more.
    ///
    /// The steps run, because their kernels depend on values that they read. Tuning takes most of the time. The steps use the
    /// session's precision, whatever [`Subject::mixed`] says.
    ///
    /// # Errors
    ///
    /// See [`WarmError`].
    pub fn warm_up<M: Module, B: Clone>(&self, subject: &Subject<'_, M, B>) -> Result<Vec<usize>, WarmError> {
        self.planned_warm_up().run(subject)
    }

    fn planned_warm_up(&self) -> WarmUp<'_> {
        WarmUp { device: self.device(), plan: self.plan(), not_ready: self.not_ready() }
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::plan::Schedule;

    use super::{few_for_statistics, short_epoch};

    #[test]
    fn a_last_step_with_a_small_micro_batch_is_warned_of_unless_it_is_left_out() {
        let schedule = Schedule { global_batch: 64, world_size: 1, share: None, micro_batch: 32, drop_last: false };
        let warned = |samples, schedule: &Schedule| few_for_statistics(samples, schedule).is_some();
        assert!(few_for_statistics(65, &schedule).is_some_and(|text| text.contains("of size 1,")));
        // 40 samples are 32 + 8; 48 are 32 + 16.
        assert!(warned(104, &schedule) && !warned(112, &schedule) && !warned(128, &schedule));
        assert!(!warned(65, &Schedule { drop_last: true, ..schedule }));
        // Ranks have 15 samples each, or none.
        let ranks = Schedule { world_size: 2, ..schedule };
        assert!(warned(64 + 30, &ranks) && !warned(64 + 32, &ranks) && !warned(65, &ranks));
    }

    #[test]
    fn a_dataset_of_less_than_a_step_is_warned_of() {
        assert_eq!(short_epoch(512, 512, true), None);
        assert!(short_epoch(0, 512, false).is_some_and(|text| text.contains("is empty")));
        assert!(short_epoch(100, 512, false).is_some_and(|text| text.contains("one step over all")));
        assert!(short_epoch(100, 512, true).is_some_and(|text| text.contains("dropped")));
    }
}
