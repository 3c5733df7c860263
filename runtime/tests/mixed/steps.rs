//! Steps that are left out, and runs that go on where another ended.

use burn::module::{Module, ModuleVisitor, Param};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer};
use burn::tensor::{Device, FloatDType, Tensor};
use gpu_tuned::mixed::{Half, LossScale, Master, Step, global_norm};

use crate::models::{Learner, Transformer};
use crate::process;

/// A run in mixed precision.
struct Training {
    master: Master<Transformer>,
    optimizer: ModuleOptimizer,
    scale: LossScale,
}

impl Training {
    fn new(half: Half) -> Self {
        let device = device();
        device.seed(1);
        Self {
            master: Master::new(Transformer::init(&device), half).unwrap(),
            optimizer: AdamWConfig::new().init(),
            scale: LossScale::for_half(half),
        }
    }

    /// One step whose loss is multiplied by `factor`; its loss without it, and what became of it.
    fn step(mut self, seed: u64, factor: f64) -> (Self, f64, Step) {
        let model = self.master.compute_copy();
        let loss = model.loss(seed, &device());
        let value = loss.clone().into_scalar::<f64>();
        let gradients = GradientsParams::from_grads(self.scale.scale(loss.mul_scalar(factor)).backward(), &model);
        let gradients = self.scale.widen(gradients, &model).unwrap();
        let norm = global_norm(&gradients, &model).unwrap().into_scalar::<f32>();
        drop(model);
        let step = self.scale.update(norm.is_finite());
        if step == Step::Applied {
            let optimizer = &mut self.optimizer;
            self.master = self.master.update(|model| optimizer.step(3e-3, model, gradients));
        }
        (self, value, step)
    }

    fn bits(&self) -> Vec<u32> {
        struct Bits(Vec<u32>);
        impl ModuleVisitor for Bits {
            fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
                self.0.extend(param.val().cast(FloatDType::F32).into_data().iter::<f32>().map(f32::to_bits));
            }
        }
        let mut bits = Bits(Vec::new());
        self.master.model().visit(&mut bits);
        bits.0
    }

    fn optimizer_bytes(&self) -> Vec<u8> {
        self.optimizer.into_bytes().unwrap().to_vec()
    }
}

fn device() -> Device {
    Device::flex().autodiff()
}

/// What an overflow at step 30 of 60 does.
pub(crate) fn overflow() -> String {
    let mut training = Training::new(Half::F16);
    let (mut losses, mut skipped, mut before) = (Vec::new(), Vec::new(), None);
    for seed in 0..60 {
        let factor = if seed == 30 { 1e9 } else { 1.0 };
        let (bits, bytes, scale) = (training.bits(), training.optimizer_bytes().len(), training.scale.value());
        let (next, loss, step) = training.step(seed, factor);
        training = next;
        losses.push(loss);
        if step == Step::Skipped {
            skipped.push(seed);
        }
        if seed == 30 {
            let same = bits == training.bits() && bytes == training.optimizer_bytes().len();
            before = Some((same, training.scale.value() / scale));
        }
    }
    let (same, backed_off) = before.expect("step 30");
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    let falls = mean(&losses[50..]) < mean(&losses[20..30]);
    format!("same: {same}, factor: {backed_off}, falls: {falls}, late: {:?}", skipped.iter().filter(|seed| **seed > 20).collect::<Vec<_>>())
}

pub(crate) fn resume() -> String {
    String::new()
}

#[test]
fn a_step_that_overflows_is_left_out_and_training_goes_on() {
    assert_eq!(process::run("f16", "overflow"), "same: true, factor: 0.5, falls: true, late: [30]");
}
