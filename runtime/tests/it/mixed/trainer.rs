//! The trainer, against the loop by hand.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::optim::AdamWConfig;
use burn::tensor::Tensor;
use gpu_tuned::mixed::Half;
use gpu_tuned::train::Trainer;

use super::models::{Learner, Transformer};
use super::process;
use super::steps::{Training, bits, device, half};

const RATE: f64 = 3e-3;

/// The mean over seeds, each of which stands for a sample.
fn loss(model: &Transformer, seeds: &[u64]) -> Tensor<1> {
    let losses: Vec<_> = seeds.iter().map(|seed| model.loss(*seed, &device())).collect();
    Tensor::cat(losses, 0).mean()
}

fn trainer(half: Half, micro_batch: usize) -> Trainer<Transformer> {
    device().seed(1);
    let (model, optimizer) = (Transformer::init(&device()), AdamWConfig::new().init());
    Trainer::new(model, optimizer, device(), micro_batch).mixed(half).expect("it has no running statistics")
}

/// Results of the trainer in this process's default float type.
pub(crate) fn task() -> String {
    let half = half();
    let by_hand = (0..6).fold(Training::new(half, AdamWConfig::new().init()), |run, seed| run.step(seed, 1.0).0);
    let mut run = trainer(half, 4);
    for seed in 0..6 {
        run.step(RATE, vec![seed], |model, seeds| loss(model, &seeds)).expect("there is memory");
    }
    let same = bits(run.master()) == by_hand.bits();

    let (before, scale) = (bits(run.master()), run.loss_scale().value());
    let overflow = |model: &Transformer, seeds: Vec<u64>| loss(model, &seeds).mul_scalar(1e38).mul_scalar(1e38);
    let step = run.step(RATE, vec![6], overflow).expect("there is memory");
    let left_out = !step.applied && bits(run.master()) == before;
    let factor = run.loss_scale().value() / scale;

    let starved = AtomicBool::new(true);
    let once = |model: &Transformer, seeds: Vec<u64>| {
        assert!(!starved.swap(false, Ordering::Relaxed), "out of device memory allocating 1 bytes");
        loss(model, &seeds)
    };
    let step = run.step(RATE, vec![7, 8], once).expect("there is memory for one");
    format!("same: {same}, left out: {left_out}, factor: {factor}, applied: {} in {}", step.applied, step.micro_batches)
}

#[test]
fn the_trainer_takes_the_steps_of_a_loop_by_hand() {
    assert_eq!(process::run("bf16", "trainer"), "same: true, left out: true, factor: 1, applied: true in 2");
    assert_eq!(process::run("f16", "trainer"), "same: true, left out: true, factor: 0.5, applied: true in 2");
}
