//! Training in mixed precision, compared with training in f32.

use std::thread;

use burn::optim::{AdamWConfig, GradientsParams};
use burn::tensor::Device;
use gpu_tuned::mixed::Half;

use super::models::{Convnet, Learner, Recurrent, Transformer};
use super::process;
use super::steps::Training;

const SEEDS: [u64; 3] = [1, 2, 3];
/// Steps at the end whose losses are averaged.
const LAST: usize = 20;

/// The losses of a run: `[precision, model, steps, learning rate, seed]`.
pub(crate) fn task(words: &[&str]) -> String {
    let [precision, model, steps, lr, seed] = words else { panic!("{words:?}") };
    let run = Run {
        precision: (*precision).to_owned(),
        steps: steps.parse().unwrap(),
        lr: lr.parse().unwrap(),
        seed: seed.parse().unwrap(),
    };
    let losses = match *model {
        "transformer" => run.losses::<Transformer>(),
        "convnet" => run.losses::<Convnet>(),
        "recurrent" => run.losses::<Recurrent>(),
        other => panic!("{other} is no model"),
    };
    let mean = |losses: &[f64]| losses.iter().sum::<f64>() / losses.len() as f64;
    format!("{} {}", mean(&losses[..LAST]), mean(&losses[losses.len() - LAST..]))
}

struct Run {
    precision: String,
    steps: u64,
    lr: f64,
    seed: u64,
}

impl Run {
    fn losses<L: Learner>(&self) -> Vec<f64> {
        let device = Device::flex().autodiff();
        device.seed(self.seed);
        let model = L::init(&device);
        match self.precision.as_str() {
            "mixed_bf16" => self.mixed(model, Half::Bf16),
            "mixed_f16" => self.mixed(model, Half::F16),
            _ => self.plain(model, &device),
        }
    }

    fn batch(&self, step: u64) -> u64 {
        self.seed * 1_000_000 + step
    }

    fn plain<L: Learner>(&self, mut model: L, device: &Device) -> Vec<f64> {
        let mut optimizer = AdamWConfig::new().init();
        let step = |step| {
            let loss = model.loss(self.batch(step), device);
            let value = loss.clone().into_scalar::<f64>();
            let gradients = GradientsParams::from_grads(loss.backward(), &model);
            model = optimizer.step(self.lr, model.clone(), gradients);
            value
        };
        (0..self.steps).map(step).collect()
    }

    fn mixed<L: Learner>(&self, model: L, half: Half) -> Vec<f64> {
        let begun = (Training::of(model, half, AdamWConfig::new().init(), self.lr), Vec::new());
        let step = |(training, mut losses): (Training<L>, Vec<f64>), step| {
            let (training, loss, _) = training.step(self.batch(step), 1.0);
            losses.push(loss);
            (training, losses)
        };
        (0..self.steps).fold(begun, step).1
    }
}

/// Mean loss at the beginning and at the end, over all seeds, and how far the seeds are apart at the end.
#[derive(Debug)]
struct Outcome {
    first: f64,
    last: f64,
    spread: f64,
}

fn outcome(float: &str, precision: &str, model: &str, steps: u64, lr: f64) -> Outcome {
    let run = |seed| {
        let result = process::run(float, &format!("train {precision} {model} {steps} {lr} {seed}"));
        let (first, last) = result.split_once(' ').expect("two numbers");
        (first.parse::<f64>().unwrap(), last.parse::<f64>().unwrap())
    };
    let runs = thread::scope(|scope| {
        let started = SEEDS.map(|seed| scope.spawn(move || run(seed)));
        started.map(|run| run.join().expect("the run"))
    });
    let count = SEEDS.len() as f64;
    let last = runs.iter().map(|run| run.1).sum::<f64>() / count;
    let spread = (runs.iter().map(|run| (run.1 - last).powi(2)).sum::<f64>() / (count - 1.0)).sqrt();
    Outcome { first: runs.iter().map(|run| run.0).sum::<f64>() / count, last, spread }
}

const TASKS: [(&str, f64); 3] = [("transformer", 3e-3), ("convnet", 3e-3), ("recurrent", 3e-3)];

#[test]
#[ignore = "trains for minutes; `.ci/nightly` runs it"]
fn it_learns_what_f32_learns_to_within_the_noise_of_seeds() {
    for (model, lr) in TASKS {
        let right = outcome("f32", "f32", model, 250, lr);
        assert!(right.last < 0.85 * right.first, "{model} learns: {right:?}");
        for (float, precision) in [("bf16", "mixed_bf16"), ("f16", "mixed_f16")] {
            let found = outcome(float, precision, model, 250, lr);
            let apart = (found.last - right.last).abs();
            assert!(apart < right.spread / 2.0, "{model} {precision}: {found:?}, f32: {right:?}");
        }
    }
}

/// Steps of 1e-4 are below half a unit in the last place of most weights in bf16.
#[test]
#[ignore = "trains for minutes; `.ci/nightly` runs it"]
fn small_steps_are_not_rounded_away_as_they_are_from_bf16_weights() {
    let descent = |float: &str, precision: &str| {
        let outcome = outcome(float, precision, "transformer", 250, 1e-4);
        outcome.first - outcome.last
    };
    let right = descent("f32", "f32");
    assert!((descent("bf16", "mixed_bf16") / right - 1.0).abs() < 0.05);
    assert!(descent("bf16", "bf16_params") < 0.5 * right);
}
