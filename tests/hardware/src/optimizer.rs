//! Adam and AdamW by one kernel for each parameter: values beside Burn's and beside fp64, and their time.

use std::time::Instant;

use anyhow::ensure;
use burn::optim as burn_optim;
use burn::optim::decay::WeightDecayConfig;
use burn::tensor::{DType, Device, Tensor, TensorData};
use clap::Args;
use gpu_tuned::MicroBatch;
use gpu_tuned::kernels::{is_library_selected, select_library, was_library_operation_called};
use gpu_tuned::optim::{self, GradientsParams, ModuleOptimizer, Optimizer};
use rand::{RngExt, SeedableRng, rngs::StdRng};
use serde::Serialize;

use crate::device::Choice;
use crate::lesson::Lesson;
use crate::mode;
use crate::network::Model;
use crate::products::worse;

/// Largest difference from Burn's values, relative to the largest movement of a parameter.
const MOST_FROM_BURN: f64 = 1e-5;
/// Largest difference from fp64: Burn's corrections of the first steps are differences in f32.
const MOST_FROM_F64: f64 = 1e-3;
const BETAS: [f64; 2] = [0.9_f32 as f64, 0.999_f32 as f64];
const EPSILON: f64 = 1e-5_f32 as f64;
const DECAY: f32 = 0.01;
/// Updates that are timed.
const TIMED: u32 = 50;

/// Options of `optimizer`.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Steps of other rates each
    #[arg(long, default_value_t = 1000)]
    steps: usize,
    /// Time updates of this model's parameters instead
    #[arg(long)]
    time: Option<Model>,
}

/// Kinds of optimizers.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Kind {
    Adam,
    AdamWithDecay,
    AdamW,
}

#[derive(Serialize)]
struct Compared {
    run: &'static str,
    kind: Kind,
    shape: Vec<usize>,
    steps: usize,
    /// Largest differences, relative to the largest movement of a parameter.
    from_burn: f64,
    from_f64: f64,
    within: bool,
}

#[derive(Serialize)]
struct Timed {
    run: &'static str,
    model: Model,
    /// Milliseconds of an update.
    burn: f64,
    kernel: f64,
}

/// Prints a line for each kind and shape, or for the timed model.
pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let device = arguments.choice.open(mode::Precision::F32)?;
    select_library(&device, true)?;
    if let Some(model) = arguments.time {
        return time(&device, model);
    }
    let mut all_within = true;
    for kind in [Kind::Adam, Kind::AdamWithDecay, Kind::AdamW] {
        all_within &= kind.compare([1], arguments.steps, &device)?;
        all_within &= kind.compare([1003], arguments.steps, &device)?;
        all_within &= kind.compare([37, 50], arguments.steps, &device)?;
        all_within &= kind.compare([64, 128], arguments.steps, &device)?;
        all_within &= kind.compare([5, 3, 3, 7], arguments.steps, &device)?;
        all_within &= kind.compare([0, 4], 2, &device)?;
    }
    ensure!(was_library_operation_called() && is_library_selected(), "Burn's kernels computed");
    ensure!(all_within, "some values differ");
    Ok(())
}

impl Kind {
    fn compare<const D: usize>(self, shape: [usize; D], steps: usize, device: &Device) -> anyhow::Result<bool> {
        let decay = Some(WeightDecayConfig::new(DECAY));
        match self {
            Self::Adam => self.beside(
                &optim::AdamConfig::new().build(),
                &burn_optim::AdamConfig::new().build(),
                shape,
                steps,
                device,
            ),
            Self::AdamWithDecay => {
                let ours = optim::AdamConfig::new().with_weight_decay(decay.clone()).build();
                let burns = burn_optim::AdamConfig::new().with_weight_decay(decay).build();
                self.beside(&ours, &burns, shape, steps, device)
            }
            Self::AdamW => {
                let ours = optim::AdamWConfig::new().with_weight_decay(DECAY).build();
                let burns = burn_optim::AdamWConfig::new().with_weight_decay(DECAY).build();
                self.beside(&ours, &burns, shape, steps, device)
            }
        }
    }

    /// Steps of one parameter by both optimizers and in fp64.
    fn beside<const D: usize>(
        self,
        ours: &impl Optimizer,
        burns: &impl Optimizer,
        shape: [usize; D],
        steps: usize,
        device: &Device,
    ) -> anyhow::Result<bool> {
        let mut random = StdRng::seed_from_u64(7);
        let count = shape.iter().product();
        let mut numbers = || (0..count).map(|_| random.random_range(-1.0..1.0)).collect::<Vec<f32>>();
        let on_device =
            |numbers: Vec<f32>| Tensor::<D>::from_data(TensorData::new(numbers, shape), (device, DType::F32));
        let first = numbers();
        let mut reference = Reference::new(&first);
        let (mut by_kernel, mut by_burn) = (on_device(first.clone()), on_device(first.clone()));
        let (mut state, mut burns_state) = (None, None);
        let mut rates = StdRng::seed_from_u64(8);
        for _ in 0..steps {
            let rate = 10_f64.powf(rates.random_range(-5.0..-2.0));
            let numbers = numbers();
            reference.step(self, rate, &numbers);
            let mut gradient = on_device(numbers);
            if D == 2 {
                // As the gradients of some weights lie in memory.
                let copy = gradient.swap_dims(0, 1).mul_scalar(1.0);
                gradient = copy.swap_dims(0, 1);
            }
            (by_kernel, state) = ours.step(rate, by_kernel, gradient.clone(), state);
            (by_burn, burns_state) = burns.step(rate, by_burn, gradient, burns_state);
        }
        let read = |tensor: Tensor<D>| tensor.try_into_data().map(|data| data.iter::<f64>().collect::<Vec<_>>());
        let (by_kernel, by_burn) = (read(by_kernel)?, read(by_burn)?);
        let largest = |values: &[f64], others: &[f64]| {
            values.iter().zip(others).fold(0.0, |largest: f64, (value, other)| worse(largest, (value - other).abs()))
        };
        let first: Vec<f64> = first.into_iter().map(f64::from).collect();
        let moved = largest(&reference.values, &first).max(f64::MIN_POSITIVE);
        let from_burn = largest(&by_kernel, &by_burn) / moved;
        let from_f64 = largest(&by_kernel, &reference.values) / moved;
        let within = from_burn <= MOST_FROM_BURN && from_f64 <= MOST_FROM_F64;
        let run = "optimizer";
        let compared = Compared { run, kind: self, shape: shape.to_vec(), steps, from_burn, from_f64, within };
        println!("{}", serde_json::to_string(&compared)?);
        Ok(within)
    }
}

/// A parameter in fp64.
struct Reference {
    values: Vec<f64>,
    moments: Vec<[f64; 2]>,
    time: i32,
}

impl Reference {
    fn new(values: &[f32]) -> Self {
        let values: Vec<f64> = values.iter().copied().map(f64::from).collect();
        Self { moments: vec![[0.0; 2]; values.len()], values, time: 0 }
    }

    /// Adam of Kingma and Ba; AdamW of Loshchilov and Hutter.
    fn step(&mut self, kind: Kind, rate: f64, gradient: &[f32]) {
        self.time += 1;
        let (penalty, decay) = match kind {
            Kind::Adam => (0.0, 0.0),
            Kind::AdamWithDecay => (f64::from(DECAY), 0.0),
            Kind::AdamW => (0.0, f64::from(DECAY)),
        };
        for ((value, moments), gradient) in self.values.iter_mut().zip(&mut self.moments).zip(gradient) {
            let gradient = f64::from(*gradient) + penalty * *value;
            let powers = [gradient, gradient * gradient];
            let mut corrected = [0.0; 2];
            for at in 0..2 {
                moments[at] = BETAS[at] * moments[at] + (1.0 - BETAS[at]) * powers[at];
                corrected[at] = moments[at] / (1.0 - BETAS[at].powi(self.time));
            }
            *value -= rate * (decay * *value + corrected[0] / (corrected[1].sqrt() + EPSILON));
        }
    }
}

/// Updates of all parameters of a model.
fn time(device: &Device, model: Model) -> anyhow::Result<()> {
    let dimensions = model.dimensions();
    let network = dimensions.network(&device.clone().autodiff());
    let batch = Lesson::new(&dimensions, 0).batch(0, 8).on_device(device);
    let gradients = || GradientsParams::from_grads(network.loss(batch.clone()).backward(), &network);
    let milliseconds = |mut optimizer: ModuleOptimizer| -> anyhow::Result<f64> {
        let mut updated = network.clone();
        let mut update = |gradients: Vec<GradientsParams>| -> anyhow::Result<f64> {
            device.sync()?;
            let begin = Instant::now();
            for gradients in gradients {
                updated = optimizer.step(1e-4, updated.clone(), gradients);
            }
            device.sync()?;
            Ok(begin.elapsed().as_secs_f64() * 1000.0)
        };
        update((0..5).map(|_| gradients()).collect())?;
        Ok(update((0..TIMED).map(|_| gradients()).collect())? / f64::from(TIMED))
    };
    let kernel = milliseconds(optim::AdamWConfig::new().init())?;
    let burn = milliseconds(burn_optim::AdamWConfig::new().init())?;
    println!("{}", serde_json::to_string(&Timed { run: "optimizer times", model, burn, kernel })?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::Kind;

    /// On the CPU both optimizers are Burn's.
    #[test]
    fn the_reference_agrees_with_burn() {
        for kind in [Kind::Adam, Kind::AdamWithDecay, Kind::AdamW] {
            assert!(kind.compare([6, 5], 1000, &Device::flex()).expect("values"));
        }
    }
}
