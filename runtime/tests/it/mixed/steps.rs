//! Steps that are left out, and runs that go on where another ended.

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};

use burn::module::Module;
use burn::nn::{Initializer, Linear, LinearConfig};
use burn::optim::{AdamWConfig, GradientsParams, ModuleOptimizer, SgdConfig};
use burn::store::ModuleRecord;
use burn::tensor::{Device, Tensor};
use gpu_tuned::mixed::{F32State, Half, LossScale, Master, StepOutcome, global_norm};
use networks::values;

use super::models::{Learner, Transformer};
use super::process;

/// A run in mixed precision, by hand.
pub(crate) struct Training<L: Learner = Transformer> {
    master: Master<L>,
    optimizer: ModuleOptimizer,
    rate: f64,
    scale: LossScale,
}

impl Training {
    pub(crate) fn new(half: Half, optimizer: ModuleOptimizer) -> Self {
        device().seed(1);
        Self::of(Transformer::init(&device()), half, optimizer, 3e-3)
    }
}

impl<L: Learner> Training<L> {
    pub(crate) fn of(model: L, half: Half, optimizer: ModuleOptimizer, rate: f64) -> Self {
        let master = Master::new(model, half).unwrap();
        Self { master, optimizer, rate, scale: LossScale::for_half(half) }
    }

    /// One step whose loss is multiplied by `factor`; its loss without it, and what became of it.
    pub(crate) fn step(mut self, seed: u64, factor: f64) -> (Self, f64, StepOutcome) {
        let model = self.master.compute_copy();
        let loss = model.loss(seed, &device());
        let value = loss.clone().into_scalar::<f64>();
        let gradients = GradientsParams::from_grads(self.scale.scale(loss.mul_scalar(factor)).backward(), &model);
        let gradients = self.scale.widen(gradients, &model).unwrap();
        let norm = global_norm(&gradients, &model).unwrap().into_scalar::<f32>();
        drop(model);
        let step = self.scale.update(norm.is_finite());
        if step == StepOutcome::Applied {
            let (optimizer, rate) = (&mut self.optimizer, self.rate);
            self.master = self.master.update(|model| optimizer.step(rate, model, gradients));
        }
        (self, value, step)
    }

    pub(crate) fn bits(&self) -> Vec<u32> {
        bits(self.master.model())
    }
}

/// All parameters of a model in f32, bit by bit; those that are made when they are first used are made by this.
pub(crate) fn bits<M: Module>(model: &M) -> Vec<u32> {
    values(model).into_iter().map(f32::to_bits).collect()
}

pub(crate) fn device() -> Device {
    Device::flex().autodiff()
}

/// The default float type of this process.
pub(crate) fn half() -> Half {
    if device().settings().float_dtype == Half::F16.float() { Half::F16 } else { Half::Bf16 }
}

/// Losses around an overflow at step 30 of 60.
pub(crate) fn overflow() -> String {
    let mut training = Training::new(Half::F16, AdamWConfig::new().init());
    let (mut losses, mut skipped, mut after) = (Vec::new(), Vec::new(), String::new());
    for seed in 0..60 {
        let (bits, scale) = (training.bits(), training.scale.value());
        let (next, loss, step) = training.step(seed, if seed == 30 { 1e9 } else { 1.0 });
        training = next;
        losses.push(loss);
        if step == StepOutcome::Skipped {
            skipped.push(seed);
        }
        if seed == 30 {
            after = format!("same: {}, factor: {}", bits == training.bits(), training.scale.value() / scale);
        }
    }
    // The factor may be too large to begin with.
    skipped.retain(|seed| *seed >= 20);
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    format!("{after}, falls: {}, skipped: {skipped:?}", mean(&losses[50..]) < mean(&losses[20..30]))
}

#[test]
fn a_step_that_overflows_is_left_out_and_training_goes_on() {
    assert_eq!(process::run("f16", "overflow"), "same: true, factor: 0.5, falls: true, skipped: [30]");
}

const STEPS: u64 = 8;

/// Compares a run that is saved and loaded in the middle with an uninterrupted one.
pub(crate) fn resume() -> String {
    // Without a state: what the optimizer keeps is loaded exactly where some device has f32 as its default only.
    let optimizer = || SgdConfig::new().init();
    let run = |training, steps: Range<u64>| steps.fold(training, |training: Training, seed| training.step(seed, 1.0).0);
    let training = run(Training::new(half(), optimizer()), 0..STEPS);
    let model = training.master.model().valid().into_record().into_bytes().unwrap();
    let scale = serde_json::to_string(&training.scale).unwrap();
    let right = run(training, STEPS..2 * STEPS);

    let record = ModuleRecord::from_bytes(model).unwrap();
    let loaded = Transformer::init(&device()).load_record(record);
    let scale = serde_json::from_str(&scale).unwrap();
    let resumed = Training { scale, ..Training::of(loaded, half(), optimizer(), 3e-3) };
    let resumed = run(resumed, STEPS..2 * STEPS);
    format!("{}, {}", resumed.bits() == right.bits(), resumed.scale == right.scale)
}

#[test]
fn a_run_goes_on_from_what_was_saved_as_if_it_had_not_ended() {
    for float in ["bf16", "f16"] {
        assert_eq!(process::run(float, "resume"), "true, true");
    }
}

/// Losses before and after the optimizer's state is saved and loaded: in f32, so that both ways of loading are exact.
fn losses_around_loading(optimizer: impl Fn() -> ModuleOptimizer) -> Vec<u32> {
    let device = Device::flex().autodiff();
    let input = Tensor::<2>::from_floats([[0.5, -1.0, 2.0]], &device);
    let mut model: Linear =
        LinearConfig::new(3, 1).with_initializer(Initializer::Constant { value: 0.3 }).init(&device);
    let mut training = optimizer();
    let mut losses = Vec::new();
    for step in 0..6 {
        if step == 3 {
            training = optimizer().from_bytes(training.into_bytes().unwrap()).unwrap();
        }
        let loss = model.forward(input.clone()).square().mean();
        losses.push(loss.clone().into_scalar::<f32>().to_bits());
        let gradients = GradientsParams::from_grads(loss.backward(), &model);
        model = training.step(0.1, model, gradients);
    }
    losses
}

#[test]
fn an_optimizer_with_its_state_in_f32_is_the_optimizer_itself() {
    let plain = losses_around_loading(|| AdamWConfig::new().init());
    let wide = losses_around_loading(|| F32State::new(AdamWConfig::new().build()).into());
    assert_eq!(plain, wide);
}

/// Step of an `AdamW` with loaded state, by Burn and by us.
pub(crate) fn loaded_state() -> String {
    let step_after_loading = |optimizer: &dyn Fn() -> ModuleOptimizer| {
        let (training, ..) = Training::new(Half::Bf16, optimizer()).step(0, 1.0);
        let bytes = training.optimizer.into_bytes().unwrap();
        let training = Training { optimizer: optimizer().from_bytes(bytes).unwrap(), ..training };
        let stepped = catch_unwind(AssertUnwindSafe(|| training.step(1, 1.0)));
        if stepped.is_ok() { "steps" } else { "mixes" }
    };
    let plain = step_after_loading(&|| AdamWConfig::new().init());
    let wide = step_after_loading(&|| F32State::new(AdamWConfig::new().build()).into());
    format!("{plain}, {wide}")
}

/// If Burn mends this, `F32State` is no longer needed.
#[test]
fn burn_loads_the_state_of_optimizers_in_the_default_float_type() {
    assert_eq!(process::run("bf16", "loaded_state"), "mixes, steps");
}
