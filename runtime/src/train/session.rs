//! The trainer of a session.

use burn::data::dataloader::batcher::Batcher;
use burn::data::dataset::Dataset;
use burn::module::Module;
use burn::optim::ModuleOptimizer;
use burn::tensor::Device;
use gpu_tuned_core::device::DeviceFacts;
use gpu_tuned_core::plan::{MemoryEstimate, Plan, PlanError, plan};
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
    /// A warning tells of a model with other parameters than those that were measured, or than are planned for by more than a tenth, and of
    /// steps that are given micro-batches in place of all samples of a step.
    ///
    /// # Errors
    ///
    /// [`TrainerError`]: for a model that cannot be trained in the planned precision, if that is a mixed one, and for a plan of
    /// several ranks, which [`ranks`](Self::ranks) are for.
    pub fn trainer<M: Module>(&self, model: M, optimizer: ModuleOptimizer) -> Result<Trainer<M>, TrainerError> {
        let recipe = Recipe::alone(self)?;
        tell_of_another_model(self.workload().trained_parameters(), &model);
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
    pub half: Option<Half>,
    micro_batch: usize,
    twice: Bytes,
    /// Whether the model's statistics are those of a micro-batch.
    batch_statistics: bool,
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
            batch_statistics: session.workload().batch_statistics,
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
            batch_statistics: false,
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
        stepper.tells_of_statistics = self.batch_statistics;
        stepper.remaining = self.replanning.clone().map(|replanning| Box::new(replanning) as Box<dyn Remaining>);
        stepper
    }
}

fn size(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// What is asked for where the planned micro-batch has to give way.
fn giving_way(asked: &Goal, plan: &Plan) -> Goal {
    let pins = Pins::from(&plan.settings).keep(|setting| !setting.row().cuts_step);
    Goal {
        global_batch: Some(plan.schedule.global_batch),
        // What was left alone when it was planned, whichever way led there.
        memory_headroom: plan.memory.headroom_share(),
        pins,
        ..asked.clone()
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
    #[cfg_attr(not(feature = "cuda"), expect(unused_variables, reason = "what is left of a CPU is not known"))]
    fn of<C: Tuned>(session: &Session<C>, rank: usize, device: &Device) -> Self {
        let asked = &session.decision.asked;
        Self {
            facts: asked.facts.clone(),
            workload: session.workload().clone(),
            goal: giving_way(&asked.goal, session.plan()),
            #[cfg(feature = "cuda")]
            left: Left {
                device: device.clone().without_autodiff(),
                gpu: session.opened.gpus.get(rank).cloned(),
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

    fn plan(&self, memory: Bytes, micro_batch: Option<u64>) -> Result<Plan, PlanError> {
        let facts = DeviceFacts { memory_available: memory, ..self.facts.clone() };
        let mut goal = self.goal.clone();
        goal.pins.batch_size = micro_batch;
        plan(&facts, &self.workload, &goal)
    }
}

#[cfg(test)]
mod tests {
    use gpu_tuned_core::device::DeviceFacts;
    use gpu_tuned_core::plan::plan;
    use gpu_tuned_core::profile::ProfileTable;
    use gpu_tuned_core::workload::Transformer;
    use gpu_tuned_core::{Bytes, Goal};

    use super::giving_way;

    #[test]
    fn what_gives_way_is_the_micro_batch_and_not_the_memory_that_is_left_alone() {
        let facts = DeviceFacts::nominal(ProfileTable::builtin().get("h200").unwrap());
        let little = DeviceFacts { memory_available: Bytes::from_mib(9000), ..facts.clone() };
        let workload = Transformer::new(6, 512, 8192, 256).workload();
        let sizes = [0.0, 0.1, 0.5].map(|memory_headroom| {
            let mut asked = Goal { global_batch: Some(256), memory_headroom, prefetch_mib: 16, ..Goal::default() };
            asked.pins.batch_size = Some(256);
            let planned = plan(&facts, &workload, &asked).unwrap();
            let smaller = plan(&little, &workload, &giving_way(&asked, &planned)).unwrap();
            assert_eq!(smaller.schedule.global_batch, 256);
            assert!(smaller.memory.total() <= Bytes::from_mib(9000).scaled(1.0 - memory_headroom));
            smaller.settings.batch_size
        });
        assert!(sizes[0] > sizes[1] && sizes[1] > sizes[2] && sizes[2] < 256, "{sizes:?}");
    }
}
