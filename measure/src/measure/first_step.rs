//! Measurement of a trainer's or learner's first step.

#[cfg(feature = "train")]
use std::any::Any;
use std::env;
use std::process;
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ModuleMapper, Param};
use burn::tensor::{Device, Distribution, Tensor};
#[cfg(feature = "train")]
use burn::train::{InferenceStep, Learner, LearnerModel, TrainStep};
#[cfg(feature = "train")]
use gpu_tuned_train::micro_batch::MicroBatch;
use gpu_tuned_train::train::FirstStep;
#[cfg(feature = "train")]
use gpu_tuned_train::train::differentiated;

#[cfg(feature = "train")]
use super::pass::{Optimizer, Pass, Whole};
use super::{MeasureError, MeasurementTarget, Subject};

/// Standard deviation that keeps the values of most networks finite. Results are not used.
const SCALE: f64 = 0.02;

impl MeasurementTarget {
    /// Measures a trainer's first step, and ends the process. The workload is named after the program.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    pub fn take_first_step<M: Module>(self, step: &FirstStep<'_, M>) -> Result<(), MeasureError> {
        let FirstStep { model, optimizer, samples, batch, loss, accepts_half_loss } = *step;
        let (models, optimizers) = (Mutex::new(model.clone()), Mutex::new(optimizer.clone()));
        let model = |device: &Device| copy(&models).map(&mut FreshParameters { device });
        let subject = Subject::new(model, || copy(&optimizers), batch, loss).accept_half_loss(accepts_half_loss);
        self.with_max_samples(samples).run(&program(), &subject)?;
        process::exit(0);
    }

    /// Measures a learner's first step. The workload is named after the program.
    ///
    /// # Errors
    ///
    /// See [`MeasureError`].
    #[cfg(feature = "train")]
    pub fn take_learners_first_step<M>(
        self,
        learner: &Learner<M>,
        batch: &<M as TrainStep>::Input,
    ) -> Result<(), MeasureError>
    where
        M: LearnerModel,
        <M as TrainStep>::Input: MicroBatch,
    {
        // A learner accepts weights as a record only, and does not expose its optimizer.
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
        let subject = Subject::from_parts(begin, batch_of, Pass::Whole(whole));
        self.with_max_samples(batch.len()).run(&program(), &subject)
    }
}

/// Returns true for a model whose device recomputes activations. A move to another device does not change that.
#[cfg(feature = "train")]
fn is_checkpointing<M: Module>(model: &M) -> bool {
    let checkpointing = Device::flex().autodiff().gradient_checkpointing().gradient_checkpointing_strategy();
    differentiated(model).iter().any(|device| device.gradient_checkpointing_strategy() == checkpointing)
}

/// Forward pass alone: the model's validation step, if it accepts training batches.
#[cfg(feature = "train")]
fn forward<M: LearnerModel>(model: &M, batch: <M as TrainStep>::Input) -> Option<Box<dyn Any>> {
    let batch: Box<dyn Any> = Box::new(batch);
    let batch = batch.downcast::<<M as InferenceStep>::Input>().ok()?;
    Some(Box::new(InferenceStep::step(model, *batch)))
}

fn copy<T: Clone>(shared: &Mutex<T>) -> T {
    shared.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Name of the program, without extension.
fn program() -> String {
    let name = env::current_exe().ok().and_then(|path| Some(path.file_stem()?.to_string_lossy().into_owned()));
    name.unwrap_or_else(|| "program".to_owned())
}

/// Replaces parameters by random ones on a device, with its autodiff and checkpointing.
struct FreshParameters<'d> {
    device: &'d Device,
}

impl ModuleMapper for FreshParameters<'_> {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        param.map(|old| {
            let normal = Distribution::Normal(0.0, SCALE);
            let new = Tensor::random(old.shape(), normal, (self.device, old.dtype()));
            if old.is_require_grad() { new.require_grad() } else { new }
        })
    }
}
