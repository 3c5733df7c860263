//! Steps on the CPU: what they add up to, and what becomes of them when memory runs out.

mod accumulation;
mod losses;
mod matrix;
mod norms;
mod out_of_memory;
mod rounding;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use burn::module::{Module, ModuleMapper, Param};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig};
use burn::optim::momentum::MomentumConfig;
use burn::optim::{AdamWConfig, ModuleOptimizer, Optimizer, Sgd, SgdConfig};
use burn::tensor::activation::{log_softmax, relu};
use burn::tensor::{Device, Int, Tensor, TensorData};
use gpu_tuned_core::Bytes;
use rand::rngs::StdRng;
use rand::{RngExt, SeedableRng};

use super::{GraphStatus, Step, StepError, Trainer};
use crate::micro_batch::MicroBatch;
use crate::mixed::{Half, LossScale};

pub(super) use networks::{furthest, values as parameters};

const FEATURES: usize = 12;
const CLASSES: usize = 5;
pub(super) const OUT_OF_MEMORY: &str = "out of device memory allocating 4096 bytes";

#[derive(Module, Debug)]
pub(super) struct Network {
    pub(super) first: Linear,
    pub(super) norm: Option<BatchNorm>,
    pub(super) last: Linear,
}

pub(super) type Batch = (Tensor<2>, Tensor<1, Int>);

impl Network {
    pub(super) fn new(device: &Device, with_norm: bool) -> Self {
        let layers = Self {
            first: LinearConfig::new(FEATURES, 16).init(device),
            norm: with_norm.then(|| BatchNormConfig::new(16).init(device)),
            last: LinearConfig::new(16, CLASSES).init(device),
        };
        layers.map(&mut Weights(7))
    }

    pub(super) fn loss(&self, (input, target): Batch) -> Tensor<1> {
        let hidden = self.first.forward(input);
        let hidden = self.norm.iter().fold(hidden, |hidden, norm| norm.forward(hidden));
        let likely = log_softmax(self.last.forward(relu(hidden)), 1).gather(1, target.unsqueeze_dim(1));
        likely.mean().neg()
    }
}

/// Values in -1..1; Burn's own random ones depend on what other tests draw at the same time.
pub(super) fn values(seed: u64, count: usize) -> Vec<f32> {
    let mut random = StdRng::seed_from_u64(seed);
    (0..count).map(|_| random.random_range(-1.0..1.0)).collect()
}

/// Gives parameters values of their own, which are the same each time.
pub(super) struct Weights(pub u64);

impl ModuleMapper for Weights {
    fn map_float<const D: usize>(&mut self, param: Param<Tensor<D>>) -> Param<Tensor<D>> {
        self.0 += 1;
        let seed = self.0;
        param.map(|old| {
            let data = TensorData::new(values(seed, old.shape().num_elements()), old.shape());
            let new = Tensor::from_data(data, &old.device()).mul_scalar(0.3);
            if old.is_require_grad() { new.detach().require_grad() } else { old }
        })
    }
}

fn device() -> Device {
    Device::flex().autodiff()
}

pub(super) fn batch(samples: usize, seed: u64) -> Batch {
    let device = Device::flex();
    let input = TensorData::new(values(seed, samples * FEATURES), [samples, FEATURES]);
    let classes: Vec<_> = values(seed + 1000, samples).iter().map(|x| ((x + 1.0) * 2.499) as i64).collect();
    (Tensor::from_data(input, &device), Tensor::from_data(TensorData::new(classes, [samples]), &device))
}

pub(super) fn sgd() -> ModuleOptimizer {
    SgdConfig::new().with_momentum(Some(MomentumConfig::new())).init()
}

pub(super) fn trainer(micro_batch: usize) -> Trainer<Network> {
    Trainer::new(Network::new(&device(), false), sgd(), device(), micro_batch)
}

fn trained(trainer: &mut Trainer<Network>, steps: u64) -> Vec<Step> {
    (0..steps).map(|seed| trainer.step(0.1, batch(512, seed), Network::loss).unwrap()).collect()
}

/// Plain descent that has no memory in some of its calls.
#[derive(Clone)]
pub(super) struct Starved {
    called: Arc<AtomicUsize>,
    fails: Range<usize>,
}

impl Starved {
    pub(super) fn new(fails: Range<usize>) -> Self {
        Self { called: Arc::default(), fails }
    }
}

impl Optimizer for Starved {
    type State<const D: usize> = <Sgd as Optimizer>::State<D>;

    fn step<const D: usize>(
        &self,
        rate: f64,
        tensor: Tensor<D>,
        gradient: Tensor<D>,
        _: Option<Self::State<D>>,
    ) -> (Tensor<D>, Option<Self::State<D>>) {
        assert!(!self.fails.contains(&self.called.fetch_add(1, Ordering::Relaxed)), "{OUT_OF_MEMORY}");
        (tensor - gradient * rate, None)
    }

    fn to_device<const D: usize>(state: Self::State<D>, _: &Device) -> Self::State<D> {
        state
    }
}

#[test]
fn the_trainer_is_burns_own_loop() {
    let mut own = trainer(512);
    let losses: Vec<_> = trained(&mut own, 20).into_iter().map(|step| step.loss).collect();
    assert!(losses[19] < losses[0], "{losses:?}");
    let (mut model, mut optimizer) = (Network::new(&device(), false), sgd());
    for seed in 0..20 {
        let loss = model.loss(MicroBatch::on_device(batch(512, seed), &device()));
        let gradients = burn::optim::GradientsParams::from_grads(loss.backward(), &model);
        model = optimizer.step(0.1, model, gradients);
    }
    assert_eq!(parameters(own.model()), parameters(&model));
}

#[test]
fn a_saved_loss_scale_counts_in_mixed_precision_only() {
    let saved = || LossScale::for_half(Half::F16).with_init_scale(512.0);
    let (mut plain, mut with_scale) = (trainer(16), trainer(16).with_loss_scale(saved()));
    let steps = [&mut plain, &mut with_scale].map(|trainer| trainer.step(0.1, batch(64, 0), Network::loss).unwrap());
    assert_eq!(steps[0], steps[1]);
    assert_eq!(parameters(plain.model()), parameters(with_scale.model()));
    let mixed = [
        trainer(16).with_loss_scale(saved()).mixed(Half::F16),
        Ok(trainer(16).mixed(Half::F16).unwrap().with_loss_scale(saved())),
    ];
    let scales = mixed.map(|trainer| trainer.unwrap().loss_scale().value());
    assert!(scales.iter().all(|scale| (scale - 512.0).abs() < 1e-9), "{scales:?}");
}

#[test]
fn a_device_without_cuda_graphs_trains_without_them() {
    let (mut plain, mut asked) = (trainer(64), trainer(64).cuda_graphs());
    assert_eq!(asked.graph_status(), GraphStatus::WarmingUp);
    for step in 0..10 {
        let losses =
            [&mut plain, &mut asked].map(|trainer| trainer.step(0.1, batch(64, step), Network::loss).unwrap().loss);
        assert_eq!(losses[0].to_bits(), losses[1].to_bits());
    }
    assert!(matches!(asked.graph_status(), GraphStatus::Refused { .. }), "{}", asked.graph_status());
    assert_eq!(plain.graph_status(), GraphStatus::Off);
}

#[test]
fn gradients_are_clipped_by_their_global_norm() {
    let plain = trainer(64).step(0.1, batch(64, 0), Network::loss).unwrap();
    let before = parameters(&Network::new(&device(), false));
    let moved = |most: f32| {
        let model = Network::new(&device(), false);
        let mut trainer = Trainer::new(model, SgdConfig::new().init(), device(), 16).clip_norm(most);
        let step = trainer.step(1.0, batch(64, 0), Network::loss).unwrap();
        assert!((step.gradient_norm / plain.gradient_norm - 1.0).abs() < 1e-5);
        let squares = |(old, new): (&f32, &f32)| f64::from(old - new).powi(2);
        before.iter().zip(&parameters(trainer.model())).map(squares).sum::<f64>().sqrt() as f32
    };
    // With SGD and a learning rate of one the parameters move by the gradient.
    assert!((moved(0.01) / 0.01 - 1.0).abs() < 1e-3);
    assert!((moved(1e6) / plain.gradient_norm - 1.0).abs() < 1e-3);
}

#[test]
fn gradients_that_are_not_finite_change_nothing_and_end_training_when_they_stay() {
    let mut trainer = trainer(32);
    let before = parameters(trainer.model());
    let broken = |model: &Network, batch: Batch| model.loss(batch).mul_scalar(f32::NAN);
    let step = trainer.step(0.1, batch(32, 0), broken).unwrap();
    assert!(!step.applied && step.gradient_norm.is_nan());
    assert_eq!(parameters(trainer.model()), before);
    let error = (1..1000).find_map(|_| trainer.step(0.1, batch(32, 0), broken).err()).unwrap();
    assert!(matches!(error, StepError::NotFinite { steps: 100 }), "{error}");
}

#[test]
fn an_optimizer_that_changes_nothing_is_noticed() {
    // All parameters at once, and each by itself.
    for twice in [u64::MAX, 64] {
        let new = || {
            let trainer = Trainer::new(Network::new(&device(), false), AdamWConfig::new().init(), device(), 32);
            trainer.hold_twice(Bytes(twice))
        };
        assert!(!new().step(1e-3, batch(32, 0), Network::loss).unwrap().stalled);
        // Too small for f32 beside parameters of about a tenth.
        assert!(new().step(1e-12, batch(32, 0), Network::loss).unwrap().stalled, "{twice}");
        assert!(!new().step(0.0, batch(32, 0), Network::loss).unwrap().stalled);
    }
}

#[test]
fn an_empty_batch_is_an_error() {
    let error = trainer(8).step(0.1, batch(8, 0).narrow(0..0), Network::loss).unwrap_err();
    assert!(matches!(error, StepError::Empty));
}

#[test]
#[should_panic(expected = "index out of bounds")]
fn other_panics_of_the_loss_go_on() {
    let _ = trainer(8).step(0.1, batch(8, 0), |_, _| -> Tensor<1> { panic!("index out of bounds") });
}
