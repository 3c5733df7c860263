//! Two ranks of a session in mixed precision, against one rank with the whole batch.

use std::ops::Range;

use burn::module::Module;
use burn::nn::{Linear, LinearConfig};
use burn::optim::{ModuleOptimizer, SgdConfig};
use burn::tensor::{DType, Device, Tensor, TensorData};
use gpu_tuned::mixed::{Half, in_f32};
use gpu_tuned::train::{Step, Trainer};
use gpu_tuned::{MicroBatch, Options, Pins, Precision};

use crate::launched::launched;

use super::models::Numbers;
use super::process;
use super::steps::{bits, device, half};

const RATE: f64 = 0.2;
/// Samples of the steps; of one the second rank has none.
const SIZES: [usize; 8] = [16, 16, 7, 16, 1, 16, 16, 16];
/// The step that overflows on one rank.
const OVERFLOWS: usize = 5;

config! { Together, mlp(widths = [6, 24, 3]), global_batch = 16, target = "generic" }

#[derive(Module, Debug)]
struct Network {
    first: Linear,
    last: Linear,
}

impl Network {
    fn init(device: &Device) -> Self {
        Self { first: LinearConfig::new(6, 24).init(device), last: LinearConfig::new(24, 3).init(device) }
    }

    fn loss(&self, (input, target): Batch) -> Tensor<1> {
        assert_eq!(self.first.weight.dtype(), DType::from(device().settings().float_dtype));
        let output = in_f32(self.last.forward(self.first.forward(input).tanh()));
        (output - in_f32(target)).square().mean()
    }
}

type Batch = (Tensor<2>, Tensor<2>);

/// The samples of a step, in the host's memory.
fn batch(step: usize) -> Batch {
    let mut numbers = Numbers::new(step as u64);
    let mut values = |columns| {
        let values: Vec<f32> = (0..SIZES[step] * columns).map(|_| numbers.real()).collect();
        Tensor::from_data(TensorData::new(values, [SIZES[step], columns]), (&Device::flex(), DType::F32))
    };
    (values(6), values(3))
}

fn optimizer() -> ModuleOptimizer {
    SgdConfig::new().init()
}

/// A step, and what the rank has after it.
struct Taken {
    step: Step,
    scale: f64,
    master: Vec<u32>,
}

impl Taken {
    fn is_same(&self, other: &Self) -> bool {
        let of_all = |taken: &Self| {
            let Step { loss, gradient_norm, loss_scale, applied, .. } = taken.step;
            ([loss, gradient_norm].map(f32::to_bits), [loss_scale, taken.scale].map(f64::to_bits), applied)
        };
        of_all(self) == of_all(other) && self.master == other.master
    }
}

/// Steps over a rank's parts of batches; the loss of one of them is multiplied by `factor`.
fn steps(trainer: &mut Trainer<Network>, part: impl Fn(usize) -> Range<usize>, factor: f64) -> Vec<Taken> {
    let taken = SIZES.iter().enumerate().map(|(number, samples)| {
        let factor = if number == OVERFLOWS { factor } else { 1.0 };
        let own = batch(number).narrow(part(*samples));
        let step = trainer.step(RATE, own, |model, micro| model.loss(micro).mul_scalar(factor)).expect("a step");
        assert_eq!(trainer.master().first.weight.dtype(), DType::F32);
        Taken { step, scale: trainer.loss_scale().value(), master: bits(trainer.master()) }
    });
    taken.collect()
}

/// Steps of two ranks on the CPU; the second's loss is multiplied by `factor` in one step. A session there has `mixed_f16`,
/// and no `mixed_bf16`: it has no units for bf16.
fn together(half: Half, first: &Network, factor: f64) -> [Vec<Taken>; 2] {
    let mut set = Pins::default();
    set.precision = (half == Half::F16).then_some(Precision::MixedF16);
    let ranks = launched(2, |_, as_rank| {
        let options = as_rank(Options::default().cpu().set(set.clone()));
        let session = options.start(Together { batch_size: 3 }).expect("it fits");
        // The second rank's values are replaced.
        let model = if session.is_first_rank() { first.clone() } else { Network::init(&session.device()) };
        let factor = if session.is_first_rank() { 1.0 } else { factor };
        let trainer = session.trainer(model, optimizer()).expect("a trainer");
        let mut trainer = if half == Half::Bf16 { trainer.mixed(half).expect("weights only") } else { trainer };
        steps(&mut trainer, |samples| session.part(samples), factor)
    });
    ranks.try_into().unwrap_or_else(|_| panic!("two ranks"))
}

/// Largest difference between two of them.
fn furthest(one: &[u32], other: &[u32]) -> f32 {
    let apart = one.iter().zip(other).map(|(a, b)| (f32::from_bits(*a) - f32::from_bits(*b)).abs());
    apart.fold(0.0, f32::max)
}

/// Steps of ranks in this process's default float type; the loss of one rank is multiplied by `factor` once.
pub(crate) fn task(factor: &str) -> String {
    let half = half();
    let factor = factor.parse().expect("a number");
    device().seed(1);
    let first = Network::init(&device());
    let before = bits(&first);
    let [one, other] = together(half, &first, factor);
    let same = one.iter().zip(&other).all(|(one, other)| one.is_same(other));

    let alone = Trainer::new(first, optimizer(), device(), 16).mixed(half);
    let whole = steps(&mut alone.expect("it has no running statistics"), |samples| 0..samples, factor);
    let [trained, expected] = [&one, &whole].map(|taken| &taken[taken.len() - 1].master);
    let off = furthest(trained, expected) / furthest(&before, expected);
    // The distance between 1 and the next larger number.
    let near = off < if half == Half::F16 { 2_f32.powi(-10) } else { 2_f32.powi(-7) };

    let skipped: Vec<_> = one.iter().enumerate().filter(|(_, taken)| !taken.step.applied).collect();
    let stands = skipped.iter().all(|(number, taken)| taken.master == one[number - 1].master);
    let skipped: Vec<_> = skipped.iter().map(|(number, _)| number).collect();
    let (began, ended) = (one[0].step.loss_scale, one[one.len() - 1].scale);
    format!("same: {same}, near: {near}, left out: {skipped:?}, unchanged: {stands}, scale: x{}", ended / began)
}

#[test]
fn ranks_have_the_same_masters_and_take_the_steps_of_one() {
    for float in ["bf16", "f16"] {
        let taken = process::run(float, "ranks 1");
        assert_eq!(taken, "same: true, near: true, left out: [], unchanged: true, scale: x1", "{float}");
    }
}

#[test]
fn an_overflow_of_one_rank_makes_all_leave_the_step_out_and_lower_the_scale() {
    let taken = process::run("f16", "ranks 1e9");
    assert_eq!(taken, "same: true, near: true, left out: [5], unchanged: true, scale: x0.5");
    // bf16 overflows where f32 does, and no loss scale prevents that.
    let taken = process::run("bf16", "ranks 1e39");
    assert_eq!(taken, "same: true, near: true, left out: [5], unchanged: true, scale: x1");
}
