//! What a trainer is about to do, as a subject.

use std::env;
use std::process;
use std::sync::{Mutex, PoisonError};

use burn::module::{Module, ModuleMapper, Param};
use burn::optim::ModuleOptimizer;
use burn::tensor::{Device, Distribution, Tensor};

use super::{Case, MeasureError, Subject};
use crate::train::MicroBatch;

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
