//! The trainer of a session.

use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{MemoryEstimate, PlanError, plan};
use gpu_tuned_core::workload::Workload;
use gpu_tuned_core::{Bytes, Goal, Pins};

use super::stepper::{Remaining, Stepper};
use super::{Trainer, TrainerError};
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
    /// # Errors
    ///
    /// [`TrainerError`]: for a model that cannot be trained in the planned precision, if that is a mixed one, and for a plan of
    /// several ranks.
    pub fn trainer<M: Module>(&self, model: M, optimizer: ModuleOptimizer) -> Result<Trainer<M>, TrainerError> {
        let recipe = Recipe::of(self)?;
        let trainer = Trainer::of(model, optimizer, recipe.stepper());
        Ok(match Half::of(self.plan().settings.precision) {
            Some(half) => trainer.mixed(half)?,
            None => trainer,
        })
    }
}

/// What takes a session's steps, as often as it is needed.
pub(super) struct Recipe {
    device: Device,
    #[cfg(feature = "train")]
    half: Option<Half>,
    micro_batch: usize,
    twice: Bytes,
    replanning: Replanning,
}

impl Recipe {
    pub(super) fn of<C: Tuned>(session: &Session<C>) -> Result<Self, TrainerError> {
        let world_size = session.schedule().world_size;
        if world_size > 1 {
            return Err(TrainerError::Ranks { world_size });
        }
        Ok(Self {
            device: session.device(),
            #[cfg(feature = "train")]
            half: Half::of(session.plan().settings.precision),
            micro_batch: usize::try_from(session.plan().settings.batch_size).unwrap_or(usize::MAX),
            twice: held_twice(&session.plan().memory),
            replanning: Replanning::of(session),
        })
    }

    /// What the session computes in beside f32.
    #[cfg(feature = "train")]
    pub(super) fn half(&self) -> Option<Half> {
        self.half
    }

    pub(super) fn stepper(&self) -> Stepper {
        let mut stepper = Stepper::new(self.device.clone(), self.micro_batch);
        stepper.twice = self.twice;
        stepper.remaining = Some(Box::new(self.replanning.clone()));
        stepper
    }
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
    fn of<C: Tuned>(session: &Session<C>) -> Self {
        let settings = session.plan().settings;
        let mut pins = Pins::default();
        pins.gradient_checkpointing = Some(settings.gradient_checkpointing);
        pins.precision = Some(settings.precision);
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
                device: session.inner_device(),
                gpu: session.opened.gpu.clone(),
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
