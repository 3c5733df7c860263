//! What a trainer is about to do, as a subject.

#[cfg(feature = "train")]
use std::any::Any;
use std::env;
use std::process;
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::ModuleOptimizer;
use burn::tensor::{Device, Distribution, Tensor};
#[cfg(feature = "train")]
use burn::train::{InferenceStep, Learner, LearnerModel, TrainStep};

#[cfg(feature = "train")]
use super::pass::{Optimizer, Pass, Whole};
use super::{Case, MeasureError, Subject};
use crate::train::MicroBatch;
#[cfg(feature = "train")]
use crate::train::differentiated;

/// Weights of about this size keep the numbers of most networks in range; results are not looked at.
const SCALE: f64 = 0.02;

impl Case {
    /// Measures a trainer's first step, for the lock or over a range: its model, its optimizer, micro-batches of its batch, and its loss. Ends the process,
    /// unless that fails.
    ///
    /// The workload is called after the program.
    pub(crate) fn of_trainer<M: Module, B: MicroBatch>(
        self,
        model: &M,
        optimizer: &ModuleOptimizer,
        batch: &B,
        loss: &(dyn Fn(&M, B) -> Tensor<1> + Sync),
    ) -> Result<(), MeasureError> {
        let (models, batches, optimizers) =
            (Mutex::new(model.clone()), Mutex::new(batch.clone()), Mutex::new(optimizer.clone()));
        let subject = Subject::new(
            |device| copy(&models).map(&mut Anew { device }),
            || copy(&optimizers),
            |samples, device| copy(&batches).narrow(0..samples).on_device(device),
            |model: &M, batch: B| loss(model, batch),
        );
        self.up_to(batch.len()).answer(&program(), &subject)?;
        process::exit(0);
    }

    /// Measures a learner's first step: its model, its optimizer, and micro-batches of a batch.
    ///
    /// The workload is called after the program.
    #[cfg(feature = "train")]
    pub(crate) fn of_learner<M>(self, learner: &Learner<M>, batch: &<M as TrainStep>::Input) -> Result<(), MeasureError>
    where
        M: LearnerModel,
        <M as TrainStep>::Input: MicroBatch,
    {
        // A learner takes other weights as a record only, and keeps its optimizer to itself.
        let weights = learner.model().into_record();
        let (learners, batches) = (Mutex::new(learner.clone()), Mutex::new(batch.clone()));
        let begin = |device: &Device| {
            let mut learner = copy(&learners);
            learner.fork(device);
            learner.load_model(weights.clone());
            learner.lr_step();
            let model = learner.model();
            let step = move |model, gradients| {
                drop(model);
                learner.optimizer_step(gradients);
                learner.model()
            };
            (model, Optimizer::Learner(Box::new(step)))
        };
        let whole = Whole {
            gradients: Box::new(|model: &M, batch| TrainStep::step(model, batch).grads),
            forward: Box::new(forward),
            checkpointing: is_checkpointing(&learner.model()),
        };
        let batch_of = |samples, device: &Device| copy(&batches).narrow(0..samples).on_device(device);
        let subject = Subject::of(begin, batch_of, Pass::Whole(whole));
        self.up_to(batch.len()).answer(&program(), &subject)
    }
}

/// Whether a model was made on a device that recomputes activations: to move it to another changes nothing of that.
#[cfg(feature = "train")]
fn is_checkpointing<M: Module>(model: &M) -> bool {
    let checkpointing = Device::flex().autodiff().gradient_checkpointing().gradient_checkpointing_strategy();
    differentiated(model).iter().any(|device| device.gradient_checkpointing_strategy() == checkpointing)
}

/// A model's validation step with a batch of its training step, if it takes such: its forward pass and nothing else.
#[cfg(feature = "train")]
fn forward<M: LearnerModel>(model: &M, batch: <M as TrainStep>::Input) -> Option<Box<dyn Any>> {
    let batch: Box<dyn Any> = Box::new(batch);
    let batch = batch.downcast::<<M as InferenceStep>::Input>().ok()?;
    Some(Box::new(InferenceStep::step(model, *batch)))
}

fn copy<T: Clone>(shared: &Mutex<T>) -> T {
    shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// The program's name, without what systems add to it.
fn program() -> String {
    let name = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| "program".to_owned())
}

/// New weights on a device, so that a model belongs to its autodiff and checkpointing.
struct Anew<'d> {
    device: &'d Device,
}

impl ModuleMapper for Anew<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| {
            let normal = Distribution::Normal(0.0, SCALE);
            let new = Tensor::random(old.shape(), normal, (self.device, old.dtype()));
            if old.is_require_grad() { new.require_grad() } else { new }
        })
    }
}
