//! The trainer of a session.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{MemoryEstimate, PlanError, plan};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, Pins};

use super::doubts::{PartialSteps, tell_of_another_model};
use super::stepper::{Remaining, Stepper};
use super::{Trainer, TrainerError};
use crate::course::{Clock, Course};
use crate::load::PrefetchLoader;
use crate::measure::asked_precision;
use crate::mixed::Half;
use crate::session::Session;
use crate::tuned::Tuned;

impl<C: Tuned> Session<C> {
    /// A trainer of `model`, which was made on [`device`](Self::device): its steps are cut into the planned micro-batches,
    /// and into others that are planned for the memory that is left, should it run out.
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
    /// A warning tells of a model with other parameters than those that were planned for, by more than a tenth, and of steps that
    /// are given micro-batches in place of all samples of a step.
    ///
    /// # Errors
    ///
    /// [`TrainerError`]: for a model that cannot be trained in the planned precision, if that is a mixed one, and for a plan of
    /// several ranks, which [`ranks`](Self::ranks) are for.
    pub fn trainer<M: Module>(&self, model: M, optimizer: ModuleOptimizer) -> Result<Trainer<M>, TrainerError> {
        let recipe = Recipe::alone(self)?;
        tell_of_another_model(self.workload().trained_parameters().0, &model);
        let trainer = Trainer::of(model, optimizer, recipe.stepper());
        let trainer = trainer.measuring(self.measured_case()).watching(PartialSteps::of(self));
        Ok(match recipe.half() {
            Some(half) => trainer.mixed(half)?,
            None => trainer,
        })
    }
}

/// What takes a session's steps, as often as it is needed.
#[derive(Clone)]
pub(super) struct Recipe {
    /// With autodiff.
    pub device: Device,
    half: Option<Half>,
    micro_batch: usize,
    twice: Bytes,
    replanning: Option<Replanning>,
    loading: Loading,
    course: Course,
}

/// How a rank's part of a step is loaded.
#[derive(Clone, Copy)]
struct Loading {
    /// Of a rank, in a step.
    samples: usize,
    drop_last: bool,
    /// Batches, and as many samples as they may be on the device.
    ahead: (usize, usize),
    workers: usize,
}

impl Recipe {
    /// For steps on one device.
    pub(super) fn alone<C: Tuned>(session: &Session<C>) -> Result<Self, TrainerError> {
        match session.schedule().world_size {
            0 | 1 => Ok(Self::of(session, 0, session.device())),
            world_size => Err(TrainerError::Ranks { world_size }),
        }
    }

    /// For the steps of a rank.
    pub(super) fn of<C: Tuned>(session: &Session<C>, rank: usize, device: Device) -> Self {
        let settings = &session.plan().settings;
        let ahead = (settings.prefetch_depth, settings.prefetch_depth.saturating_mul(settings.batch_size));
        Self {
            // The device was opened in the precision that is asked for, where steps are timed in another than is planned.
            half: Half::of(asked_precision().unwrap_or(settings.precision)),
            micro_batch: size(settings.batch_size),
            twice: held_twice(&session.plan().memory),
            replanning: Some(Replanning::of(session, rank, &device)),
            loading: Loading {
                samples: size(session.schedule().samples_per_rank()),
                drop_last: session.schedule().drop_last,
                ahead: (size(ahead.0), size(ahead.1)),
                workers: size(settings.num_workers),
            },
            course: session.course.of_rank(rank),
            device,
        }
    }

    /// For steps of any size in f32, that are loaded one micro-batch at a time.
    pub(super) fn new(device: Device, micro_batch: usize) -> Self {
        Self {
            device: if device.is_autodiff() { device } else { device.autodiff() },
            half: None,
            micro_batch,
            twice: Bytes(u64::MAX),
            replanning: None,
            loading: Loading { samples: micro_batch, drop_last: false, ahead: (2, 2 * micro_batch), workers: 1 },
            course: Course::default(),
        }
    }

    /// A loader of what a rank trains on, before it is cut to its part.
    pub(super) fn loader<I, B>(
        &self,
        dataset: impl Dataset<I> + 'static,
        batcher: impl Batcher<I, B> + 'static,
    ) -> PrefetchLoader<I, B> {
        let Loading { samples, drop_last, ahead: (depth, on_device), workers } = self.loading;
        PrefetchLoader::new(dataset, batcher, samples)
            .drop_last(drop_last)
            .depth(depth)
            .device_samples(on_device)
            .num_workers(workers)
            .device(self.device.clone())
            .seen_by(self.course.clone())
    }

    /// What the session computes in beside f32.
    pub(super) fn half(&self) -> Option<Half> {
        self.half
    }

    pub(super) fn stepper(&self) -> Stepper {
        let mut stepper = Stepper::new(self.device.clone(), self.micro_batch);
        stepper.clock = Clock::of(&self.course);
        stepper.twice = stepper.twice.with_planned(self.twice.0);
        stepper.remaining = self.replanning.clone().map(|replanning| Box::new(replanning) as Box<dyn Remaining>);
        stepper
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// As much as what the forward pass keeps: it is free again when the optimizer runs.
fn held_twice(memory: &MemoryEstimate) -> Bytes {
    memory.activations + memory.scratch
}

/// What a session plans when memory ran out.
#[derive(Clone)]
struct Replanning {
    facts: DeviceFacts,
    workload: Workload,
    goal: Goal,
    #[cfg(feature = "cuda")]
    left: Left,
}

/// What is left on a GPU.
#[cfg(feature = "cuda")]
#[derive(Clone)]
struct Left {
    device: Device,
    gpu: Option<crate::burn::OpenGpu>,
    /// Taken by opening the device.
    opening: Bytes,
}

impl Replanning {
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "what is left of a CPU is not known"))]
    fn of<C: Tuned>(session: &Session<C>, rank: usize, device: &Device) -> Self {
        let settings = session.plan().settings;
        let mut pins = Pins::default();
        pins.gradient_checkpointing = Some(settings.gradient_checkpointing);
        pins.precision = Some(settings.precision);
        pins.allow_tf32 = Some(settings.allow_tf32);
        let schedule = session.schedule();
        Self {
            facts: session.facts(),
            workload: session.workload().clone(),
            goal: Goal {
                global_batch: Some(schedule.global_batch),
                world_size: schedule.world_size,
                pins,
                ..Goal::default()
            },
            #[cfg(feature = "cuda")]
            left: Left {
                device: device.clone().without_autodiff(),
                // How much is free on the others is not read: their micro-batches are halved.
                gpu: session.opened.gpu.clone().filter(|_| rank == 0),
                opening: session.plan().memory.context + session.plan().memory.kernels,
            },
        }
    }
}

impl Remaining for Replanning {
    /// What is free, and what this process holds.
    #[cfg(feature = "cuda")]
    fn memory(&self) -> Option<Bytes> {
        let Left { device, gpu, opening } = &self.left;
        let held = Bytes(device.memory_pool_usage()?.bytes_reserved);
        let free = crate::burn::memory_free(&gpu.as_ref()?.gpu).ok()?;
        Some(free + held + *opening)
    }

    /// Not known: a CPU pages out before it runs out.
    #[cfg(not(feature = "cuda"))]
    fn memory(&self) -> Option<Bytes> {
        None
    }

    fn plan(&self, memory: Bytes) -> Result<usize, PlanError> {
        let facts = DeviceFacts { memory_available: memory, ..self.facts.clone() };
        let plan = plan(&facts, &self.workload, &self.goal)?;
        Ok(usize::try_from(plan.settings.batch_size).unwrap_or(usize::MAX))
    }
}
